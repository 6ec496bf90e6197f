/* Values as people read them, and tables that fit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "console/table.h"
#include "console/words.h"
#include "ssh/base/mem.h"

static const struct style plain = {.plain = true}, ascii = {.plain = true, .ascii = true};

static void unknown_is_not_zero(void **unused)
{
    char out[WORDS];
    (void)unused;
    assert_string_equal(words_real(&plain, NAN, 3, out, sizeof out), "–");
    assert_string_equal(words_real(&ascii, NAN, 3, out, sizeof out), "-");
    assert_string_equal(words_count(&plain, NAN, out, sizeof out), "–");
    assert_string_equal(words_rate(&plain, NAN, out, sizeof out), "–");
    assert_string_equal(words_bytes(&plain, 0, out, sizeof out), "–");
    assert_string_equal(words_percent(&plain, NAN, out, sizeof out), "–");
    assert_string_equal(words_duration(&plain, NAN, out, sizeof out), "–");
    assert_string_equal(words_duration(&plain, -1, out, sizeof out), "–");
    assert_string_equal(words_duration(&plain, INFINITY, out, sizeof out), "–");
    assert_string_equal(words_age(&plain, UINT64_MAX, out, sizeof out), "–");
    assert_string_equal(words_rate_pair(&plain, NAN, NAN, out, sizeof out), "↓– ↑– B/s");
    /* An infinite loss is news, not unknown. */
    assert_string_equal(words_real(&plain, INFINITY, 3, out, sizeof out), "inf");
}

static void numbers_are_short(void **unused)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0"}, {7, "7"}, {999, "999"}, {999.6, "1.00k"}, {1234, "1.23k"}, {12345, "12.3k"}, {123456, "123k"}, {999600,
                                                                                                                  "1.00M"},
        {4.5e9, "4.50G"}, {1e15, "1000T"}, {-1500, "-1.50k"},
    };
    char out[WORDS];
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(words_count(&plain, rows[i].value, out, sizeof out), rows[i].text);
    assert_string_equal(words_duration(&plain, 0, out, sizeof out), "0 s");
    assert_string_equal(words_duration(&plain, 35.8, out, sizeof out), "35 s");
    assert_string_equal(words_age(&plain, 81000, out, sizeof out), "0.0 s");
    assert_string_equal(words_percent(&plain, 0.0504, out, sizeof out), "5.0 %");
    assert_string_equal(words_percent(&plain, 0.31, out, sizeof out), "31 %");
    assert_string_equal(words_rate_pair(&plain, 1234567, 890000, out, sizeof out), "↓1.2 ↑0.9 MB/s");
    assert_string_equal(words_rate_pair(&ascii, 500, NAN, out, sizeof out), "down 500 up - B/s");
}

static void cuts_count_cells_not_bytes(void **unused)
{
    char out[WORDS];
    (void)unused;
    assert_int_equal(words_width("r0s0→r0s1"), 9);
    assert_string_equal(words_cut(&plain, "r0s0→r0s1", 9, out, sizeof out), "r0s0→r0s1");
    assert_string_equal(words_cut(&plain, "r0s0→r0s1", 6, out, sizeof out), "r0s0→…");
    assert_string_equal(words_cut(&ascii, "abcdef", 3, out, sizeof out), "ab~");
    assert_string_equal(words_cut(&plain, "abcdef", 0, out, sizeof out), "");
}

static size_t widest_line(const char *text)
{
    size_t widest = 0;
    char *copy = mem_text(text), *rest = copy;
    for (char *line; (line = strsep(&rest, "\n"));)
        widest = words_width(line) > widest ? words_width(line) : widest;
    mem_free(copy);
    return widest;
}

static char *print_table(const struct style *style, const char *name)
{
    static const struct table_column columns[] = {
        {.title = "name", .shrink = true}, {.title = "number", .right = true}, {.title = "reason", .shrink = true}};
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct table *table = table_new(style, columns, 3);
    table_row(table, PAINT_NONE);
    table_cell(table, "%s", name);
    table_cell(table, "%d", 42);
    table_cell(table, "%s", "because it is so, and because nobody said otherwise for a long time");
    table_row(table, PAINT_BAD);
    table_cell(table, "%s", "x");
    table_print(table, out);
    table_free(table);
    fclose(out);
    return text;
}

static void tables_fit(void **unused)
{
    (void)unused;
    char *text = print_table(&plain, "a");
    assert_string_equal(text, "name  number  reason\n"
                              "a         42  because it is so, and because nobody said otherwise for a long time\n"
                              "x\n");
    free(text);
    for (int columns = 24; columns <= 200; columns++) {
        struct style narrow = {.plain = true, .columns = columns};
        text = print_table(&narrow, "a name that is rather long, too – and not ASCII");
        assert_true(widest_line(text) <= (size_t)columns);
        free(text);
    }
}

static void pieces_wrap(void **unused)
{
    char pieces_text[3][24] = {"step 1/2", "loss 3.2", "r0s0-r0s1 ↓1.2"}, *text;
    char *const pieces[] = {pieces_text[0], pieces_text[1], pieces_text[2]};
    size_t size;
    (void)unused;
    FILE *out = open_memstream(&text, &size);
    table_print_pieces(pieces, 3, 0, out);
    table_print_pieces(pieces, 3, 20, out);
    fclose(out);
    assert_string_equal(text, "step 1/2  loss 3.2  r0s0-r0s1 ↓1.2\n"
                              "step 1/2  loss 3.2\n    r0s0-r0s1 ↓1.2\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_is_not_zero), cmocka_unit_test(numbers_are_short),
            cmocka_unit_test(cuts_count_cells_not_bytes),
        cmocka_unit_test(tables_fit), cmocka_unit_test(pieces_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
