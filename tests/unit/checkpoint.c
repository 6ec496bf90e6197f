/*
 * config.json and the index of sharded weights: what is right is read, what would change the result and is not supported is
 * refused by its name, and what strangers claim is checked.
 */
#include "gpu/model/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/placed.h"

#define SIZES                                                                                                               \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":96,\"vocab_size\":256"
#define LLAMA "\"model_type\":\"llama\"," SIZES

static void write_file(const char *name, const char *text, size_t bytes)
{
    assert_int_equal(file_write(place_file(&place, name), text, bytes, 0600, NULL), 0);
}

static int read_config(const char *text, struct model_shape *shape, struct why *why)
{
    *why = (struct why){0};
    write_file("config.json", text, strlen(text));
    return checkpoint_shape(place.folder, shape, why);
}

static void shapes_are_read(void **state)
{
    (void)state;
    struct model_shape s;
    struct why why;
    assert_int_equal(read_config("{" LLAMA "}", &s, &why), 0);
    assert_true(s.hidden == 64 && s.layers == 2 && s.heads == 4 && s.kv_heads == 4 && s.ffn == 96 && s.vocabulary == 256);
    assert_true(s.head_width == 16 && !s.tied && s.rope_theta == 10000 && s.norm_epsilon == 1e-6f);
    assert_int_equal(
        read_config("{" LLAMA ",\"num_key_value_heads\":2,\"head_dim\":32,\"tie_word_embeddings\":true,\"rope_theta\":5e5,"
                    "\"rms_norm_eps\":1e-5,\"rope_scaling\":null,\"attention_bias\":false,\"hidden_act\":\"silu\"}",
                    &s, &why),
        0);
    assert_true(s.kv_heads == 2 && s.head_width == 32 && s.tied && s.rope_theta == 500000 && s.norm_epsilon == 1e-5f);
    assert_int_equal(
        read_config("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1234}}", &s, &why), 0);
    assert_true(s.rope_theta == 1234);
    assert_int_equal(read_config("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"default\"},\"rope_theta\":99}", &s, &why), 0);
    assert_true(s.rope_theta == 99);
}

