/*
 * What the reference library cannot be asked: bytes that are not UTF-8 come back, long words take no square of time, a text
 * that goes on where another ended, what ends a text, the built-in tokenizer.
 */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "gpu/model/tokenizer.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/place.h"

#define FOLDER "tests/unit/fixtures/tokenizers"

static struct tokenizer *open_kind(const char *kind)
{
    char *path = mem_format(FOLDER "/%s.json", kind);
    uint8_t *file = NULL;
    size_t bytes;
    struct tokenizer *tokenizer = NULL;
    struct why why = {0};
    if (file_read(path, TOKENIZER_FILE_MAX, &file, &bytes, &why) || tokenizer_parse(file, bytes, path, &tokenizer, &why))
        fail_msg("%s", why.text);
    mem_free(path);
    mem_free(file);
    return tokenizer;
}

static void encode(struct encoder *encoder, const void *text, size_t bytes, unsigned flags, struct token_list *ids)
{
    struct why why = {0};
    if (encoder_encode(encoder, text, bytes, flags, ids, &why))
        fail_msg("%s", why.text);
}

static void comes_back(const char *kind, const struct tokenizer *tokenizer, struct encoder *encoder, const uint8_t *text,
                       size_t bytes)
{
    struct token_list ids = {0};
    struct why why = {0};
    struct buf back;
    buf_init(&back, 1 << 20);
    encode(encoder, text, bytes, 0, &ids);
    if (tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back, &why))
        fail_msg("%s: %s", kind, why.text);
    if (buf_used(&back) != bytes || memcmp(buf_peek(&back), text, bytes) != 0)
        fail_msg("%s: %zu bytes in, %zu other ones back", kind, bytes, buf_used(&back));
    token_list_clear(&ids);
    buf_clear(&back);
}

static void test_any_bytes(void **state)
{
    static const char *const kinds[] = {"gpt2", "llama3", "smollm", "tekken", "deepseek", "llama2"};
    static const char *const seeds[] = {"\xff",
                                        "\x80\x80",
                                        "\xc3",
                                        "\xe2\x82",
                                        "\xf0\x9f\x98",
                                        "\xed\xa0\x80",
                                        "\xc0\xaf",
                                        "\xf8\x88\x80\x80\x80",
                                        "\xf4\x90\x80\x80",
                                        "caf\xe9 au lait",
                                        "\xef\xbf\xbd",
                                        " \xff \xff",
                                        "\xff\n\xfe",
                                        "a\xcc\x81\xcc",
                                        "\xe2\x96"};
    struct dice dice = {3};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct tokenizer *tokenizer = open_kind(kinds[k]);
        struct encoder *encoder = encoder_new(tokenizer);
        for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
            comes_back(kinds[k], tokenizer, encoder, (const uint8_t *)seeds[i], strlen(seeds[i]));
        for (int i = 0; i < 3000; i++) {
            uint8_t text[40];
            size_t bytes = 1 + dice_below(&dice, sizeof text);
            dice_bytes(&dice, text, bytes);
            for (size_t at = 0; at < bytes; at++) /* half of them plain */
                text[at] = dice_below(&dice, 2) ? text[at] : (uint8_t)" aeint.\n"[dice_below(&dice, 8)];
            comes_back(kinds[k], tokenizer, encoder, text, bytes);
        }
        assert_int_equal(encoder_lost(encoder), 0);
        encoder_free(encoder);
        tokenizer_close(tokenizer);
    }
}

/* Merges in the order of the file, each wherever it applies, from left to right: what BPE means, in the square of the
 * length. */
static size_t merge_slowly(const json_t *merges, char (*words)[64], size_t count)
{
    for (size_t m = 0; m < json_array_size(merges); m++) {
        const json_t *merge = json_array_get(merges, m);
        const char *left = json_string_value(json_array_get(merge, 0)), *right = json_string_value(json_array_get(merge, 1));
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            bool both = i + 1 < count && strcmp(words[i], left) == 0 && strcmp(words[i + 1], right) == 0;
            char word[64];
            snprintf(word, sizeof word, "%.31s%.31s", words[i], both ? words[i + 1] : "");
            memcpy(words[kept++], word, sizeof word);
            i += both;
        }
        count = kept;
    }
    return count;
}

