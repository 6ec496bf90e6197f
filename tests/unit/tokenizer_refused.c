/*
 * Files that are wrong, hostile, or ask for what is not supported: one line that names the file, the part, and what would
 * be right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/model/tokenizer.h"
#include "ssh/base/mem.h"

#define MODEL "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<u>\":3},\"merges\":[[\"a\",\"b\"]]"
#define FILE_WITH(part) "{\"version\":\"1.0\"," part ",\"model\":{" MODEL "}}"
#define MODEL_WITH(more) "{\"model\":{" more "}}"
#define SPLIT(regex)                                                                                                        \
    FILE_WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\"}")
#define ADDED(row) FILE_WITH("\"added_tokens\":[" row "]")

static void refused(const char *json, const char *words)
{
    struct tokenizer *tokenizer = NULL;
    struct why why = {0};
    int err = tokenizer_parse((const uint8_t *)json, strlen(json), "some.json", &tokenizer, &why);
    if (err != ERR_INVALID || tokenizer)
        fail_msg("not refused: %s", json);
    if (!strstr(why.text, words) || strncmp(why.text, "some.json", 9) != 0 || strchr(why.text, '\n'))
        fail_msg("'%s' does not say '%s' in one line behind the name of the file", why.text, words);
}

static void taken(const char *json)
{
    struct tokenizer *tokenizer = NULL;
    struct why why = {0};
    if (tokenizer_parse((const uint8_t *)json, strlen(json), "some.json", &tokenizer, &why))
        fail_msg("%s", why.text);
    tokenizer_close(tokenizer);
}

static void test_by_name(void **state)
{
    static const char *const cases[][2] = {
        {FILE_WITH("\"normalizer\":{\"type\":\"Lowercase\"}"),
         "normalizer: type \"Lowercase\" is not supported; supported: NFC"},
        {FILE_WITH(
             "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"StripAccents\"}]}"),
         "\"StripAccents\""},
        {FILE_WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}"),
         "Replace with a Regex is not supported"},
        {FILE_WITH("\"pre_tokenizer\":{\"type\":\"Whitespace\"}"), "pre_tokenizer: type \"Whitespace\" is not supported"},
        {FILE_WITH(
             "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}"),
         "behind ByteLevel \"Digits\""},
        {FILE_WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Sideways\"}"),
         "behavior \"Sideways\""},
        {FILE_WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"),
         "prepend_scheme \"last\""},
        {FILE_WITH("\"post_processor\":{\"type\":\"RobertaProcessing\"}"), "post_processor: type \"RobertaProcessing\""},
        {FILE_WITH("\"decoder\":{\"type\":\"WordPiece\"}"), "decoder: type \"WordPiece\""},
        {FILE_WITH("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteLevel\"}]}"),
         "ByteLevel alone"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "model: type \"Unigram\" is not supported; supported: BPE"},
        {MODEL_WITH("\"dropout\":0.1," MODEL), "dropout is not supported"},
        {MODEL_WITH("\"continuing_subword_prefix\":\"##\"," MODEL), "continuing_subword_prefix \"##\""},
        {MODEL_WITH("\"end_of_word_suffix\":\"</w>\"," MODEL), "end_of_word_suffix \"</w>\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i][0], cases[i][1]);
}

static void test_damaged(void **state)
{
    static const char *const cases[][2] = {
        {"", "some.json:"},
        {"{", "some.json:1"},
        {"[]", "not a JSON object"},
        {"{}", "it has no model"},
        {"{\"model\":[]}", "it has no model"},
        {"{\"model\":{\"type\":\"BPE\",\"type\":\"BPE\"}}", "duplicate"},
        {MODEL_WITH("\"type\":7"), "(not a text)"},
        {MODEL_WITH("\"vocab\":[],\"merges\":[]"), "model.vocab is not an object"},
        {MODEL_WITH("\"vocab\":{},\"merges\":[]"), "no tokens"},
        {MODEL_WITH("\"vocab\":{\"a\":-1},\"merges\":[]"), "token \"a\" has no id from 0"},
        {MODEL_WITH("\"vocab\":{\"a\":4194304},\"merges\":[]"), "token \"a\" has no id"},
        {MODEL_WITH("\"vocab\":{\"a\":1.0},\"merges\":[]"), "token \"a\" has no id"},
        {MODEL_WITH("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]"), "like another one"},
        {MODEL_WITH("\"vocab\":{\"a\\u001b[31m\":\"x\"},\"merges\":[]"), "a\\x1b[31m"},
        {MODEL_WITH("\"vocab\":{\"a\":0}"), "merges is not a list"},
        {MODEL_WITH("\"vocab\":{\"a\":0},\"merges\":[7]"), "merge number 1 is not two texts"},
        {MODEL_WITH("\"vocab\":{\"a\":0},\"merges\":[\"aa\"]"), "merge number 1 is not two texts with one space"},
        {MODEL_WITH("\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]"), "merge number 1 is not two texts with one space"},
        {MODEL_WITH("\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]"), "merge number 1 is not two texts"},
        {MODEL_WITH("\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]"), "merge number 1 is not two texts"},
        {MODEL_WITH("\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\",\"a aa\"]"), "merge number 2 makes or needs"},
        {MODEL_WITH("\"unk_token\":\"<x>\"," MODEL), "does not have the unk_token"},
        {MODEL_WITH("\"byte_fallback\":1," MODEL), "byte_fallback is neither true nor false"},
        {FILE_WITH("\"normalizer\":7"), "normalizer: an object with a \"type\""},
        {FILE_WITH("\"normalizer\":{\"type\":\"Sequence\"}"), "a Sequence without a list"},
        {FILE_WITH("\"normalizer\":{\"type\":\"Prepend\"}"), "prepend is missing"},
        {FILE_WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"),
         "Replace of an empty text"},
        {FILE_WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}"), "content is missing"},
        {FILE_WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"}"),
         "an empty text"},
        {FILE_WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}}"), "without a behavior"},
        {FILE_WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}"), "is not one character"},
        {FILE_WITH("\"post_processor\":{\"type\":\"TemplateProcessing\"}"), "without a single"},
        {FILE_WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}"), "leaves the text out"},
        {FILE_WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}"),
         "does not explain"},
        {FILE_WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],"
                   "\"special_tokens\":{\"x\":{\"ids\":[77]}}}"),
         "is no token"},
        {FILE_WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{}},{\"Sequence\":{}}]}"),
         "twice"},
        {FILE_WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"), "Strip needs"},
        {ADDED("{\"id\":4}"), "number 0 has no content"},
        {ADDED("{\"id\":4,\"content\":\"\"}"), "number 0 has no content"},
        {ADDED("{\"content\":\"x\"}"), "token \"x\" has no id"},
        {ADDED("{\"id\":9,\"content\":\"x\"}"), "\"x\" has id 9, but 4 is its number"},
        {ADDED("{\"id\":1,\"content\":\"a\"}"), "\"a\" has id 1, but 0 is its number"},
        {ADDED("{\"id\":4,\"content\":\"x\"},{\"id\":4,\"content\":\"x\"}"), "twice"},
        {ADDED("{\"id\":4,\"content\":\"x\",\"lstrip\":\"no\"}"), "lstrip is neither"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i][0], cases[i][1]);
}

/* The two dialects of regular expressions mean different things by these. */
static void test_patterns(void **state)
{
    static const char *const cases[][2] = {
        {SPLIT(""), "a Regex of 0 bytes"},
        {SPLIT("^a"), "\"^\" at byte 1"},
        {SPLIT("a$"), "\"$\" at byte 2"},
        {SPLIT("\\\\h"), "\"\\h\" at byte 1"},
        {SPLIT("\\\\w+"), "\"\\w\""},
        {SPLIT("(a)\\\\1"), "\"\\1\" at byte 4"},
        {SPLIT("\\\\"), "\"\\\" at byte 1"},
        {SPLIT("[a[b]]"), "\"[b\" at byte 3"},
        {SPLIT("[a&&b]"), "\"&&\""},
        {SPLIT("[]a]"), "\"]\""},
        {SPLIT("a{,3}"), "\"{,\""},
        {SPLIT("a{1,2}+"), "\"}+\""},
        {SPLIT("(?m:.)"), "\"(?m:\""},
        {SPLIT("(?<n>a)"), "\"(?<n\""},
        {SPLIT("(*UTF)a"), "\"(*\""},
        {SPLIT("\\\\pL"), "\"\\pL\""},
        {SPLIT("[^\\\\S]"), "\"\\S\""},
        {SPLIT("(a"), "Regex: missing"},
        {SPLIT("\\\\p{Nonsense}"), "Regex: unknown property"},
        {SPLIT("(?C1)"), "\"(?C1\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i][0], cases[i][1]);
    taken(SPLIT("(?i:'s)|[^\\\\r\\\\n\\\\p{L}]?\\\\p{L}++|(?<=a)b(?!c)|\\\\.|[\\\\]a-c^-]|\\\\d{1,3}|\\\\S"));
}

/* A pattern that needs exponentially many steps gives up with a reason. */
static void test_exponential(void **state)
{
    static const char json[] = SPLIT("(a|aa|a?)+(a|aa|a?)+(a|aa|a?)+[yz]");
    struct tokenizer *tokenizer;
    struct token_list ids = {0};
    struct why why = {0};
    char text[2000];
    (void)state;
    assert_int_equal(tokenizer_parse((const uint8_t *)json, strlen(json), "some.json", &tokenizer, NULL), 0);
    struct encoder *encoder = encoder_new(tokenizer);
    memset(text, 'a', sizeof text);
    assert_int_equal(encoder_encode(encoder, text, sizeof text, 0, &ids, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "Regex gives up in a text of 2000 bytes"));
    assert_int_equal(ids.count, 0);
    encoder_free(encoder);
    tokenizer_close(tokenizer);
}

/* Texts that a file makes grow without end. */
static void test_growth(void **state)
{
    char *grow = mem_new(10000), *json;
    struct tokenizer *tokenizer;
    struct token_list ids = {0};
    struct why why = {0};
    size_t used = 0;
    (void)state;
    for (int i = 0; i < 5; i++)
        used += (size_t)snprintf(
            grow + used, 10000 - used, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%.200s\"}",
            i ? "," : "",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    json = mem_format("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s]},\"model\":{" MODEL "}}", grow);
    assert_int_equal(tokenizer_parse((const uint8_t *)json, strlen(json), "some.json", &tokenizer, NULL), 0);
    struct encoder *encoder = encoder_new(tokenizer);
    assert_int_equal(encoder_encode(encoder, "aa", 2, 0, &ids, &why), ERR_FULL);
    assert_non_null(strstr(why.text, "normalizer: the text grows beyond"));
    encoder_free(encoder);
    tokenizer_close(tokenizer);
    mem_free(json);
    mem_free(grow);
}

static void test_too_many_steps(void **state)
{
    char *json = mem_new(20000);
    size_t used =
        (size_t)snprintf(json, 20000, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}");
    (void)state;
    for (int i = 0; i < 40; i++)
        used += (size_t)snprintf(json + used, 20000 - used, ",{\"type\":\"NFC\"}");
    snprintf(json + used, 20000 - used, "]},\"model\":{" MODEL "}}");
    refused(json, "normalizer: more than 32 steps");
    used = (size_t)snprintf(json, 20000, "{\"normalizer\":");
    for (int i = 0; i < 12; i++)
        used += (size_t)snprintf(json + used, 20000 - used, "{\"type\":\"Sequence\",\"normalizers\":[");
    used += (size_t)snprintf(json + used, 20000 - used, "{\"type\":\"NFC\"}");
    for (int i = 0; i < 12; i++)
        used += (size_t)snprintf(json + used, 20000 - used, "]}");
    snprintf(json + used, 20000 - used, ",\"model\":{" MODEL "}}");
    refused(json, "normalizer: a Sequence is nested too deep");
    mem_free(json);
}

/* No unk_token, no byte: the bytes are left out as in the reference, and counted each time. */
static void test_lost(void **state)
{
    static const char json[] = MODEL_WITH(MODEL), unknown[] = MODEL_WITH("\"unk_token\":\"<u>\",\"fuse_unk\":true," MODEL);
    struct tokenizer *tokenizer;
    struct token_list ids = {0};
    (void)state;
    assert_int_equal(tokenizer_parse((const uint8_t *)json, strlen(json), "some.json", &tokenizer, NULL), 0);
    struct encoder *encoder = encoder_new(tokenizer);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(encoder_encode(encoder, "ab\xc3\xa9z", 5, 0, &ids, NULL), 0);
        assert_int_equal(ids.count, i);
        assert_int_equal(encoder_lost(encoder), 3 * i);
    }
    encoder_free(encoder);
    tokenizer_close(tokenizer);
    ids.count = 0;
    assert_int_equal(tokenizer_parse((const uint8_t *)unknown, strlen(unknown), "some.json", &tokenizer, NULL), 0);
    encoder = encoder_new(tokenizer);
    assert_int_equal(encoder_encode(encoder, "zzabz", 5, 0, &ids, NULL), 0);
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.ids[0], 3);
    assert_int_equal(ids.ids[1], 2);
    assert_int_equal(ids.ids[2], 3);
    encoder_free(encoder);
    tokenizer_close(tokenizer);
    token_list_clear(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_name),     cmocka_unit_test(test_damaged), cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_exponential), cmocka_unit_test(test_growth),  cmocka_unit_test(test_too_many_steps),
        cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
