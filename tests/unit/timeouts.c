/* All deadlines come from one number: in order and without overflow for every base from 1 ms to 1 day. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "profiles/fields.h"
#include "profiles/profile.h"
#include "profiles/timeouts.h"

#define MS UINT64_C(1000000)
#define DAY (UINT64_C(86400) * 1000 * MS)

static void check_base(uint64_t base)
{
    struct timeouts t = timeouts_derive(base);
    if (!timeouts_in_order(&t))
        fail_msg("out of order for a base of %llu ns", (unsigned long long)base);
    assert_true(t.lease_ns / 60 == base); /* did not wrap */
    assert_true(t.silent_ns > 2 * t.heartbeat_ns && t.silent_ns < 3 * t.heartbeat_ns);
    assert_true(t.greet_ns == base);
}

static void in_order_for_every_base(void **state)
{
    (void)state;
    for (uint64_t base = MS; base <= DAY; base += base / 97 + 1)
        check_base(base);
    check_base(DAY);
}

static void a_longer_base_stretches_all(void **state)
{
    (void)state;
    struct timeouts one = timeouts_derive(10 * 1000 * MS), two = timeouts_derive(20 * 1000 * MS);
    assert_true(two.heartbeat_ns == 2 * one.heartbeat_ns && two.silent_ns == 2 * one.silent_ns);
    assert_true(two.redial_ns == 2 * one.redial_ns && two.grace_ns == 2 * one.grace_ns);
    assert_true(two.form_ns == 2 * one.form_ns && two.lease_ns == 2 * one.lease_ns);
}

static void disorder_is_seen(void **state)
{
    (void)state;
    struct timeouts t = timeouts_derive(10 * 1000 * MS), bad;
    bad = t, bad.silent_ns = 2 * t.heartbeat_ns;
    assert_false(timeouts_in_order(&bad));
    bad = t, bad.redial_ns = t.silent_ns;
    assert_false(timeouts_in_order(&bad));
    bad = t, bad.greet_ns = t.redial_ns;
    assert_false(timeouts_in_order(&bad));
    bad = t, bad.grace_ns = t.greet_ns;
    assert_false(timeouts_in_order(&bad));
    bad = t, bad.form_ns = t.grace_ns;
    assert_false(timeouts_in_order(&bad));
    bad = t, bad.lease_ns = t.form_ns;
    assert_false(timeouts_in_order(&bad));
    t = timeouts_derive(0);
    assert_false(timeouts_in_order(&t));
}

static void users_can_only_set_what_holds(void **state)
{
    (void)state;
    const struct field *row = field_find("run.timeout");
    assert_true(row->minimum >= (double)MS && row->maximum <= (double)DAY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_for_every_base),
        cmocka_unit_test(a_longer_base_stretches_all),
        cmocka_unit_test(disorder_is_seen),
        cmocka_unit_test(users_can_only_set_what_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
