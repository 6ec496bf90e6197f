/* Files to tokens: the same for any number of threads, a text in blocks as in one piece, marks, bad lines by number, too
 * long lines. */
#include "gpu/model/tokenise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/model/token_file.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/placed.h"

struct taken {
    struct token_list ids;
    uint8_t *marks;
    uint64_t progress;
    char bad[2000];
    struct tokenise_totals totals;
};

static int take(const uint32_t *ids, const uint8_t *marks, size_t count, void *arg, struct why *why)
{
    struct taken *taken = arg;
    (void)why;
    taken->marks = mem_grow(taken->marks, taken->ids.count + count, 1);
    memcpy(taken->marks + taken->ids.count, marks, count);
    for (size_t i = 0; i < count; i++)
        token_list_add(&taken->ids, ids[i]);
    return 0;
}

static void take_bad(const char *path, uint64_t line, const char *reason, void *arg)
{
    struct taken *taken = arg;
    size_t used = strlen(taken->bad);
    snprintf(taken->bad + used, sizeof taken->bad - used, "%s:%d:%.20s ", strrchr(path, '/') + 1, (int)line, reason);
}

static void take_progress(uint64_t bytes, void *arg)
{
    struct taken *taken = arg;
    assert_true(bytes >= taken->progress);
    taken->progress = bytes;
}

static int run(const struct tokenizer *tokenizer, enum chat_template template, bool skip, int threads, struct taken *taken,
               struct why *why)
{
    struct sources sources;
    char *paths = mem_format("%s/*", place.folder);
    *taken = (struct taken){0};
    struct tokenise order = {tokenizer, template, skip, threads, take, take_bad, take_progress, taken};
    assert_int_equal(sources_find(paths, &sources, NULL), 0);
    int err = tokenise_sources(&order, &sources, &taken->totals, why);
    if (err == 0)
        assert_int_equal(taken->progress, sources.bytes);
    sources_clear(&sources);
    mem_free(paths);
    return err;
}

static void taken_clear(struct taken *taken)
{
    token_list_clear(&taken->ids);
    mem_free(taken->marks);
}

static void put(const char *name, const void *text, size_t bytes)
{
    assert_int_equal(file_write(place_file(&place, name), text, bytes, 0600, NULL), 0);
}

/* With an end token: tokenizer_config.json beside it. */
static struct tokenizer *open_kind(const char *kind, const char *end)
{
    struct place own;
    char *path = mem_format("tests/unit/fixtures/tokenizers/%s.json", kind),
         *config = mem_format("{\"eos_token\":\"%s\"}", end);
    uint8_t *file;
    size_t bytes;
    struct tokenizer *tokenizer = NULL;
    struct why why = {0};
    assert_int_equal(place_init(&own), 0);
    assert_int_equal(file_read(path, TOKENIZER_FILE_MAX, &file, &bytes, NULL), 0);
    assert_int_equal(file_write(place_file(&own, "tokenizer.json"), file, bytes, 0600, NULL), 0);
    assert_int_equal(file_write(place_file(&own, "tokenizer_config.json"), config, strlen(config), 0600, NULL), 0);
    if (tokenizer_open(own.folder, &tokenizer, &why))
        fail_msg("%s", why.text);
    place_clear(&own);
    mem_free(file);
    mem_free(path);
    mem_free(config);
    return tokenizer;
}

/* About two megabytes of lines, some of them blank, some indented, some long. */
static char *long_text(size_t *bytes)
{
    static const char *const words[] = {"the", " rain", "  in", " Spain,", " 1234", " été", "字",
                                        ".",   "!",     "\n\n", "\n",      "\n\t",  "a"};
    char *text = mem_new((size_t)4 << 20);
    struct dice dice = {5};
    size_t used = 0;
    while (used < (size_t)9 << 18) {
        const char *word = words[dice_below(&dice, sizeof words / sizeof *words)];
        size_t length = strlen(word);
        memcpy(text + used, word, length);
        used += length;
    }
    *bytes = used;
    return text;
}

static void test_blocks_are_one_text(void **state)
{
    static const char *const kinds[][2] = {{"llama3", "<|end_of_text|>"}, {"llama2", "</s>"}};
    size_t bytes;
    char *text = long_text(&bytes);
    (void)state;
    put("a.txt", text, bytes);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct tokenizer *tokenizer = open_kind(kinds[k][0], kinds[k][1]);
        struct encoder *encoder = encoder_new(tokenizer);
        struct token_list whole = {0};
        assert_int_equal(encoder_encode(encoder, text, bytes, ENCODE_WRAP, &whole, NULL), 0);
        token_list_add(&whole, tokenizer_end(tokenizer));
        for (int threads = 1; threads <= 3; threads += 2) {
            struct taken taken;
            struct why why = {0};
            if (run(tokenizer, CHAT_PLAIN, false, threads, &taken, &why))
                fail_msg("%s", why.text);
            assert_int_equal(taken.ids.count, whole.count);
            assert_memory_equal(taken.ids.ids, whole.ids, whole.count * sizeof(uint32_t));
            assert_int_equal(taken.totals.documents, 1);
            assert_int_equal(taken.marks[0] & TOKEN_BEGINS, TOKEN_BEGINS);
            for (size_t i = 1; i < taken.ids.count; i++)
                assert_int_equal(taken.marks[i], TOKEN_LEARNED);
            taken_clear(&taken);
        }
        token_list_clear(&whole);
        encoder_free(encoder);
        tokenizer_close(tokenizer);
    }
    mem_free(text);
}

