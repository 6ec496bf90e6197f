/* How much may be on its way to a command on a host: what the road holds and little more, but never so little that it stops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/session/flow.h"

#define MIB ((size_t)1 << 20)

#define BYTES (64 * MIB)
#define TICK_NS (CLOCK_MS / 10)
#define TICKS 20000 /* two seconds */

struct peer {
    size_t window, step; /* it gives room again as soon as so many bytes were read, */
    double rate;         /* of so many a second; */
    unsigned round;      /* after so many ticks we know */
};

/* In which tick all of BYTES came but what is less than a step, 0 = they did not; and the most that was on its way in the second half. */
static unsigned came(const struct peer *peer, size_t *most)
{
    static size_t given[TICKS + 1];
    struct flow flow = {0};
    size_t room = peer->window, sent = 0, known = 0;
    double read = 0;
    *most = 0;
    flow_window(&flow, 0, CLOCK_SECOND); /* the command does not run yet */
    for (unsigned tick = 0; tick < TICKS; tick++) {
        uint64_t now_ns = CLOCK_SECOND + tick * TICK_NS;
        size_t told = tick < peer->round ? 0 : given[tick - peer->round];
        room += told - known;
        known = told;
        flow_window(&flow, room, now_ns);
        if (known + peer->step > BYTES)
            return tick;
        for (size_t piece; sent < BYTES && (piece = flow_room(&flow) < room ? flow_room(&flow) : room);) {
            piece = piece < 32768 ? piece : 32768;
            piece = piece < BYTES - sent ? piece : BYTES - sent;
            room -= piece;
            sent += piece;
            flow_sent(&flow, piece, now_ns);
        }
        if (known > BYTES / 2 && sent - known > *most)
            *most = sent - known;
        read += peer->rate * (double)TICK_NS / 1e9;
        read = read < (double)sent ? read : (double)sent;
        given[tick + 1] = (size_t)read / peer->step * peer->step;
    }
    return 0;
}

/* It is as quick as with all of the window, and what waits is bounded. */
static void a_little_more_than_the_road_holds(void **unused)
{
    static const struct peer peers[] = {{2 * MIB, 96 << 10, 1e8, 2}, {2 * MIB, 96 << 10, 1e8, 100}, {8 * MIB, 64 << 10, 5e7, 1000}};
    (void)unused;
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        const struct peer *peer = &peers[i];
        double round_ns = (double)peer->round * (double)TICK_NS, holds = peer->rate * round_ns / 1e9;
        size_t most;
        unsigned ticks = came(peer, &most);
        if (!ticks || (double)ticks * (double)TICK_NS > 1.05 * (double)BYTES / peer->rate * 1e9 + 2 * round_ns)
            fail_msg("%zu: %u ticks", i, ticks);
        if ((double)most > 1.1 * holds + 600e3)
            fail_msg("%zu: %zu bytes on the way, the road holds %.0f", i, most, holds);
    }
}

static void the_whole_window_where_the_road_holds_more(void **unused)
{
    const struct peer peer = {2 * MIB, 96 << 10, 1e9, 100};
    size_t most;
    (void)unused;
    assert_true(came(&peer, &most));
    assert_true(most > 2 * MIB - (96 << 10));
}

static void one_that_gives_room_in_large_steps_is_not_waited_for(void **unused)
{
    size_t most;
    (void)unused;
    for (size_t step = 1000; step <= MIB; step = step * 3 / 2) {
        const struct peer peer = {2 * MIB, step, 1e8, 2};
        if (!came(&peer, &most))
            fail_msg("steps of %zu bytes", step);
    }
}

/* Its room may be less than what counts as little. */
static void a_small_window(void **unused)
{
    const struct peer peer = {24 << 10, 8 << 10, 1e8, 2};
    size_t most;
    (void)unused;
    assert_true(came(&peer, &most));
    assert_true(most <= 24 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_little_more_than_the_road_holds),
        cmocka_unit_test(the_whole_window_where_the_road_holds_more),
        cmocka_unit_test(one_that_gives_room_in_large_steps_is_not_waited_for),
        cmocka_unit_test(a_small_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