/* What transformers takes where the file says nothing. */
static void families_have_their_defaults(void **state)
{
    (void)state;
    struct model_shape s;
    struct why why;
    assert_int_equal(read_config("{\"model_type\":\"mistral\",\"num_key_value_heads\":2," SIZES "}", &s, &why), 0);
    assert_true(s.window == 4096 && s.head_width == 16 && !s.qkv_bias && !s.qk_norm);
    assert_int_equal(
        read_config("{\"model_type\":\"mistral\",\"num_key_value_heads\":2,\"sliding_window\":null," SIZES "}", &s, &why), 0);
    assert_int_equal(s.window, 0);
    assert_int_equal(read_config("{\"model_type\":\"mistral\"," SIZES "}", &s, &why), ERR_INVALID); /* 8 kv heads of 4 */
    assert_int_equal(read_config("{\"model_type\":\"qwen2\",\"num_key_value_heads\":2,\"sliding_window\":8," SIZES "}", &s, &why), 0);
    assert_true(s.window == 0 && s.qkv_bias);
    assert_int_equal(read_config("{\"model_type\":\"qwen2\",\"num_key_value_heads\":2,\"sliding_window\":8,\"use_sliding_window\":true,"
                                 SIZES "}", &s, &why), 0);
    assert_int_equal(s.window, 8);
    assert_int_equal(read_config("{\"model_type\":\"qwen3\",\"num_key_value_heads\":2,\"sliding_window\":8,\"layer_types\":"
                                 "[\"full_attention\",\"sliding_attention\"]," SIZES "}", &s, &why), 0);
    assert_true(s.window == 8 && s.head_width == 128 && s.qk_norm && !s.qkv_bias);
    assert_int_equal(read_config("{" LLAMA ",\"sliding_window\":8}", &s, &why), 0);
    assert_int_equal(s.window, 0);
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *config, *word;
    } cases[] = {
        {"", "config.json:"},
        {"[1]", "not a JSON object"},
        {"{" SIZES "}", "model_type is missing"},
        {"{\"model_type\":\"mixtral\"," SIZES "}", "model_type \"mixtral\""},
        {"{\"model_type\":\"llama\",\"model_type\":\"llama\"," SIZES "}", "duplicate"},
        {"{\"model_type\":\"llama\"}", "hidden_size is missing"},
        {"{" LLAMA ",\"num_key_value_heads\":\"2\"}", "num_key_value_heads is not a whole number"},
        {"{" LLAMA ",\"num_key_value_heads\":3}", "kv_heads do not divide"},
        {"{" LLAMA ",\"num_key_value_heads\":0}", "kv_heads"},
        {"{" LLAMA ",\"head_dim\":15}", "halves"},
        {"{" LLAMA ",\"head_dim\":-2}", "head_width"},
        {"{" LLAMA ",\"attention_bias\":true}", "attention_bias"},
        {"{" LLAMA ",\"mlp_bias\":true}", "mlp_bias"},
        {"{" LLAMA ",\"quantization_config\":{}}", "quantization_config"},
        {"{" LLAMA ",\"hidden_act\":\"gelu\"}", "hidden_act \"gelu\""},
        {"{" LLAMA ",\"hidden_act\":1}", "hidden_act"},
        {"{\"model_type\":\"gemma2\"," SIZES "}", "supported: llama, mistral, qwen2, qwen3"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0}}", "low_freq_factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0,\"low_freq_factor\":4,\"high_freq_factor\":1,"
         "\"original_max_position_embeddings\":64}}", "frequency factors"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", "factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}}", "at least 1"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}}", "rope_type \"dynamic\""},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":7}}", "rope_type"},
        {"{" LLAMA ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {"{" LLAMA ",\"layer_types\":[\"full_attention\",\"chunked_attention\"]}", "chunked_attention"},
        {"{\"model_type\":\"mistral\",\"sliding_window\":-5," SIZES "}", "sliding_window"},
        {"{\"model_type\":\"qwen3\",\"num_key_value_heads\":4,\"attention_bias\":true," SIZES "}", "attention_bias"},
        {"{\"model_type\":\"qwen2\",\"num_key_value_heads\":4,\"use_sliding_window\":1," SIZES "}", "use_sliding_window"},
        {"{" LLAMA ",\"rope_parameters\":7}", "rope_parameters"},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\"}}", "yarn"},
        {"{" LLAMA ",\"rope_theta\":\"big\"}", "rope_theta is not a number"},
        {"{" LLAMA ",\"rope_theta\":-1}", "rope_theta"},
        {"{" LLAMA ",\"rms_norm_eps\":0}", "norm_epsilon"},
        {"{" LLAMA ",\"tie_word_embeddings\":1}", "tie_word_embeddings"},
        {"{\"model_type\":\"llama\",\"hidden_size\":9223372036854775807,\"num_hidden_layers\":2,\"num_attention_heads\":1,"
         "\"intermediate_size\":96,\"vocab_size\":256}", "hidden"},
        {"{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":0,"
         "\"intermediate_size\":96,\"vocab_size\":256}", "heads"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_shape shape = {.hidden = -7};
        struct why why;
        assert_int_equal(read_config(cases[i].config, &shape, &why), ERR_INVALID);
        if (!strstr(why.text, cases[i].word) || !strstr(why.text, "config.json"))
            fail_msg("case %zu: '%s' does not say '%s'", i, why.text, cases[i].word);
        assert_int_equal(shape.hidden, -7);
    }
}

/* A safetensors file of one F32 vector of two numbers. */
static void write_shard(const char *name, const char *tensor, float a, float b)
{
    char bytes[300] = {0}, header[200];
    const float data[2] = {a, b};
    int length =
        snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", tensor);
    bytes[0] = (char)length;
    memcpy(bytes + 8, header, (size_t)length);
    memcpy(bytes + 8 + length, data, sizeof data);
    write_file(name, bytes, 8 + (size_t)length + sizeof data);
}