static void test_lines_and_marks(void **state)
{
    static const char lines[] = "{\"prompt\":\"a\",\"completion\":\"b\"}\n\n  \r\n{\"text\":\"cd\"}";
    struct tokenizer *tokenizer = open_kind("llama2", "</s>");
    struct taken taken;
    uint32_t start = tokenizer_find(tokenizer, "<s>"), end = tokenizer_find(tokenizer, "</s>");
    const uint32_t expected[] = {start, tokenizer_find(tokenizer, "▁a"), tokenizer_find(tokenizer, "b"), end, start};
    const uint8_t marks[] = {TOKEN_BEGINS, 0, TOKEN_LEARNED, TOKEN_LEARNED, TOKEN_BEGINS, TOKEN_LEARNED};
    (void)state;
    put("a.jsonl", lines, strlen(lines));
    assert_int_equal(run(tokenizer, CHAT_PLAIN, false, 1, &taken, NULL), 0);
    assert_true(taken.ids.count > 6);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(taken.ids.ids[i], expected[i]);
    assert_memory_equal(taken.marks, marks, sizeof marks);
    assert_int_equal(taken.ids.ids[taken.ids.count - 1], end);
    assert_int_equal(taken.totals.documents, 2);
    assert_int_equal(taken.totals.learned, taken.ids.count - 3);
    taken_clear(&taken);
    tokenizer_close(tokenizer);
}

static void test_bad_lines(void **state)
{
    struct tokenizer *tokenizer = tokenizer_new_bytes();
    struct taken taken;
    struct why why = {0};
    char *lines = mem_new((size_t)3 << 20);
    size_t used = 0;
    (void)state;
    for (int i = 1; i <= 20000; i++) /* over more than one block */
        used +=
            (size_t)snprintf(lines + used, 200, i % 9000 == 0 ? "{\"text\":\n" : "{\"text\":\"line %06d %0100d\"}\n", i, i);
    put("a.jsonl", lines, used);
    put("b.jsonl", "{\"no\":1}\n", 9);
    assert_int_equal(run(tokenizer, CHAT_PLAIN, false, 2, &taken, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "/a.jsonl:9000: column"));
    taken_clear(&taken);
    assert_int_equal(run(tokenizer, CHAT_PLAIN, true, 2, &taken, NULL), 0);
    assert_int_equal(taken.totals.bad_lines, 3);
    assert_int_equal(taken.totals.documents, 19998);
    assert_non_null(strstr(taken.bad, "a.jsonl:9000:"));
    assert_non_null(strstr(taken.bad, "a.jsonl:18000:"));
    assert_non_null(strstr(taken.bad, "b.jsonl:1:it has none of"));
    taken_clear(&taken);
    mem_free(lines);
    tokenizer_close(tokenizer);
}

static void test_too_long_lines(void **state)
{
    struct tokenizer *tokenizer = tokenizer_new_bytes();
    struct taken taken;
    size_t room = 2 * DOCUMENT_LINE_MAX + 3000000, used = 0;
    char *lines = mem_new(room + 1000);
    (void)state;
    used += (size_t)snprintf(lines, 100, "{\"text\":\"one\"}\n");
    memset(lines + used, 'x', room);
    used += room;
    used += (size_t)snprintf(lines + used, 100, "\n{\"text\":\"two\"}\n");
    put("a.jsonl", lines, used);
    assert_int_equal(run(tokenizer, CHAT_PLAIN, true, 1, &taken, NULL), 0);
    assert_int_equal(taken.totals.bad_lines, 1);
    assert_int_equal(taken.ids.count, 6);
    assert_non_null(strstr(taken.bad, "a.jsonl:2:the line is too long"));
    taken_clear(&taken);
    mem_free(lines);
    tokenizer_close(tokenizer);
}

static int refuse(const uint32_t *ids, const uint8_t *marks, size_t count, void *arg, struct why *why)
{
    (void)ids, (void)marks, (void)count, (void)arg;
    return why_set(why, ERR_FULL, "no room");
}

/* Whoever takes the tokens may stop it; threads and blocks under way end. */
static void test_stops(void **state)
{
    struct tokenizer *tokenizer = tokenizer_new_bytes();
    struct tokenise order = {.tokenizer = tokenizer, .threads = 3, .take_cb = refuse};
    struct tokenise_totals totals;
    struct sources sources;
    struct why why = {0};
    size_t bytes;
    char *text = long_text(&bytes), *paths = mem_format("%s/*", place.folder);
    (void)state;
    put("a.txt", text, bytes);
    put("b.txt", text, bytes);
    assert_int_equal(sources_find(paths, &sources, NULL), 0);
    assert_int_equal(tokenise_sources(&order, &sources, &totals, &why), ERR_FULL);
    assert_string_equal(why.text, "no room");
    sources_clear(&sources);
    mem_free(text);
    mem_free(paths);
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        placed_test(test_blocks_are_one_text), placed_test(test_lines_and_marks), placed_test(test_bad_lines),
        placed_test(test_too_long_lines), placed_test(test_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
