/* Text windows: pure functions of their numbers, training and validation apart, linked files once, too little refused with
 * numbers. */
#include "gpu/model/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/bug.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/placed.h"

static void write_file(const char *name, const void *text, size_t bytes)
{
    assert_int_equal(file_write(place_file(&place, name), text, bytes, 0600, NULL), 0);
}

/* `words` with @ for the folder. */
static int open_data(const char *words, double share, struct data **data, struct why *why)
{
    char *paths = mem_new(4096), *end = paths;
    for (; *words; words++)
        end +=
            snprintf(end, 4000 - (size_t)(end - paths), *words == '@' ? "%s" : "%.1s", *words == '@' ? place.folder : words);
    *why = (struct why){0};
    struct data_settings settings = {.paths = paths, .validation_share = share};
    int err = data_open(&settings, data, why);
    mem_free(paths);
    return err;
}

/* The windows as ids; everything is learned. */
static void train_window(const struct data *data, uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t sequence,
                         int64_t tokens, uint32_t *ids)
{
    uint8_t *marks = mem_new((size_t)tokens + 1);
    struct why why = {0};
    if (data_train_window(data, seed, step, micro_batch, sequence, tokens, ids, marks, &why))
        fail_msg("%s", why.text);
    for (int64_t i = 0; i <= tokens; i++)
        assert_true(marks[i] & TOKEN_LEARNED);
    mem_free(marks);
}

static void validation_window(const struct data *data, int64_t index, int64_t count, int64_t tokens, uint32_t *ids)
{
    uint8_t *marks = mem_new((size_t)tokens + 1);
    struct why why = {0};
    if (data_validation_window(data, index, count, tokens, ids, marks, &why))
        fail_msg("%s", why.text);
    mem_free(marks);
}

static void files_are_sorted_and_linked_ones_count_once(void **state)
{
    (void)state;
    struct data *data;
    struct why why;
    uint32_t ids[10];
    char *from = mem_format("%s/b", place.folder), *hard = mem_format("%s/c-hard", place.folder);
    write_file("b", "bbb", 3);
    write_file("a", "aaaa", 4);
    write_file("d", "", 0);
    assert_int_equal(symlink("a", place_file(&place, "0-soft")), 0); /* sorts before a: counts under this name */
    assert_int_equal(link(from, hard), 0);
    assert_int_equal(symlink("nowhere", place_file(&place, "dangling")), 0); /* a pattern may match it: it is no file */
    assert_int_equal(mkdir(place_file(&place, "folder"), 0700), 0);
    assert_int_equal(open_data("@/* @/b \t@/a", 0, &data, &why), 0);
    assert_int_equal(data_train_tokens(data), 7);
    assert_int_equal(data_validation_tokens(data), 0);
    train_window(data, 1, 1, 0, 0, 6, ids);
    const char *text = "aaaabbb";
    for (int i = 0; i < 7; i++)
        assert_int_equal(ids[i], text[i]);
    data_close(data);
    mem_free(from);
    mem_free(hard);
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    struct data *data = NULL;
    struct why why;
    write_file("a", "text", 4);
    write_file("empty", "", 0);
    assert_int_equal(mkdir(place_file(&place, "folder"), 0700), 0);
    assert_int_equal(symlink("nowhere", place_file(&place, "dangling")), 0);
    const struct {
        const char *words, *reason;
        int err;
    } cases[] = {
        {"", "names no file", ERR_ABSENT},           {"  \t ", "names no file", ERR_ABSENT},
        {"@/none", "none matches no file", ERR_ABSENT}, {"@/a @/*.txt", "*.txt matches no file", ERR_ABSENT},
        {"@/folder", "folder/*", ERR_INVALID},       {"@/fold*", "names no file", ERR_ABSENT},
        {"@/empty", "is empty", ERR_INVALID},        {"@/dangling", "dangling", ERR_ABSENT},
        {"@/dang*", "names no file", ERR_ABSENT},
        {"/dev/null", "not a file", ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(open_data(cases[i].words, 0.1, &data, &why), cases[i].err);
        if (!strstr(why.text, cases[i].reason) || !strstr(why.text, "data.path"))
            fail_msg("case %zu: '%s' does not say '%s'", i, why.text, cases[i].reason);
    }
    const double shares[] = {-0.1, 1, 2, 0.0 / 0.0};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        assert_int_equal(open_data("@/a", shares[i], &data, &why), ERR_INVALID);
    assert_null(data);
}

static void the_cut_is_moved_to_the_end_of_a_near_file(void **state)
{
    (void)state;
    struct data *data;
    struct why why;
    char *text = mem_new(1000);
    write_file("1", text, 600);
    write_file("2", text, 270);
    write_file("3", text, 130);
    assert_int_equal(open_data("@/*", 0.1, &data, &why), 0); /* wanted at 900, a file ends at 870: within 50 */
    assert_int_equal(data_train_tokens(data), 870);
    assert_int_equal(data_validation_tokens(data), 130);
    data_close(data);
    assert_int_equal(open_data("@/*", 0.05, &data, &why), 0); /* wanted at 950, nothing within 25 */
    assert_int_equal(data_train_tokens(data), 950);
    data_close(data);
    assert_int_equal(open_data("@/1", 0.25, &data, &why), 0); /* one file: never all of it on one side */
    assert_int_equal(data_train_tokens(data), 450);
    data_close(data);
    mem_free(text);
}

/* Every byte of the text is its own position (16 bits in two bytes), so that a window tells where it came from. */
static struct data *numbered(size_t bytes, double share)
{
    struct data *data;
    struct why why;
    uint8_t *text = mem_new(bytes);
    for (size_t i = 0; i < bytes; i++)
        text[i] = (uint8_t)(i / 2 >> (i % 2 ? 0 : 8));
    write_file("numbered", text, bytes);
    assert_int_equal(open_data("@/numbered", share, &data, &why), 0);
    mem_free(text);
    return data;
}

/* First position of a window of the numbered text; also checks that it is one piece. */
static uint32_t where(const uint32_t *ids, int64_t tokens, uint32_t length)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t first = 0; first + (uint32_t)tokens + 1 <= length && found == UINT32_MAX; first++) {
        int64_t i = 0;
        while (i <= tokens && ids[i] == (((first + (uint32_t)i) / 2 >> ((first + (uint32_t)i) % 2 ? 0 : 8)) & 0xff))
            i++;
        if (i > tokens)
            found = first;
    }
    assert_int_not_equal(found, UINT32_MAX);
    return found;
}