static void missing_files_are_named(void **state)
{
    (void)state;
    struct why why = {0};
    struct checkpoint *checkpoint;
    struct model_shape shape;
    assert_int_equal(checkpoint_open(place.folder, &checkpoint, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "model file missing"));
    assert_non_null(strstr(why.text, place.folder));
    why.err = 0;
    assert_int_equal(checkpoint_shape("/nowhere/at/all", &shape, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "/nowhere/at/all/config.json"));
}

static void one_file_or_many(void **state)
{
    (void)state;
    struct why why = {0};
    struct checkpoint *checkpoint;
    float out[2];
    const char *index =
        "{\"metadata\":{},\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"two.safetensors\"}}";
    write_shard("one.safetensors", "a", 1, 2);
    write_shard("two.safetensors", "b", 3, 4);
    write_file("model.safetensors.index.json", index, strlen(index));
    assert_int_equal(checkpoint_open(place.folder, &checkpoint, &why), 0);
    assert_int_equal(checkpoint_get_rows(checkpoint, "a", 1, 2, 1, 0, 2, out, &why), 0);
    assert_true(out[0] == 1 && out[1] == 2);
    assert_int_equal(checkpoint_get_rows(checkpoint, "b", 1, 2, 1, 1, 1, out, &why), 0);
    assert_true(out[0] == 4);
    assert_int_equal(checkpoint_get_rows(checkpoint, "c", 1, 2, 1, 0, 2, out, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "two.safetensors has no tensor c"));
    why.err = 0;
    assert_int_equal(checkpoint_get_rows(checkpoint, "d", 1, 2, 1, 0, 2, out, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "index.json has no tensor d"));
    checkpoint_close(checkpoint);
    write_shard("model.safetensors", "a", 5, 6); /* one file goes before an index */
    assert_int_equal(checkpoint_open(place.folder, &checkpoint, &why), 0);
    assert_int_equal(checkpoint_get_rows(checkpoint, "a", 1, 2, 1, 0, 2, out, &why), 0);
    assert_true(out[0] == 5);
    checkpoint_close(checkpoint);
    write_file("model.safetensors", "12345678901", 11); /* and is not passed over when it is broken */
    why.err = 0;
    assert_int_equal(checkpoint_open(place.folder, &checkpoint, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "model.safetensors: the header says"));
}

static void hostile_indexes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *index, *word;
        int err;
    } cases[] = {
        {"{}", "no weight_map", ERR_INVALID},
        {"{\"weight_map\":[]}", "no weight_map", ERR_INVALID},
        {"{\"weight_map\":{\"a\":3}}", "in no file of this folder", ERR_INVALID},
        {"{\"weight_map\":{\"a\":\"\"}}", "in no file of this folder", ERR_INVALID},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "in no file of this folder", ERR_INVALID},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "in no file of this folder", ERR_INVALID},
        {"{\"weight_map\":{\"a\":\"..\"}}", "in no file of this folder", ERR_INVALID},
        {"{\"weight_map\":{\"a\":\"absent.safetensors\"}}", "absent.safetensors", ERR_ABSENT},
        {"{\"weight_map\":{\"a\":\"x\"},\"weight_map\":{}}", "duplicate", ERR_INVALID},
        {"{\"weight_map\":", "index.json:", ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct why why = {0};
        struct checkpoint *checkpoint;
        write_file("model.safetensors.index.json", cases[i].index, strlen(cases[i].index));
        assert_int_equal(checkpoint_open(place.folder, &checkpoint, &why), cases[i].err);
        if (!strstr(why.text, cases[i].word))
            fail_msg("case %zu: '%s' does not say '%s'", i, why.text, cases[i].word);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        placed_test(shapes_are_read), placed_test(families_have_their_defaults), placed_test(what_is_not_supported_is_named),
        placed_test(missing_files_are_named), placed_test(one_file_or_many), placed_test(hostile_indexes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
