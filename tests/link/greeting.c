/* Links over pair roads, on an owned clock: greeting, round trip, silence, refusals, parting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/ends.h"

static struct loop *loop;
static struct end a, b;

static int set_up(void **state)
{
    (void)state;
    struct why why = {0};
    clock_own(1000 * CLOCK_SECOND);
    loop = loop_new(&why);
    assert_non_null(loop);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_free(&a, loop);
    end_free(&b, loop);
    loop_free(loop);
    clock_disown();
    return 0;
}

static void begin(const struct link_settings *left, const struct link_settings *right)
{
    struct road *one, *other;
    road_pair(loop, 4096, &one, &other);
    end_begin(&a, loop, one, left);
    end_begin(&b, loop, other, right);
}

static void begin_up(void)
{
    struct link_settings left = ends_settings("left"), right = ends_settings("right");
    begin(&left, &right);
    assert_true(loop_until(loop, &a.is_up, CLOCK_SECOND));
    assert_true(loop_until(loop, &b.is_up, CLOCK_SECOND));
}

static void both_sides_greet(void **state)
{
    (void)state;
    struct link_settings left = ends_settings("left"), right = ends_settings("right");
    right.incarnation = 7;
    begin(&left, &right);
    assert_false(a.is_up);
    assert_null(link_peer(a.link));
    assert_true(loop_until(loop, &a.is_up, CLOCK_SECOND) && loop_until(loop, &b.is_up, CLOCK_SECOND));
    assert_string_equal(a.peer.name, "right");
    assert_string_equal(link_peer(b.link)->name, "left");
    assert_int_equal(link_peer_incarnation(a.link), 7);
    assert_string_equal(link_describe(a.link), "pair → right");
}

static void round_trip_is_known_soon(void **state)
{
    (void)state;
    begin_up();
    assert_int_equal(link_rtt_ns(a.link), 0);
    loop_for(loop, CLOCK_SECOND + CLOCK_MS);
    assert_in_range(link_rtt_ns(a.link), 1, CLOCK_MS);
    assert_in_range(link_rtt_ns(b.link), 1, CLOCK_MS);
}

static void link_stays_up_while_nobody_speaks(void **state)
{
    (void)state;
    begin_up();
    loop_for(loop, 3600 * CLOCK_SECOND);
    assert_true(link_is_up(a.link) && link_is_up(b.link));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_sides_greet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(round_trip_is_known_soon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(link_stays_up_while_nobody_speaks, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
