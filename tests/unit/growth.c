/*
 * Text that comes out token by token: joined it is the text of all tokens together, each piece is whole characters, and nothing
 * that could be shown waits; for every kind of tokenizer, on the texts of its fixtures.
 */
#include "gpu/model/growth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "gpu/model/utf8.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define FIXTURES "tests/unit/fixtures/tokenizers"

enum { EVERY = 15 }; /* text of the fixtures */

static bool is_text(const uint8_t *at, size_t bytes)
{
    bool valid = true;
    return bytes == 0 || (utf8_run(at, bytes, &valid) == bytes && valid);
}

/* The joined pieces. */
static void grow(const struct tokenizer *tokenizer, const struct token_list *ids, struct buf *joined)
{
    struct growth *growth = growth_new(tokenizer);
    struct why why = {0};
    for (size_t i = 0; i <= ids->count; i++) {
        size_t before = buf_used(joined);
        int err = i < ids->count ? growth_add(growth, ids->ids[i], joined, &why) : growth_end(growth, joined, &why);
        if (err)
            fail_msg("%s", why.text);
        assert_true(is_text(buf_peek(joined) + before, buf_used(joined) - before));
    }
    growth_free(growth);
}

static void check_text(const char *kind, const struct tokenizer *tokenizer, const char *text, size_t bytes)
{
    struct encoder *encoder = encoder_new(tokenizer);
    struct token_list ids = {0};
    struct buf joined, whole;
    struct why why = {0};
    buf_init(&joined, 1 << 20);
    buf_init(&whole, 1 << 20);
    assert_int_equal(encoder_encode(encoder, text, bytes, ENCODE_WRAP, &ids, &why), 0);
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.count, false, &whole, &why), 0);
    grow(tokenizer, &ids, &joined);
    if (is_text(buf_peek(&whole), buf_used(&whole)) &&
        (buf_used(&joined) != buf_used(&whole) ||
         (buf_used(&whole) && memcmp(buf_peek(&joined), buf_peek(&whole), buf_used(&whole)) != 0)))
        fail_msg("%s: '%.*s' grows to '%.*s', all together it is '%.*s'", kind, (int)bytes, text, (int)buf_used(&joined),
                 (const char *)buf_peek(&joined), (int)buf_used(&whole), (const char *)buf_peek(&whole));
    buf_clear(&joined);
    buf_clear(&whole);
    token_list_clear(&ids);
    encoder_free(encoder);
}

static void pieces_join_to_the_text(void **state)
{
    static const char *const kinds[] = {"deepseek", "gpt2", "llama2", "llama3", "metaspace", "mistral", "odd", "qwen2", "smollm",
                                        "tekken"};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char path[200];
        uint8_t *json, *lines;
        size_t bytes;
        struct tokenizer *tokenizer;
        struct why why = {0};
        snprintf(path, sizeof path, FIXTURES "/%s.json", kinds[k]);
        assert_int_equal(file_read(path, TOKENIZER_FILE_MAX, &json, &bytes, &why), 0);
        assert_int_equal(tokenizer_parse(json, bytes, path, &tokenizer, &why), 0);
        mem_free(json);
        assert_int_equal(file_read(FIXTURES "/texts.jsonl", (size_t)1 << 30, &lines, &bytes, &why), 0);
        int number = 0;
        char *rest = (char *)lines;
        for (char *line; (line = strsep(&rest, "\n")) && rest;)
            if (number++ % EVERY == 0) {
                json_t *text = json_loads(line, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
                assert_true(json_is_string(text));
                check_text(kinds[k], tokenizer, json_string_value(text), json_string_length(text));
                json_decref(text);
            }
        mem_free(lines);
        tokenizer_close(tokenizer);
    }
}

/* With bytes as tokens: what comes out behind each one, "" where it waits. */
static void check_bytes(const char *text, const char *const *pieces)
{
    struct tokenizer *tokenizer = tokenizer_new_bytes();
    struct growth *growth = growth_new(tokenizer);
    struct why why = {0};
    struct buf out;
    buf_init(&out, 100);
    for (size_t i = 0; i <= strlen(text); i++) {
        int err = text[i] ? growth_add(growth, (uint8_t)text[i], &out, &why) : growth_end(growth, &out, &why);
        assert_int_equal(err, 0);
        if (buf_used(&out) != strlen(pieces[i]) || (buf_used(&out) && memcmp(pieces[i], buf_peek(&out), buf_used(&out)) != 0))
            fail_msg("piece %d of '%s' is '%.*s'", (int)i, text, (int)buf_used(&out), (const char *)buf_peek(&out));
        buf_consume(&out, buf_used(&out));
    }
    buf_clear(&out);
    growth_free(growth);
    tokenizer_close(tokenizer);
}

#define NONE "\xef\xbf\xbd"

static void characters_come_whole(void **state)
{
    (void)state;
    check_bytes("a\xc3\xa9z", (const char *const[]){"a", "", "é", "z", ""});
    check_bytes("\xf0\x9f\x98\x80.", (const char *const[]){"", "", "", "😀", ".", ""});
    check_bytes("\xe2\x82", (const char *const[]){"", "", NONE NONE});              /* the end cuts it */
    check_bytes("\xe2\x82z", (const char *const[]){"", "", NONE NONE "z", ""});      /* it turns out to be none */
    check_bytes("\xff\xc0\x80", (const char *const[]){NONE, NONE, NONE, ""});        /* can never be one */
    check_bytes("\xed\xa0\x80", (const char *const[]){"", NONE NONE, NONE, ""});     /* a surrogate is seen at its second byte */
    check_bytes("\xf4\x90\xe2", (const char *const[]){"", NONE NONE, "", NONE});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_join_to_the_text), cmocka_unit_test(characters_come_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