static void test_long_words(void **state)
{
    static char words[3000][64];
    struct tokenizer *tokenizer = open_kind("llama2");
    struct encoder *encoder = encoder_new(tokenizer);
    json_t *json = json_load_file(FOLDER "/llama2.json", 0, NULL);
    const json_t *merges = json_object_get(json_object_get(json, "model"), "merges");
    struct dice dice = {8};
    (void)state;
    assert_non_null(json);
    for (size_t length = 30; length <= 3000; length *= 10) {
        struct token_list ids = {0};
        char text[3001];
        for (size_t i = 0; i < length; i++) {
            text[i] = "theraino"[dice_below(&dice, 8)];
            snprintf(words[i], sizeof *words, "%c", text[i]);
        }
        size_t count = merge_slowly(merges, words, length);
        encode(encoder, text, length, ENCODE_CONTINUE, &ids);
        assert_int_equal(ids.count, count);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(ids.ids[i], tokenizer_find(tokenizer, words[i]));
        token_list_clear(&ids);
    }
    json_decref(json);
    encoder_free(encoder);
    tokenizer_close(tokenizer);
}

/* A quarter of a megabyte without a place to cut, or of marks to sort: the deadline of the test is the check. */
static void test_long_texts(void **state)
{
    static const char *const kinds[] = {"llama3", "qwen2", "llama2"};
    static const char *const fillers[] = {"a", "th",      "\n",           " ", "\xff",        "字", "é",
                                          "=", "a\u0323", "\u0301\u0323", "1", "<|im_start|", "▁"};
    const size_t bytes = (size_t)1 << 18;
    uint8_t *text = mem_new(bytes + 16);
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct tokenizer *tokenizer = open_kind(kinds[k]);
        struct encoder *encoder = encoder_new(tokenizer);
        for (size_t i = 0; i < sizeof fillers / sizeof *fillers; i++) {
            struct token_list ids = {0};
            size_t step = strlen(fillers[i]), whole = bytes / step * step;
            for (size_t at = 0; at < whole; at += step)
                memcpy(text + at, fillers[i], step);
            encode(encoder, text, whole, 0, &ids);
            assert_true(ids.count > 0);
            token_list_clear(&ids);
        }
        encoder_free(encoder);
        tokenizer_close(tokenizer);
    }
    mem_free(text);
}

static void test_goes_on(void **state)
{
    static const char *const kinds[] = {"gpt2", "llama3", "smollm", "tekken", "llama2", "mistral", "metaspace"};
    static const char first[] = "One line, and another\n", second[] = "one that goes on: 12 x\n",
                      both[] = "One line, and another\none that goes on: 12 x\n";
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct tokenizer *tokenizer = open_kind(kinds[k]);
        struct encoder *encoder = encoder_new(tokenizer);
        struct token_list whole = {0}, parts = {0};
        encode(encoder, both, strlen(both), 0, &whole);
        encode(encoder, first, strlen(first), 0, &parts);
        encode(encoder, second, strlen(second), ENCODE_CONTINUE, &parts);
        if (whole.count != parts.count || memcmp(whole.ids, parts.ids, whole.count * sizeof *whole.ids) != 0)
            fail_msg("%s: in two parts it is something else", kinds[k]);
        token_list_clear(&whole);
        token_list_clear(&parts);
        encoder_free(encoder);
        tokenizer_close(tokenizer);
    }
}

static void test_empty(void **state)
{
    struct tokenizer *tokenizer = open_kind("llama2");
    struct encoder *encoder = encoder_new(tokenizer);
    struct token_list ids = {0};
    (void)state;
    encode(encoder, "", 0, 0, &ids);
    assert_int_equal(ids.count, 0);
    encode(encoder, "", 0, ENCODE_WRAP, &ids);
    assert_int_equal(ids.count, 1);
    assert_int_equal(ids.ids[0], tokenizer_find(tokenizer, "<s>"));
    token_list_clear(&ids);
    encoder_free(encoder);
    tokenizer_close(tokenizer);
}

static void test_bytes(void **state)
{
    struct tokenizer *tokenizer = tokenizer_new_bytes();
    struct encoder *encoder = encoder_new(tokenizer);
    struct token_list ids = {0};
    struct why why = {0};
    struct buf back;
    uint32_t bad = 256;
    (void)state;
    buf_init(&back, 100);
    assert_int_equal(tokenizer_count(tokenizer), 256);
    assert_int_equal(tokenizer_end(tokenizer), TOKENIZER_NONE);
    assert_int_equal(tokenizer_find(tokenizer, "a"), TOKENIZER_NONE);
    encode(encoder, "a\xff\0b", 4, ENCODE_WRAP, &ids);
    assert_int_equal(ids.count, 4);
    assert_int_equal(ids.ids[1], 255);
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back, &why), 0);
    assert_memory_equal(buf_peek(&back), "a\xff\0b", 4);
    assert_int_equal(tokenizer_decode(tokenizer, &bad, 1, true, &back, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "256"));
    token_list_clear(&ids);
    buf_clear(&back);
    encoder_free(encoder);
    tokenizer_close(tokenizer);
}

