/*
 * Ids and decoded text of ten kinds of tokenizers against those of the reference library, on 10,500 texts:
 * fixtures/tokenizers, made by the script there. A failure names the kind, the text and our ids.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "gpu/model/tokenizer.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

static uint32_t add_hash(uint32_t state, const void *bytes, size_t count)
{
    const uint8_t *byte = bytes;
    for (size_t i = 0; i < count; i++)
        state = (state ^ byte[i]) * 0x01000193;
    return state;
}

static char *print_ids(const struct token_list *ids)
{
    static char text[600];
    size_t used = 0;
    for (size_t i = 0; i < ids->count && used + 16 < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %" PRIu32, ids->ids[i]);
    return text;
}

/* Whether one text has the expected hash; says so when not. */
static bool check(const char *kind, const struct tokenizer *tokenizer, struct encoder *encoder, const char *text,
                  size_t bytes, const uint8_t expected[4])
{
    struct token_list ids = {0};
    struct why why = {0};
    struct buf back;
    char shown[300], decoded[300];
    buf_init(&back, 1 << 20);
    if (encoder_encode(encoder, text, bytes, ENCODE_WRAP, &ids, &why) ||
        tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back, &why))
        fail_msg("%s: %s", kind, why.text);
    uint32_t hash = 0x811c9dc5, wanted = 0;
    for (size_t i = 0; i < ids.count; i++) {
        uint8_t id[4] = {(uint8_t)ids.ids[i], (uint8_t)(ids.ids[i] >> 8), (uint8_t)(ids.ids[i] >> 16),
                         (uint8_t)(ids.ids[i] >> 24)};
        hash = add_hash(hash, id, 4);
    }
    hash = add_hash(hash, buf_peek(&back), buf_used(&back));
    for (int i = 0; i < 4; i++)
        wanted |= (uint32_t)expected[i] << 8 * i;
    if (hash != wanted)
        printf("%s: \"%s\" →%s → \"%s\"\n", kind, text_harmless(text, bytes, shown, sizeof shown), print_ids(&ids),
               text_harmless((const char *)buf_peek(&back), buf_used(&back), decoded, sizeof decoded));
    token_list_clear(&ids);
    buf_clear(&back);
    return hash == wanted;
}

static void test_reference(void **state)
{
    const char *folder = getenv("TOKENIZERS") ? getenv("TOKENIZERS") : "tests/unit/fixtures/tokenizers", *kind = *state;
    char *json = mem_format("%s/%s.json", folder, kind), *ids = mem_format("%s/%s.ids", folder, kind);
    char *texts = mem_format("%s/texts.jsonl", folder);
    uint8_t *file = NULL, *hashes = NULL, *lines = NULL;
    size_t bytes, hashes_bytes, lines_bytes, count = 0, wrong = 0;
    struct tokenizer *tokenizer = NULL;
    struct why why = {0};
    if (file_read(json, TOKENIZER_FILE_MAX, &file, &bytes, &why) ||
        file_read(ids, (size_t)1 << 30, &hashes, &hashes_bytes, &why) ||
        file_read(texts, (size_t)1 << 30, &lines, &lines_bytes, &why) ||
        tokenizer_parse(file, bytes, json, &tokenizer, &why))
        fail_msg("%s", why.text);
    struct encoder *encoder = encoder_new(tokenizer);
    char *rest = (char *)lines;
    for (char *line; wrong < 20 && (line = strsep(&rest, "\n")) && rest; count++) {
        json_t *text = json_loads(line, JSON_DECODE_ANY, NULL);
        assert_non_null(text);
        assert_true(4 * count + 4 <= hashes_bytes);
        wrong += !check(kind, tokenizer, encoder, json_string_value(text), json_string_length(text), hashes + 4 * count);
        json_decref(text);
    }
    assert_int_equal(wrong, 0);
    assert_true(count >= 10000 || getenv("TOKENIZERS"));
    assert_int_equal(encoder_lost(encoder), 0);
    encoder_free(encoder);
    tokenizer_close(tokenizer);
    mem_free(file);
    mem_free(hashes);
    mem_free(lines);
    mem_free(json);
    mem_free(ids);
    mem_free(texts);
}

int main(void)
{
    static char kinds[][16] = {"gpt2",     "llama3", "qwen2",  "smollm",  "tekken",
                               "deepseek", "odd",    "llama2", "mistral", "metaspace"};
    struct CMUnitTest tests[sizeof kinds / sizeof *kinds];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        tests[i] = (struct CMUnitTest){kinds[i], test_reference, NULL, NULL, kinds[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