static void windows_are_pure_and_sides_are_apart(void **state)
{
    (void)state;
    enum { LENGTH = 3000, TOKENS = 20, WINDOWS = 50 };
    struct data *data = numbered(LENGTH, 0.2);
    uint32_t one[TOKENS + 1], other[TOKENS + 1], starts[4] = {0};
    uint32_t split = (uint32_t)data_train_tokens(data);
    assert_int_equal(split, 2400);
    for (uint32_t step = 1; step < 40; step++)
        for (uint32_t i = 0; i < 9; i++) {
            train_window(data, 7, step, i / 3, i % 3, TOKENS, one);
            validation_window(data, i, 9, TOKENS, other); /* nothing in between changes it */
            train_window(data, 7, step, i / 3, i % 3, TOKENS, other);
            assert_memory_equal(one, other, sizeof one);
            uint32_t at = where(one, TOKENS, LENGTH);
            assert_true(at + TOKENS < split);
            starts[at * 4 / split]++;
        }
    for (int i = 0; i < 4; i++) /* 351 windows, about as many in each quarter */
        assert_true(starts[i] > 55 && starts[i] < 125);
    for (int64_t i = 0; i < WINDOWS; i++) {
        validation_window(data, i, WINDOWS, TOKENS, one);
        assert_int_equal(where(one, TOKENS, LENGTH), split + (LENGTH - split - TOKENS - 1) * (uint32_t)i / (WINDOWS - 1));
    }
    validation_window(data, 0, 1, TOKENS, one);
    assert_int_equal(where(one, TOKENS, LENGTH), split);
    data_close(data);
}

static void every_number_of_a_window_counts(void **state)
{
    (void)state;
    enum { TOKENS = 20 };
    struct data *data = numbered(60000, 0.1);
    uint32_t base[TOKENS + 1], other[TOKENS + 1];
    const struct {
        uint64_t seed, step;
        uint32_t micro_batch, sequence;
    } uses[] = {{2, 1, 0, 0}, {1 + (UINT64_C(1) << 40), 1, 0, 0},
                {1, 2, 0, 0}, {1, 1 + (UINT64_C(1) << 40), 0, 0},
                {1, 1, 1, 0}, {1, 1, 0, 1}};
    train_window(data, 1, 1, 0, 0, TOKENS, base);
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        train_window(data, uses[i].seed, uses[i].step, uses[i].micro_batch, uses[i].sequence, TOKENS, other);
        assert_memory_not_equal(base, other, sizeof base);
    }
    data_close(data);
}

static void take_too_long_a_window(void *arg)
{
    uint32_t *ids = mem_array(1000, sizeof *ids);
    train_window(arg, 1, 1, 0, 0, 90, ids);
    mem_free(ids);
}

static void too_little_text_is_refused_with_numbers(void **state)
{
    (void)state;
    struct data *data = numbered(100, 0.1);
    struct why why = {0};
    assert_int_equal(data_check(data, 9, 4, &why), 0);
    assert_int_equal(data_check(data, 10, 4, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "validation: 10 tokens of 100, a window needs 11"));
    assert_int_equal(data_check(data, 89, 0, NULL), 0);
    why.err = 0;
    assert_int_equal(data_check(data, 90, 0, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "training: 90 tokens of 100, a window needs 91"));
    const char *text = bug_text(take_too_long_a_window, data);
    assert_non_null(text);
    data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        placed_test(files_are_sorted_and_linked_ones_count_once), placed_test(what_cannot_be_read_is_named),
        placed_test(the_cut_is_moved_to_the_end_of_a_near_file), placed_test(windows_are_pure_and_sides_are_apart),
        placed_test(every_number_of_a_window_counts), placed_test(too_little_text_is_refused_with_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
