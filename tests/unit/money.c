/* What a run costs: hosts by the hour, what leaves a host by the GB, nothing within a host, and nothing is made up without prices. */
#include "scheduler/money.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define HOUR_MS (3600 * UINT64_C(1000))
#define START UINT64_C(1700000000000)

static bool near(double one, double other)
{
    return fabs(one - other) < 1e-9;
}

static void hours_are_paid_by_the_clock_and_bytes_by_the_step(void **state)
{
    (void)state;
    struct money_use use = {.hosts_per_hour = 2, .hours = 1.5, .bytes = 0.6, .bytes_per_hour = 0.3, .step = 100, .steps = 300, .step_seconds = 18};
    struct money money = money_of(&use);
    assert_true(near(money.spent, 3.6) && near(money.per_hour, 2.3));
    assert_true(near(money.forecast, 3.6 + 2 * 1 + 0.6 * 2)); /* 200 steps of 18 s are an hour */
    use.step = 300;
    assert_true(near(money_of(&use).forecast, 3.6));
    use.step = 0;
    assert_true(isnan(money_of(&use).forecast));
    use.step = 100;
    use.step_seconds = (double)NAN;
    assert_true(isnan(money_of(&use).forecast));
}

/* r0s0 and the anchor on host a, r0s1 on b. */
static void add_process(struct record *record, const char *name, const char *host, uint8_t role)
{
    struct wire_process_row *row = &record->processes[record->process_count++].row;
    row->role = role;
    record_text(row->process, sizeof row->process, "%s", name);
    record_text(row->host, sizeof row->host, "%s", host);
}

static void add_road(struct record *record, const char *from, const char *to, uint64_t bytes, double rate)
{
    struct record_road *road = record_road(record, from, to, LANE_ACT);
    road->row.sent_bytes = bytes;
    road->row.bytes_per_second = rate;
}

static struct record *make_record(struct profile *profile, double a_hour, double a_gb, double b_hour, double b_gb)
{
    static const char *const names[] = {"a", "b"};
    struct record *record = record_new();
    profile_defaults(profile);
    profile->host_count = 2;
    for (int i = 0; i < 2; i++)
        snprintf(profile->hosts[i].name, sizeof profile->hosts[i].name, "%s", names[i]);
    profile->hosts[0].price_per_hour = a_hour, profile->hosts[0].price_per_gb_up = a_gb;
    profile->hosts[1].price_per_hour = b_hour, profile->hosts[1].price_per_gb_up = b_gb;
    record->state.row.started_wall_ms = START;
    record->state.row.steps = 100;
    add_process(record, "r0s0", "a", ROLE_STAGE);
    add_process(record, "r0s1", "b", ROLE_STAGE);
    add_road(record, "r0s0", "r0s1", 3000000000, 1e6);
    add_road(record, "r0s1", "r0s0", 2000000000, (double)NAN);
    return record;
}

static void what_leaves_a_host_costs(void **state)
{
    struct profile profile;
    (void)state;
    struct record *record = make_record(&profile, 0.5, 0.1, 0.25, 0.01);
    money_refresh(&profile, record, START + 2 * HOUR_MS, false);
    assert_true(near(record->state.row.spent, 2 * 0.75 + 0.3 + 0.02));
    assert_true(near(record->state.row.spend_per_hour, 0.75 + 0.36)); /* what is not known of a road is not counted */
    assert_true(near(record->roads[0].row.price_per_hour, 0.36) && isnan(record->roads[1].row.price_per_hour));
    assert_true(isnan(record->state.row.spend_forecast));
    record_free(record);
}

static void what_stays_in_a_host_costs_nothing(void **state)
{
    struct profile profile;
    (void)state;
    struct record *record = make_record(&profile, 0, 0.1, 0, 0.01);
    record_text(record->processes[1].row.host, sizeof record->processes[1].row.host, "a");
    money_refresh(&profile, record, START + HOUR_MS, false);
    assert_true(near(record->state.row.spent, 0) && isnan(record->roads[0].row.price_per_hour));
    record_free(record);
}

static void without_prices_nothing_is_known(void **state)
{
    struct profile profile;
    (void)state;
    struct record *record = make_record(&profile, 0, 0, 0, 0);
    uint64_t version = record->version;
    money_refresh(&profile, record, START + HOUR_MS, false);
    assert_true(isnan(record->state.row.spent) && isnan(record->state.row.spend_per_hour) && record->version == version);
    assert_false(money_is_up(&profile, record));
    record_free(record);
}

static void a_run_that_is_over_costs_no_more(void **state)
{
    struct profile profile;
    (void)state;
    struct record *record = make_record(&profile, 1, 0, 1, 0);
    money_refresh(&profile, record, START + HOUR_MS, false);
    money_refresh(&profile, record, START + 2 * HOUR_MS, true);
    money_refresh(&profile, record, START + 9 * HOUR_MS, true);
    assert_true(near(record->state.row.spent, 4) && isnan(record->state.row.spend_per_hour) && isnan(record->state.row.spend_forecast));
    record_free(record);
}

static void the_budget_counts_bytes_too(void **state)
{
    struct profile profile;
    (void)state;
    struct record *record = make_record(&profile, 0, 0.1, 0, 0);
    profile.budget = 0.31;
    money_refresh(&profile, record, START + 1000, false);
    assert_false(money_is_up(&profile, record));
    profile.budget = 0.3;
    assert_true(money_is_up(&profile, record));
    assert_int_equal(profile_fuse_ns(&profile), 0); /* nothing that a host could count by itself */
    record_free(record);
}

/* Its host when it has it alone, and its roads both ways. */
static void the_anchor_costs_its_host_and_roads(void **state)
{
    struct profile profile;
    (void)state;
    struct record *record = make_record(&profile, 1, 0.1, 2, 0);
    add_process(record, "anchor", "b", ROLE_ANCHOR);
    add_road(record, "r0s0", "anchor", 1000, 1e6);
    record_text(record->anchor.row.host, sizeof record->anchor.row.host, "b");
    money_refresh(&profile, record, START + HOUR_MS, false);
    assert_true(near(record->anchor.row.price_per_hour, 0.36)); /* a stage needs host b anyway */
    record_text(record->processes[1].row.host, sizeof record->processes[1].row.host, "a");
    money_refresh(&profile, record, START + HOUR_MS, false);
    assert_true(near(record->anchor.row.price_per_hour, 2.36));
    record_free(record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hours_are_paid_by_the_clock_and_bytes_by_the_step),
        cmocka_unit_test(what_leaves_a_host_costs),
        cmocka_unit_test(what_stays_in_a_host_costs_nothing),
        cmocka_unit_test(without_prices_nothing_is_known),
        cmocka_unit_test(a_run_that_is_over_costs_no_more),
        cmocka_unit_test(the_budget_counts_bytes_too),
        cmocka_unit_test(the_anchor_costs_its_host_and_roads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
