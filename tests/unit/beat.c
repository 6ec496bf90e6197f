/* Round trips and clocks from heartbeats: two clocks that never agree, a road that is now and then slow one way. */
#include "ssh/link/beat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ssh/base/clock.h"

#define MONOTONIC_AHEAD (UINT64_C(77) * CLOCK_SECOND)
#define WALL UINT64_C(1700000000000000000)

/* Both sides send, each a second, over a road of `one_way_ns` and, in every second round, `extra_ns` more towards us. */
static void talk(struct beat *ours, int rounds, int64_t wall_ahead_ns, uint64_t one_way_ns, uint64_t extra_ns)
{
    struct beat theirs = {0};
    uint64_t now_ns = 1000 * CLOCK_SECOND;
    for (int i = 0; i < rounds; i++, now_ns += CLOCK_SECOND) {
        struct wire_heartbeat beat = beat_make(ours, now_ns, WALL + now_ns);
        uint64_t there_ns = now_ns + one_way_ns, back_ns = there_ns + 300 * CLOCK_MS;
        beat_heard(&theirs, &beat, there_ns + MONOTONIC_AHEAD, WALL + there_ns + (uint64_t)wall_ahead_ns);
        beat = beat_make(&theirs, back_ns + MONOTONIC_AHEAD, WALL + back_ns + (uint64_t)wall_ahead_ns);
        uint64_t heard_ns = back_ns + one_way_ns + (i % 2 ? extra_ns : 0);
        beat_heard(ours, &beat, heard_ns, WALL + heard_ns);
    }
}

static void a_clock_that_is_off_is_measured(void **state)
{
    static const int64_t ahead_ns[] = {0, 300 * (int64_t)CLOCK_SECOND, -300 * (int64_t)CLOCK_SECOND, 1234567};
    (void)state;
    for (size_t i = 0; i < sizeof ahead_ns / sizeof *ahead_ns; i++) {
        struct beat beat = {0};
        assert_true(beat_best(&beat) == NULL && beat_rtt_ns(&beat) == 0);
        talk(&beat, 20, ahead_ns[i], 50 * CLOCK_MS, 0);
        assert_int_equal(beat_rtt_ns(&beat), 100 * CLOCK_MS);
        assert_true(beat_best(&beat)->offset_ns == ahead_ns[i]);
    }
}

static void what_waited_somewhere_is_not_believed(void **state)
{
    struct beat beat = {0};
    (void)state;
    talk(&beat, 20, 5 * (int64_t)CLOCK_SECOND, 10 * CLOCK_MS, 2 * CLOCK_SECOND);
    assert_int_equal(beat_rtt_ns(&beat), 20 * CLOCK_MS);
    assert_true(beat_best(&beat)->offset_ns == 5 * (int64_t)CLOCK_SECOND);
}

static void lies_measure_nothing(void **state)
{
    struct beat beat = {0};
    (void)state;
    beat_heard(&beat, &(struct wire_heartbeat){.sent_ns = 1, .echo_ns = 500, .wall_ns = WALL}, 400, WALL);
    beat_heard(&beat, &(struct wire_heartbeat){.sent_ns = 2, .echo_ns = 100, .held_ns = 301, .wall_ns = WALL}, 400, WALL);
    assert_null(beat_best(&beat));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_that_is_off_is_measured),
        cmocka_unit_test(what_waited_somewhere_is_not_believed),
        cmocka_unit_test(lies_measure_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
