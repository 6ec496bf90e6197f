/*
 * The screen's own time: rows of a second taken in, a key until its picture is drawn (in memory, without the terminal), and the share of a
 * core that ten drawings a second take. With 20 and with 1,000 processes, 80 × 24 and 200 × 50. A line is: name value unit (what it is).
 */
#include <locale.h>
#include <malloc.h>
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

/* All that a console keeps, fed as fast as it goes: after an hour of rows once a second, and after a week. */
static void memory(void)
{
    struct view view;
    struct surface surface;
    const uint64_t hour = 3600, week = 7 * 24 * hour;
    size_t before = mallinfo2().uordblks;
    surface_init(&surface, 24, 80, false);
    fleet_view(&view, 20, 4, 5);
    for (uint64_t second = 6; second <= week; second++) {
        fleet_second(&view, 20, 4, FLEET_NOW + second * CLOCK_SECOND);
        if (second % 60 == 0) {
            struct wire_event_row event = {.id = 100 + second / 60, .level = EVENT_INFO, .source = "r0s0", .code = "test", .text = "a minute"};
            struct wire_ledger_row change = {.id = 100 + second / 60, .name = "mask.rate", .state = LEDGER_ACTIVE, .step = second};
            view_apply(&view, WIRE_EVENT_ROW, &event, FLEET_NOW + second * CLOCK_SECOND);
            view_apply(&view, WIRE_LEDGER_ROW, &change, FLEET_NOW + second * CLOCK_SECOND);
            view_draw(&view, &surface, FLEET_NOW + second * CLOCK_SECOND, FLEET_WALL + second * 1000);
        }
        if (second == hour || second == 24 * hour || second == week)
            printf("memory_20_processes_after_%llu_h %.2f MB (rows once a second, an event and a change a minute)\n",
                   (unsigned long long)(second / hour), (double)(mallinfo2().uordblks - before) / 1e6);
    }
    surface_clear(&surface);
    view_clear(&view);
}

int main(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    measure(20, 5);
    measure(1000, 10);
    memory();
    return 0;
}
