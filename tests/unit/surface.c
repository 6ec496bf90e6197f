/* Cells in memory: nothing is written outside, hostile bytes are text, wide characters are whole, everything has an ASCII twin. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "console/surface.h"
#include "tests/helpers/dice.h"

static char *text_of(const struct surface *surface)
{
    static char text[4000];
    FILE *out = fmemopen(text, sizeof text, "w");
    surface_write(surface, out);
    fclose(out);
    return text;
}

static void text_is_cut_and_aligned(void **unused)
{
    struct surface surface;
    (void)unused;
    surface_init(&surface, 3, 10, false);
    assert_int_equal(surface_text(&surface, 0, 0, 10, INK_PLAIN, "abc"), 3);
    assert_int_equal(surface_text(&surface, 1, 0, 5, INK_PLAIN, "abcdefgh"), 5);
    surface_right(&surface, 2, 0, 10, INK_PLAIN, "42");
    assert_string_equal(text_of(&surface), "abc\nabcd…\n        42\n");
    surface_wipe(&surface);
    assert_int_equal(surface_wrap(&surface, (struct area){0, 0, 3, 10}, INK_PLAIN, "one two three four five six"), 3);
    assert_string_equal(text_of(&surface), "one two\nthree four\nfive six\n");
    surface_wipe(&surface);
    assert_int_equal(surface_wrap(&surface, (struct area){0, 0, 2, 10}, INK_PLAIN, "one two three four five six"), 2);
    assert_string_equal(text_of(&surface), "one two\nthree fou…\n\n");
    surface_clear(&surface);
}

static void nothing_is_written_outside(void **unused)
{
    struct dice dice = {1};
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        struct surface surface;
        int rows = 1 + (int)dice_below(&dice, 8), columns = 1 + (int)dice_below(&dice, 12);
        surface_init(&surface, rows, columns, dice_below(&dice, 2));
        int row = (int)dice_below(&dice, 30) - 10, column = (int)dice_below(&dice, 30) - 10, width = (int)dice_below(&dice, 40) - 10;
        struct area area = {row, column, (int)dice_below(&dice, 20) - 5, width};
        surface_put(&surface, row, column, (uint32_t)dice_below(&dice, 0x20000), INK_PLAIN);
        surface_text(&surface, row, column, width, INK_BAD, "漢字 and ▶ more");
        surface_bar(&surface, row, column, width, INK_GOOD, (double)dice_below(&dice, 4) - 1);
        surface_box(&surface, area, "title", INK_FRAME);
        surface_fill(&surface, area, 0x2588, INK_DIM);
        surface_wrap(&surface, area, INK_PLAIN, "some words that go on");
        surface_focus(&surface, row, column, width);
        for (int cell = 0; cell < rows * columns; cell++) { /* a half of a wide character never stands alone */
            bool first = cell % columns == 0;
            if (surface.cells[cell].code == 0)
                assert_false(first);
        }
        surface_clear(&surface); /* the sanitizer watches what is around it */
    }
}

static void hostile_bytes_are_text(void **unused)
{
    struct surface surface;
    (void)unused;
    surface_init(&surface, 1, 30, false);
    surface_text(&surface, 0, 0, 30, INK_PLAIN, "a\033[2Jb\xff\xfe\nc\x9b\x01\xe2\x80\xae");
    const char *text = text_of(&surface);
    for (const char *c = text; c[1]; c++)
        assert_true((unsigned char)*c >= ' ' && (unsigned char)*c < 127);
    assert_non_null(strstr(text, "a?[2Jb"));
    surface_clear(&surface);
}

static void wide_characters_are_whole(void **unused)
{
    struct surface surface;
    (void)unused;
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        skip();
    surface_init(&surface, 1, 6, false);
    assert_int_equal(surface_text(&surface, 0, 0, 6, INK_PLAIN, "漢字x"), 5);
    assert_string_equal(text_of(&surface), "漢字x\n");
    surface_put(&surface, 0, 1, 'y', INK_PLAIN); /* the left half goes too */
    assert_string_equal(text_of(&surface), " y字x\n");
    surface_wipe(&surface);
    assert_int_equal(surface_text(&surface, 0, 0, 4, INK_PLAIN, "漢字漢"), 3);
    assert_string_equal(text_of(&surface), "漢…\n");
    surface_wipe(&surface);
    assert_int_equal(surface_text(&surface, 0, 0, 6, INK_PLAIN, "☔☃▶x"), 5); /* as wide as the terminal takes them to be */
    assert_string_equal(text_of(&surface), "☔☃▶x\n");
    surface_clear(&surface);
}

static void everything_has_an_ascii_twin(void **unused)
{
    struct surface surface;
    (void)unused;
    surface_init(&surface, 4, 40, true);
    surface_box(&surface, (struct area){0, 0, 3, 20}, "box", INK_FRAME);
    surface_bar(&surface, 1, 1, 10, INK_GOOD, 0.5);
    surface_text(&surface, 3, 0, 40, INK_PLAIN, "▶ ◀ ● ○ ✓ ✗ → … – ┆ ▁▅█ é");
    assert_string_equal(text_of(&surface), "+ box -------------+\n|#####.....        |\n+------------------+\n"
                                           "> < * o v X > ~ - | _=# ?\n");
    surface_clear(&surface);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_cut_and_aligned),   cmocka_unit_test(nothing_is_written_outside),
        cmocka_unit_test(hostile_bytes_are_text),    cmocka_unit_test(wide_characters_are_whole),
        cmocka_unit_test(everything_has_an_ascii_twin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
