/* Every view at every size from 1 × 1 to 300 × 100, with no, one, eight, 64 and a thousand processes: nothing crashes, nothing is
 * written outside (the sanitizers watch), the same state gives the same picture. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "console/view.h"
#include "ssh/base/mem.h"
#include "tests/helpers/fleet.h"

static const int columns_of_sweep[] = {1, 2, 3, 7, 20, 40, 59, 60, 61, 79, 80, 81, 100, 119, 120, 121, 160, 200, 237, 299, 300};
static const int rows_of_sweep[] = {1, 2, 3, 5, 8, 12, 15, 16, 17, 23, 24, 25, 29, 30, 31, 36, 40, 50, 77, 99, 100};
#define COLUMNS (sizeof columns_of_sweep / sizeof *columns_of_sweep)
#define ROWS (sizeof rows_of_sweep / sizeof *rows_of_sweep)

static void draw_all(struct view *view, int rows, int columns)
{
    for (int panel = 0; panel < PANEL_COUNT; panel++) {
        struct surface surface;
        view->panel = (enum panel)panel;
        surface_init(&surface, rows, columns, (rows + columns) % 2);
        view_draw(view, &surface, FLEET_NOW, FLEET_WALL);
        surface_clear(&surface);
    }
}

/* What lies over a panel. */
static void draw_over(struct view *view, int rows, int columns)
{
    static const char *const keys[] = {"?", "S", "K s e", ": l i n", "2 / r 0", "5 +"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        view->panel = PANEL_RUN;
        fleet_press(view, keys[i]);
        mem_free(fleet_text(view, rows, columns, false));
        fleet_press(view, "Esc Esc");
    }
}

static void sweep(int processes, int stages)
{
    struct view view;
    fleet_view(&view, processes, stages, processes > 64 ? 2 : 20);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < COLUMNS; j++) {
            if (processes > 64 && (i + j) % 7 != 0)
                continue; /* a thousand processes are slow under sanitizers: a spread of sizes */
            draw_all(&view, rows_of_sweep[i], columns_of_sweep[j]);
            if ((i + j) % 4 == 0)
                draw_over(&view, rows_of_sweep[i], columns_of_sweep[j]);
        }
    view.frozen = true;
    draw_all(&view, 24, 80);
    view_clear(&view);
}

static void nobody(void **unused)
{
    (void)unused;
    sweep(0, 1);
}

static void one(void **unused)
{
    (void)unused;
    sweep(1, 1);
}

static void eight(void **unused)
{
    (void)unused;
    sweep(8, 4);
}

static void sixty_four(void **unused)
{
    (void)unused;
    sweep(64, 8);
    sweep(64, 64);
}

static void a_thousand(void **unused)
{
    (void)unused;
    sweep(1000, 10);
}

/* Each of the 30,000 sizes once, the views by turns. */
static void sweep_all(int processes, int stages, int turn)
{
    struct view view;
    fleet_view(&view, processes, stages, processes > 64 ? 2 : 20);
    for (int rows = 1; rows <= 100; rows++)
        for (int columns = 1; columns <= 300; columns++) {
            struct surface surface;
            view.panel = (enum panel)((rows + columns + turn) % PANEL_COUNT);
            surface_init(&surface, rows, columns, columns % 3 == 0);
            view_draw(&view, &surface, FLEET_NOW, FLEET_WALL);
            surface_clear(&surface);
        }
    view_clear(&view);
}

/* With eight processes; with SWEEP=NUMBER in the environment with that many, and every view at every size: 240,000 pictures, which takes
 * minutes under sanitizers. */
static void every_size(void **unused)
{
    const char *sweep = getenv("SWEEP");
    int processes = sweep ? (int)strtol(sweep, NULL, 10) : 8, stages = processes <= 1 ? 1 : processes == 8 ? 4 : processes == 64 ? 8 : 10;
    (void)unused;
    for (int turn = 0; turn < (sweep ? PANEL_COUNT : 1); turn++)
        sweep_all(processes, stages, turn);
}

static void the_same_state_gives_the_same_picture(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 8, 4, 20);
    for (int panel = 0; panel < PANEL_COUNT; panel++) {
        view.panel = (enum panel)panel;
        mem_free(fleet_text(&view, 24, 80, false)); /* scrolls, chooses */
        char *first = fleet_text(&view, 24, 80, false), *second = fleet_text(&view, 24, 80, false);
        assert_string_equal(first, second);
        mem_free(first);
        mem_free(second);
    }
    view_clear(&view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody), cmocka_unit_test(one), cmocka_unit_test(eight), cmocka_unit_test(sixty_four),
        cmocka_unit_test(a_thousand), cmocka_unit_test(every_size), cmocka_unit_test(the_same_state_gives_the_same_picture),
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
