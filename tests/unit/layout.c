/* Where things stand: parts never overlap nor leave the screen, columns fit or go, the selected row is in sight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "console/layout.h"
#include "tests/helpers/dice.h"

static void parts_fill_the_screen(void **unused)
{
    (void)unused;
    for (int rows = 1; rows <= 100; rows++)
        for (int columns = 1; columns <= 300; columns += 7) {
            struct layout layout = layout_screen(rows, columns);
            assert_int_equal(layout.too_small, rows < 16 || columns < 60);
            if (layout.too_small)
                continue;
            assert_int_equal(layout.tabs.row, layout.title.row + layout.title.rows);
            assert_int_equal(layout.body.row, layout.tabs.row + layout.tabs.rows);
            assert_int_equal(layout.wait.row, layout.body.row + layout.body.rows);
            assert_int_equal(layout.hints.row, layout.wait.row + layout.wait.rows);
            assert_int_equal(layout.hints.row + layout.hints.rows, rows);
            assert_true(layout.body.rows >= 12);
        }
}

static void the_run_view_fits(void **unused)
{
    (void)unused;
    for (int rows = 12; rows <= 97; rows++)
        for (int columns = 60; columns <= 300; columns += 5)
            for (int stages = 0; stages <= 64; stages += 1 + stages / 2)
                for (int replicas = 0; replicas <= 64; replicas += 1 + replicas / 2) {
                    struct layout_run run = layout_run((struct area){2, 0, rows, columns}, stages, replicas);
                    assert_int_equal(run.numbers.rows + run.topology.rows + run.plot.rows, rows);
                    assert_true(run.plot.rows >= 5);
                    assert_true(run.stages >= 1 && run.replicas >= 1);
                    assert_true(run.tile_columns >= 27);
                    assert_true(run.stages * run.tile_columns - 13 <= columns);
                }
}

static void columns_fit_or_go(void **unused)
{
    struct dice dice = {5};
    (void)unused;
    for (int i = 0; i < 5000; i++) {
        struct layout_column columns[12];
        int widths[12], width = 1 + (int)dice_below(&dice, 150), total = 0, shown = 0;
        size_t count = 1 + dice_below(&dice, 12);
        for (size_t j = 0; j < count; j++) {
            int wanted = 1 + (int)dice_below(&dice, 30);
            columns[j] = (struct layout_column){wanted, 1 + (int)dice_below(&dice, (uint64_t)wanted), (int)dice_below(&dice, 5)};
        }
        layout_columns(columns, count, width, widths);
        int least = 0;
        for (size_t j = 0; j < count; j++) {
            assert_true(widths[j] == 0 || (widths[j] >= columns[j].least && widths[j] <= columns[j].wanted));
            if (columns[j].importance == 0) {
                assert_true(widths[j] > 0);
                least += columns[j].least + (least ? 2 : 0);
            }
            total += widths[j] ? widths[j] + (shown++ ? 2 : 0) : 0;
        }
        assert_true(total <= width || least > width || total <= least + 2);
    }
}

static void the_selected_row_is_in_sight(void **unused)
{
    (void)unused;
    assert_int_equal(layout_scroll(0, 5, 100, 10), 0);
    assert_int_equal(layout_scroll(0, 10, 100, 10), 1);
    assert_int_equal(layout_scroll(50, 10, 100, 10), 10);
    assert_int_equal(layout_scroll(95, 99, 100, 10), 90);
    assert_int_equal(layout_scroll(7, 0, 3, 10), 0);
    assert_int_equal(layout_scroll(7, 0, 0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_fill_the_screen), cmocka_unit_test(the_run_view_fits), cmocka_unit_test(columns_fit_or_go),
        cmocka_unit_test(the_selected_row_is_in_sight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