static void test_specials_left_out(void **state)
{
    struct tokenizer *tokenizer = open_kind("llama3");
    struct encoder *encoder = encoder_new(tokenizer);
    struct token_list ids = {0};
    struct why why = {0};
    struct buf back;
    (void)state;
    buf_init(&back, 100);
    encode(encoder, "a<|eot_id|>b", 12, ENCODE_WRAP, &ids);
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.count, false, &back, &why), 0);
    assert_int_equal(buf_used(&back), 2);
    assert_memory_equal(buf_peek(&back), "ab", 2);
    ids.ids[0] = tokenizer_count(tokenizer);
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.count, false, &back, &why), ERR_INVALID);
    token_list_clear(&ids);
    buf_clear(&back);
    encoder_free(encoder);
    tokenizer_close(tokenizer);
}

/* ---- a folder ---- */

static struct place place;

static void put(const char *name, const char *text)
{
    assert_int_equal(file_write(place_file(&place, name), text, strlen(text), 0600, NULL), 0);
}

static void test_end(void **state)
{
    static const struct {
        const char *file, *text, *refused; /* refused NULL: the end is </s> */
    } cases[] = {
        {"tokenizer_config.json", "{\"eos_token\": \"</s>\"}", NULL},
        {"tokenizer_config.json", "{\"eos_token\": {\"content\": \"</s>\", \"lstrip\": false}}", NULL},
        {"config.json", "{\"eos_token_id\": 2}", NULL},
        {"config.json", "{\"eos_token_id\": [2, 1]}", NULL},
        {"tokenizer_config.json", "{\"eos_token\": \"<nope>\"}", "eos_token \"<nope>\" is no token"},
        {"tokenizer_config.json", "{\"eos_token\": 7}", "is no token"},
        {"tokenizer_config.json", "{\"eos_token\"", "tokenizer_config.json:1"},
        {"config.json", "{\"eos_token_id\": 200000}", "eos_token_id is no token"},
        {"config.json", "{\"eos_token_id\": -1}", "eos_token_id is no token"},
        {"config.json", "{\"eos_token_id\": \"2\"}", "eos_token_id is no token"},
    };
    uint8_t *file;
    size_t bytes;
    struct tokenizer *tokenizer;
    struct why why = {0};
    (void)state;
    assert_int_equal(place_init(&place), 0);
    assert_int_equal(tokenizer_open(place.folder, &tokenizer, &why), ERR_ABSENT);
    assert_int_equal(file_read(FOLDER "/llama2.json", TOKENIZER_FILE_MAX, &file, &bytes, NULL), 0);
    assert_int_equal(file_write(place_file(&place, "tokenizer.json"), file, bytes, 0600, NULL), 0);
    mem_free(file);
    assert_int_equal(tokenizer_open(place.folder, &tokenizer, NULL), 0);
    assert_int_equal(tokenizer_end(tokenizer), TOKENIZER_NONE);
    tokenizer_close(tokenizer);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        why = (struct why){0};
        put(cases[i].file, cases[i].text);
        int err = tokenizer_open(place.folder, &tokenizer, &why);
        if (cases[i].refused) {
            assert_int_equal(err, ERR_INVALID);
            if (!strstr(why.text, cases[i].refused))
                fail_msg("'%s' does not say '%s'", why.text, cases[i].refused);
        } else {
            if (err)
                fail_msg("%s", why.text);
            assert_int_equal(tokenizer_end(tokenizer), tokenizer_find(tokenizer, "</s>"));
            tokenizer_close(tokenizer);
        }
        assert_int_equal(remove(place_file(&place, cases[i].file)), 0);
    }
    place_clear(&place);
}

/* ---- threads ---- */

static void *encode_all(void *arg)
{
    struct encoder *encoder = encoder_new(arg);
    struct token_list *ids = mem_new(sizeof *ids);
    char text[100];
    for (int i = 0; i < 300; i++) {
        int bytes = snprintf(text, sizeof text, "Line %d of a text, the same in both threads: é字 %d\n", i, i * i);
        encoder_encode(encoder, text, (size_t)bytes, ENCODE_WRAP, ids, NULL);
    }
    encoder_free(encoder);
    return ids;
}

static void test_threads(void **state)
{
    struct tokenizer *tokenizer = open_kind("qwen2");
    pthread_t threads[2];
    struct token_list *ids[2];
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_all, tokenizer), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], (void **)&ids[i]);
    assert_int_equal(ids[0]->count, ids[1]->count);
    assert_memory_equal(ids[0]->ids, ids[1]->ids, ids[0]->count * sizeof(uint32_t));
    for (int i = 0; i < 2; i++) {
        token_list_clear(ids[i]);
        mem_free(ids[i]);
    }
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_bytes),  cmocka_unit_test(test_long_words), cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_goes_on),    cmocka_unit_test(test_empty),      cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_specials_left_out), cmocka_unit_test(test_end), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
