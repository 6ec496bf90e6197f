/*
 * Data of every kind gives the same windows: text tokenised at opening, the same prepared before, JSON lines. Epochs: every
 * window once, in another order each time, as a pure function.
 */
#include "gpu/model/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/model/shards.h"
#include "gpu/model/tokenise.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/placed.h"

#define TOKENS 16

static void put(const char *name, const void *text, size_t bytes)
{
    assert_int_equal(file_write(place_file(&place, name), text, bytes, 0600, NULL), 0);
}

static struct data *opened(const struct data_settings *settings)
{
    struct data *data = NULL;
    struct why why = {0};
    if (data_open(settings, &data, &why))
        fail_msg("%s", why.text);
    return data;
}

static void refused(const struct data_settings *settings, const char *words)
{
    struct data *data = NULL;
    struct why why = {0};
    assert_true(data_open(settings, &data, &why) < 0);
    if (!strstr(why.text, words))
        fail_msg("'%s' does not say '%s'", why.text, words);
}

static struct tokenizer *open_kind(const char *kind)
{
    char *path = mem_format("tests/unit/fixtures/tokenizers/%s.json", kind);
    uint8_t *file;
    size_t bytes;
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(file_read(path, TOKENIZER_FILE_MAX, &file, &bytes, NULL), 0);
    assert_int_equal(tokenizer_parse(file, bytes, path, &tokenizer, NULL), 0);
    mem_free(file);
    mem_free(path);
    return tokenizer;
}

/* ---- epochs ---- */

static void test_epochs(void **state)
{
    enum { BYTES = 3000, WINDOWS = (BYTES - 1) / TOKENS, PER_STEP = 3 * 5 };
    static uint32_t ids[TOKENS + 1], again[TOKENS + 1];
    static uint8_t marks[TOKENS + 1], seen[WINDOWS], text[BYTES];
    static uint32_t order[4 * WINDOWS];
    (void)state;
    for (size_t i = 0; i < BYTES; i++) /* a window says where it begins: two bytes of its first position */
        text[i] = (uint8_t)(i % TOKENS ? i / TOKENS >> 8 : i / TOKENS);
    put("a", text, BYTES);
    char *path = mem_format("%s/a", place.folder);
    struct data_settings settings = {.paths = path, .order = DATA_EPOCHS, .micro_batches = 3, .sequences = 5};
    struct data *data = opened(&settings);
    for (uint64_t n = 0; n < 4 * WINDOWS; n++) {
        uint64_t step = 1 + n / PER_STEP;
        uint32_t micro_batch = (uint32_t)(n % PER_STEP / 5), sequence = (uint32_t)(n % 5);
        if (n % WINDOWS == 0)
            memset(seen, 0, sizeof seen);
        assert_int_equal(data_train_window(data, 9, step, micro_batch, sequence, TOKENS, ids, marks, NULL), 0);
        order[n] = ids[0] | ids[1] << 8;
        assert_true(order[n] < WINDOWS);
        assert_int_equal(seen[order[n]]++, 0); /* once in an epoch */
        data_train_window(data, 10, step, micro_batch, sequence, TOKENS, again, marks,
                          NULL); /* nothing in between changes it */
        data_train_window(data, 9, step, micro_batch, sequence, TOKENS, again, marks, NULL);
        assert_memory_equal(ids, again, sizeof ids);
    }
    size_t same = 0, in_order = 0;
    for (size_t i = 0; i < WINDOWS; i++) {
        same += order[i] == order[WINDOWS + i];
        in_order += order[i] + 1 == order[i + 1];
    }
    assert_true(same < 12 && in_order < 12); /* chance gives about 1 of 187 */
    data_close(data);
    mem_free(path);
}

/* ---- the same text in three ways ---- */

static int add(const uint32_t *ids, const uint8_t *marks, size_t count, void *arg, struct why *why)
{
    return shards_writer_add(arg, ids, marks, count, why);
}

static void prepare(const char *paths, const char *folder, const struct tokenizer *tokenizer, enum chat_template template)
{
    struct shards_writer *writer;
    struct shards_totals written;
    struct tokenise_totals read;
    struct sources sources;
    struct why why = {0};
    if (shards_writer_open(folder, tokenizer, 4000, &writer, &why))
        fail_msg("%s", why.text);
    struct tokenise order = {.tokenizer = tokenizer, .template = template, .threads = 2, .take_cb = add, .arg = writer};
    if (sources_find(paths, &sources, &why) || tokenise_sources(&order, &sources, &read, &why) ||
        shards_writer_finish(writer, &written, &why))
        fail_msg("%s", why.text);
    assert_int_equal(read.tokens, written.tokens);
    assert_int_equal(read.learned, written.learned);
    assert_int_equal(read.documents, written.documents);
    sources_clear(&sources);
    shards_writer_free(writer);
}

