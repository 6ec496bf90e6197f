/* Files of token ids of each kind, damaged ones, and folders of prepared data: written whole or not at all, read back bit
 * for bit. */
#include "gpu/model/token_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/model/data.h"
#include "gpu/model/shards.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/placed.h"

static void put(const char *name, const void *bytes, size_t count)
{
    assert_int_equal(file_write(place_file(&place, name), bytes, count, 0600, NULL), 0);
}

static void number(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static struct token_file *opened(const char *name)
{
    struct token_file *file = NULL;
    struct why why = {0};
    if (token_file_open(place_file(&place, name), &file, &why))
        fail_msg("%s", why.text);
    return file;
}

static void refused(const char *name, const char *words)
{
    struct token_file *file = NULL;
    struct why why = {0};
    assert_int_equal(token_file_open(place_file(&place, name), &file, &why), ERR_INVALID);
    if (!strstr(why.text, words) || !strstr(why.text, name))
        fail_msg("'%s' does not say '%s'", why.text, words);
}

static void test_nanogpt_and_llmc(void **state)
{
    static const struct {
        uint64_t magic, version;
        int header, width;
    } kinds[] = {{0, 0, 0, 2}, {20240520, 1, 1024, 2}, {20240801, 7, 1024, 4}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint8_t bytes[1024 + 4 * 2000] = {0}, marks[2000];
        uint32_t ids[2000];
        size_t count = 2000, size = (size_t)kinds[k].header + count * (size_t)kinds[k].width;
        struct why why = {0};
        number(bytes, kinds[k].magic, 4);
        number(bytes + 4, kinds[k].version, 4);
        number(bytes + 8, count, 4);
        for (size_t i = 0; i < count; i++)
            number(bytes + kinds[k].header + i * (size_t)kinds[k].width, i * 31, kinds[k].width);
        put("t.bin", bytes, size);
        struct token_file *file = opened("t.bin");
        assert_int_equal(token_file_count(file), count);
        assert_int_equal(token_file_documents(file), 0);
        assert_false(token_file_masked(file));
        assert_int_equal(token_file_read(file, 500, 1500, 62000, ids, marks, &why), 0);
        for (size_t i = 0; i < 1500; i++) {
            assert_int_equal(ids[i], (500 + i) * 31);
            assert_int_equal(marks[i], TOKEN_LEARNED);
        }
        assert_int_equal(token_file_read(file, 0, 2000, 61969, ids, marks, &why), ERR_INVALID);
        assert_non_null(strstr(why.text, "token 1999 is 61969; the model has 61969 tokens"));
        assert_int_equal(truncate(place_file(&place, "t.bin"), (off_t)size - 2), 0);
        why = (struct why){0};
        assert_int_equal(token_file_read(file, 0, 2000, 65536, ids, marks, &why), ERR_INVALID);
        assert_non_null(strstr(why.text, "was it changed"));
        token_file_close(file);
        if (kinds[k].header) {
            refused("t.bin", "not as llm.c writes it");
            number(bytes + 4, 3, 4);
            put("t.bin", bytes, size);
            refused("t.bin", "version 3, 2000 tokens said");
        }
    }
    put("odd.bin", "abc", 3);
    refused("odd.bin", "an odd number of bytes");
}

/* ---- shards ---- */

#define TOKENS 50000

static uint32_t all_ids[TOKENS];
static uint8_t all_marks[TOKENS];

static void make_tokens(uint64_t seed, bool masked)
{
    struct dice dice = {seed};
    for (size_t i = 0; i < TOKENS; i++) {
        all_ids[i] = (uint32_t)dice_below(&dice, 256);
        all_marks[i] = (masked && dice_below(&dice, 3) == 0 ? 0 : TOKEN_LEARNED) |
                       (i == 0 || dice_below(&dice, 200) == 0 ? TOKEN_BEGINS : 0);
    }
}

static void write_shards(const char *folder, uint64_t tokens_each, struct shards_totals *totals)
{
    struct tokenizer *tokenizer = tokenizer_new_bytes();
    struct shards_writer *writer;
    struct why why = {0};
    if (shards_writer_open(folder, tokenizer, tokens_each, &writer, &why))
        fail_msg("%s", why.text);
    for (size_t at = 0; at < TOKENS; at += 7001) {
        size_t count = TOKENS - at < 7001 ? TOKENS - at : 7001;
        if (shards_writer_add(writer, all_ids + at, all_marks + at, count, &why))
            fail_msg("%s", why.text);
    }
    if (shards_writer_finish(writer, totals, &why))
        fail_msg("%s", why.text);
    shards_writer_free(writer);
    tokenizer_close(tokenizer);
}

static void test_shards_come_back(void **state)
{
    (void)state;
    for (int masked = 0; masked < 2; masked++) {
        struct shards_totals totals;
        struct data *data;
        struct why why = {0};
        char *folder = mem_format("%s/made/%d", place.folder, masked);
        make_tokens(4, masked);
        write_shards(folder, 9000, &totals);
        assert_int_equal(totals.tokens, TOKENS);
        assert_true(totals.files >= 5 && totals.files <= 6);
        assert_int_equal(totals.learned == TOKENS, !masked);
        struct data_settings settings = {.paths = folder, .validation_share = 0.1};
        if (data_open(&settings, &data, &why))
            fail_msg("%s", why.text);
        assert_int_equal(data_train_tokens(data) + data_validation_tokens(data), TOKENS);
        assert_int_equal(data_masked(data), masked);
        assert_true(all_marks[data_train_tokens(data)] & TOKEN_BEGINS); /* the cut is where a document begins */
        static uint32_t ids[2001];
        static uint8_t marks[2001];
        uint64_t split = data_train_tokens(data), last = TOKENS - split - 2001;
        for (int64_t i = 0; i < 40; i++) {
            uint64_t start = split + last * (uint64_t)i / 39;
            assert_int_equal(data_validation_window(data, i, 40, 2000, ids, marks, &why), 0);
            assert_memory_equal(ids, all_ids + start, sizeof ids);
            for (size_t k = 0; k < 2001; k++)
                if (marks[k] != all_marks[start + k] &&
                    !(k && marks[k] == (all_marks[start + k] | TOKEN_BEGINS))) /* a file begins */
                    fail_msg("mark %zu is %d instead of %d", k, marks[k], all_marks[start + k]);
        }
        data_close(data);
        assert_true(shards_here(folder));
        struct shards_writer *writer;
        struct tokenizer *tokenizer = tokenizer_new_bytes();
        assert_int_equal(shards_writer_open(folder, tokenizer, 10, &writer, &why), ERR_REFUSED);
        assert_non_null(strstr(why.text, "has prepared data"));
        tokenizer_close(tokenizer);
        mem_free(folder);
    }
}

/* Without a list there is nothing: what was begun is taken away. */
static void test_unfinished_leaves_nothing(void **state)
{
    struct tokenizer *tokenizer = tokenizer_new_bytes();
    struct shards_writer *writer;
    (void)state;
    make_tokens(5, true);
    assert_int_equal(shards_writer_open(place.folder, tokenizer, 9000, &writer, NULL), 0);
    assert_int_equal(shards_writer_add(writer, all_ids, all_marks, TOKENS, NULL), 0);
    assert_true(place_count(&place) > 4);
    assert_false(shards_here(place.folder));
    shards_writer_free(writer);
    assert_int_equal(place_count(&place), 0);
    assert_int_equal(shards_writer_open(place.folder, tokenizer, 9000, &writer, NULL), 0);
    struct shards_totals totals;
    struct why why = {0};
    assert_int_equal(shards_writer_finish(writer, &totals, &why), ERR_INVALID);
    shards_writer_free(writer);
    tokenizer_close(tokenizer);
}

static void test_damage_is_found(void **state)
{
    struct shards_totals totals;
    uint8_t *bytes;
    size_t count;
    char *folder = mem_format("%s/made", place.folder), *path;
    (void)state;
    make_tokens(6, true);
    write_shards(folder, TOKENS, &totals);
    path = mem_format("%s/tokens-00000.bin", folder);
    assert_int_equal(file_read(path, (size_t)1 << 30, &bytes, &count, NULL), 0);
    struct dice dice = {7};
    for (int i = 0; i < 60; i++) {
        size_t at = i < 30 ? (size_t)dice_below(&dice, TOKEN_FILE_HEADER) : (size_t)dice_below(&dice, count);
        if ((at >= 32 && at < 52) || (at >= 8 && at < 12 && bytes[at] == 0)) /* says something else, but is not damage */
            continue;
        bytes[at] ^= 0x41;
        put("t.bin", bytes, count);
        struct token_file *file = NULL;
        int err = token_file_open(place_file(&place, "t.bin"), &file, NULL);
        if (err == 0 && at >= 8) /* without the magic it is a file of 16-bit ids */
            fail_msg("byte %zu was changed and nobody noticed", at);
        token_file_close(file);
        bytes[at] ^= 0x41;
    }
    put("t.bin", bytes, count - 8);
    refused("t.bin", "damaged");
    put("t.bin", bytes, 30);
    struct token_file *file = opened("t.bin"); /* too short for a header: ids */
    token_file_close(file);
    mem_free(bytes);
    mem_free(path);
    mem_free(folder);
}

static void test_lists(void **state)
{
    static const char *const cases[][2] = {
        {"{", "tokens.json:1"},
        {"[]", "not a list of prepared data"},
        {"{\"format\":\"kedge tokens 2\",\"files\":[]}", "not a list of prepared data"},
        {"{\"format\":\"kedge tokens 1\"}", "not a list of prepared data"},
        {"{\"format\":\"kedge tokens 1\",\"files\":[]}", "there is no token"},
        {"{\"format\":\"kedge tokens 1\",\"files\":[{\"name\":\"../x\"}]}", "file number 1 is not in this folder"},
        {"{\"format\":\"kedge tokens 1\",\"files\":[{}]}", "file number 1 is not in this folder"},
        {"{\"format\":\"kedge tokens 1\",\"files\":[{\"name\":\"missing.bin\"}]}", "missing.bin"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct data_settings settings = {.paths = place.folder};
        struct data *data = NULL;
        struct why why = {0};
        put(SHARDS_LIST, cases[i][0], strlen(cases[i][0]));
        assert_true(data_open(&settings, &data, &why) < 0);
        if (!strstr(why.text, cases[i][1]))
            fail_msg("'%s' does not say '%s'", why.text, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        placed_test(test_nanogpt_and_llmc), placed_test(test_shards_come_back), placed_test(test_unfinished_leaves_nothing),
        placed_test(test_damage_is_found), placed_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
