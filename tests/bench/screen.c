/*
 * The screen's own time: rows of a second taken in, a key until its picture is drawn (in memory, without the terminal), and the share of a
 * core that ten drawings a second take. With 20 and with 1,000 processes, 80 × 24 and 200 × 50. A line is: name value unit (what it is).
 */
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "console/view.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/fleet.h"

#define SECONDS 20

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

/* A key on each panel: the longest and the mean time until the picture is there. */
static void keys(struct view *view, struct surface *surface, int processes, const char *what)
{
    static const uint32_t presses[] = {PRESS_DOWN, 's', PRESS_PAGE_DOWN, PRESS_UP, PRESS_END, PRESS_HOME};
    uint64_t longest = 0, total = 0, count = 0;
    for (int panel = PANEL_RUN; panel < PANEL_COUNT; panel++) {
        if (panel == PANEL_ANCHOR || panel == PANEL_PROFILES)
            continue;
        view->panel = (enum panel)panel;
        for (size_t i = 0; i < sizeof presses / sizeof *presses; i++) {
            uint64_t begin = clock_now_ns();
            view_press(view, presses[i], FLEET_NOW);
            view_draw(view, surface, FLEET_NOW, FLEET_WALL);
            uint64_t took = clock_now_ns() - begin;
            longest = took > longest ? took : longest;
            total += took;
            count++;
        }
    }
    printf("key_to_picture_%d_%s %.3f ms (mean of %llu keys; 30 ms is what a hand notices)\n", processes, what, ms(total) / (double)count,
           (unsigned long long)count);
    printf("key_to_picture_%d_%s_longest %.3f ms\n", processes, what, ms(longest));
}

static void drawings(struct view *view, struct surface *surface, int processes, const char *what)
{
    uint64_t begin = clock_now_ns(), count = 0;
    for (int panel = PANEL_RUN; panel < PANEL_COUNT; panel++)
        for (int i = 0; i < 10 && panel != PANEL_ANCHOR && panel != PANEL_PROFILES; i++, count++) {
            view->panel = (enum panel)panel;
            view_draw(view, surface, FLEET_NOW, FLEET_WALL);
        }
    double each = ms(clock_now_ns() - begin) / (double)count;
    printf("drawing_%d_%s %.3f ms (mean; ten a second take %.2f %% of a core)\n", processes, what, each, each);
}

static void measure(int processes, int stages)
{
    struct view view;
    struct surface small, large;
    fleet_view(&view, processes, stages, 5);
    surface_init(&small, 24, 80, false);
    surface_init(&large, 50, 200, false);
    uint64_t begin = clock_now_ns();
    for (int i = 0; i < SECONDS; i++)
        fleet_second(&view, processes, stages, FLEET_NOW + (uint64_t)i * CLOCK_SECOND / 1000);
    printf("rows_of_a_second_%d %.3f ms (%zu roads)\n", processes, ms(clock_now_ns() - begin) / SECONDS, view.state.road_count);
    keys(&view, &small, processes, "80x24");
    keys(&view, &large, processes, "200x50");
    drawings(&view, &small, processes, "80x24");
    drawings(&view, &large, processes, "200x50");
    surface_clear(&small);
    surface_clear(&large);
    view_clear(&view);
}

int main(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    measure(20, 5);
    measure(1000, 10);
    return 0;
}