static void test_prepared_is_the_same(void **state)
{
    struct tokenizer *tokenizer = open_kind("qwen2"), *other = open_kind("gpt2");
    char *lines = mem_new(1 << 20), *path = mem_format("%s/a.jsonl", place.folder),
         *folder = mem_format("%s/made", place.folder);
    size_t used = 0;
    (void)state;
    for (int i = 0; i < 3000; i++)
        used += (size_t)snprintf(lines + used, 200, "{\"question\":\"What is %d + %d?\",\"answer\":\"#### %d\"}\n", i, i * 7,
                                 i * 8);
    put("a.jsonl", lines, used);
    prepare(path, folder, tokenizer, CHAT_CHATML);
    struct data_settings settings = {.paths = path, .validation_share = 0.1, .tokenizer = tokenizer, .template = CHAT_CHATML,
                                     .threads = 3, .vocabulary = tokenizer_count(tokenizer)};
    struct data *direct = opened(&settings);
    settings.paths = folder;
    struct data *prepared = opened(&settings);
    assert_true(data_masked(direct) && data_masked(prepared));
    assert_int_equal(data_train_tokens(direct), data_train_tokens(prepared));
    assert_int_equal(data_validation_tokens(direct), data_validation_tokens(prepared));
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t ids[2][TOKENS + 1];
        uint8_t marks[2][TOKENS + 1];
        assert_int_equal(data_train_window(direct, 3, 1, i, 0, TOKENS, ids[0], marks[0], NULL), 0);
        assert_int_equal(data_train_window(prepared, 3, 1, i, 0, TOKENS, ids[1], marks[1], NULL), 0);
        assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
        assert_memory_equal(marks[0], marks[1], sizeof marks[0]);
    }
    data_close(direct);
    data_close(prepared);
    settings.tokenizer = other;
    refused(&settings, "was prepared with another tokenizer");
    settings.tokenizer = NULL;
    refused(&settings, "was prepared with another tokenizer");
    settings.paths = path;
    settings.tokenizer = tokenizer;
    settings.vocabulary = 300;
    refused(&settings, "but the model has 300");
    tokenizer_close(tokenizer);
    tokenizer_close(other);
    mem_free(lines);
    mem_free(path);
    mem_free(folder);
}

static char told[2000];

static void hear(const char *text, void *arg)
{
    (void)arg;
    size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "|%s", text);
}

static void test_refusals(void **state)
{
    char *paths = mem_format("%s/a.jsonl", place.folder), *both = mem_format("%s/*", place.folder);
    struct data_settings settings = {.paths = paths, .tell_cb = hear};
    (void)state;
    static const char lines[] = "{\"text\":\"good\"}\n{bad\n{\"text\":\"good\"}\n";
    put("a.jsonl", lines, strlen(lines));
    refused(&settings, "a.jsonl:2: column");
    settings.skip_bad_lines = true;
    struct data *data = opened(&settings);
    assert_int_equal(data_train_tokens(data), 8);
    assert_non_null(strstr(told, "a.jsonl:2: skipped: column"));
    assert_non_null(strstr(told, "1 bad lines were skipped"));
    data_close(data);
    put("b.bin", "abcd", 4);
    settings.paths = both;
    refused(&settings, "token files and text cannot be mixed");
    put("a.jsonl", "\n", 1);
    settings.paths = paths;
    refused(&settings, "have nothing to learn");
    mem_free(paths);
    mem_free(both);
}

/* Any bytes would do as text. */
static void test_what_is_no_text_is_refused(void **state)
{
    static const char *const files[][2] = {{"m.gguf", "holds weights"}, {"m.safetensors", "holds weights"}, {"t.parquet", "JSON, .jsonl"},
                                           {"t.jsonl.gz", "unpack it first"}, {"t.txt.zst", "unpack it first"}};
    char *all = mem_format("%s/*", place.folder);
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put(files[i][0], "some bytes", 10);
        char *named = mem_text(place_file(&place, files[i][0]));
        refused(&(struct data_settings){.paths = named}, files[i][1]);
        refused(&(struct data_settings){.paths = all}, files[i][1]);
        assert_int_equal(unlink(named), 0);
        mem_free(named);
    }
    mem_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        placed_test(test_epochs), placed_test(test_prepared_is_the_same), placed_test(test_refusals),
        placed_test(test_what_is_no_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
