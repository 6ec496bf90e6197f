/* The agreement about changed settings, and its ledger. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "profiles/fields.h"
#include "scheduler/knobs.h"

enum { LIVE = 5 }; /* settings that can be turned in a run of one replica, without an anchor: two, and kedged's own three */

static struct profile profile;
static struct record *record;
static struct knobs *knobs;

static int set_up(void **state)
{
    (void)state;
    profile_defaults(&profile);
    record = record_new();
    knobs = knobs_new(&profile, 1, record);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    knobs_free(knobs);
    record_free(record);
    return 0;
}

static int propose(const char *name, const char *value, uint64_t newest, uint64_t *ledger, struct why *why)
{
    *why = (struct why){0};
    return knobs_propose(knobs, name, value, "anna@home", newest, 1000, ledger, why);
}

static uint64_t accept(const char *name, const char *value, uint64_t newest)
{
    struct why why;
    uint64_t ledger = 0;
    if (propose(name, value, newest, &ledger, &why) < 0)
        fail_msg("%s", why.text);
    return ledger;
}

static int use(int replica, uint64_t ledger, uint64_t step, const char *name, const char *value, uint64_t *replaced)
{
    struct wire_knob_used used = {.ledger = ledger, .step = step};
    snprintf(used.name, sizeof used.name, "%s", name);
    snprintf(used.value, sizeof used.value, "%s", value);
    return knobs_used(knobs, replica, &used, replaced, NULL);
}

static const struct wire_knob_row *knob_row(const char *name)
{
    for (size_t i = 0; i < record->knob_count; i++)
        if (strcmp(record->knobs[i].row.name, name) == 0)
            return &record->knobs[i].row;
    fail_msg("%s has no row", name);
    return NULL;
}

/* One replica and no anchor: what belongs to them cannot be turned, and is not shown. */
static void what_can_be_turned_has_a_row(void **state)
{
    (void)state;
    assert_int_equal(record->knob_count, LIVE);
    assert_string_equal(knob_row("mask.rate")->value, "0.95");
    assert_int_equal(knob_row("train.learning_rate")->pending, 0);
}

static void proposed_then_used(void **state)
{
    (void)state;
    uint64_t replaced, id = accept("mask.rate", " 0.90 ", 40);
    struct wire_knob knob;
    const struct record_ledger *ledger = record_find_ledger(record, id);
    assert_int_equal(id, 1);
    assert_int_equal(ledger->from_step, 42); /* ahead of what any stage has stamped */
    assert_int_equal(ledger->row.state, LEDGER_PROPOSED);
    assert_string_equal(ledger->row.old_value, "0.95");
    assert_string_equal(ledger->row.new_value, "0.9");
    assert_string_equal(ledger->row.who, "anna@home");
    assert_true(ledger->row.wall_ms > 0 && record->urgent);
    assert_int_equal(knob_row("mask.rate")->pending, 1);
    assert_string_equal(knob_row("mask.rate")->pending_value, "0.9");
    assert_string_equal(knob_row("mask.rate")->value, "0.95"); /* what is true until somebody used the new one */
    assert_true(knobs_profile(knobs)->mask_rate > 0.94);
    assert_true(knobs_pending(knobs, 0, 0, &knob) && knob.from_step == 42 && knob.ledger == 1);
    assert_false(knobs_pending(knobs, 0, 1, &knob));
    assert_int_equal(use(0, 1, 43, "mask.rate", "0.9", &replaced), 0);
    assert_int_equal(replaced, 0);
    assert_true(ledger->row.state == LEDGER_ACTIVE && ledger->row.step == 43);
    assert_false(knobs_pending(knobs, 0, 0, &knob));
    assert_int_equal(knob_row("mask.rate")->pending, 0);
    assert_string_equal(knob_row("mask.rate")->value, "0.9");
    assert_true(knobs_profile(knobs)->mask_rate < 0.91);
    assert_int_equal(use(0, 1, 43, "mask.rate", "0.9", &replaced), 0); /* said twice */
    assert_int_equal(ledger->row.step, 43);
}

static void refusals_name_the_remedy(void **state)
{
    (void)state;
    static const struct { const char *name, *value; int err; const char *words; } cases[] = {
        {"mask.rat", "0.9", ERR_INVALID, "there is no setting 'mask.rat'; did you mean 'mask.rate'?"},
        {"mask.rate", "1.5", ERR_INVALID, "mask.rate"},
        {"mask.rate", "much", ERR_INVALID, "mask.rate"},
        {"mask.rate", "", ERR_INVALID, "mask.rate"},
        {"train.learning_rate", "-1", ERR_INVALID, "train.learning_rate"},
        {"model.hidden", "512", ERR_REFUSED, "model.hidden is fixed while a run goes on"},
        {"host.listen", "127.0.0.1:1", ERR_REFUSED, "is fixed"},
        {"anchor.mix", "0.5", ERR_REFUSED, "anchor.mix has no effect: no gradient is corrected"},
        {"sync.merge", "0.1", ERR_REFUSED, "sync.merge has no effect: there is one replica"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct why why;
        uint64_t ledger = 77;
        assert_int_equal(propose(cases[i].name, cases[i].value, 1, &ledger, &why), cases[i].err);
        if (!strstr(why.text, cases[i].words))
            fail_msg("'%s' is not in '%s'", cases[i].words, why.text);
    }
    assert_int_equal(record->newest_ledger, 0); /* what was refused at once is no change */
    assert_int_equal(knob_row("mask.rate")->pending, 0);
}

static void same_value_is_no_change(void **state)
{
    (void)state;
    assert_int_equal(accept("mask.rate", "0.950", 10), 0);
    uint64_t id = accept("mask.rate", "0.9", 10);
    assert_int_equal(accept("mask.rate", "0.9", 10), 0); /* is pending already */
    assert_int_equal(accept("mask.rate", "0.95", 10), id + 1); /* back again is a change */
}

static void too_late_for_the_run(void **state)
{
    (void)state;
    struct why why;
    uint64_t ledger;
    assert_int_equal(propose("mask.rate", "0.9", 999, &ledger, &why), ERR_REFUSED);
    assert_non_null(strstr(why.text, "would begin at step 1001, and the run ends at step 1000"));
    assert_int_equal(accept("mask.rate", "0.9", 998), 1);
}

static void two_changes_pending(void **state)
{
    (void)state;
    uint64_t replaced, first = accept("mask.rate", "0.9", 10), other = accept("train.learning_rate", "0.5", 10);
    uint64_t second = accept("mask.rate", "0.8", 11);
    struct wire_knob knob;
    assert_string_equal(record_find_ledger(record, second)->row.old_value, "0.9");
    assert_true(knobs_pending(knobs, 0, 0, &knob) && knob.ledger == first);
    assert_true(knobs_pending(knobs, 0, knob.ledger, &knob) && knob.ledger == other);
    assert_true(knobs_pending(knobs, 0, knob.ledger, &knob) && knob.ledger == second && knob.from_step == 13);
    assert_string_equal(knob_row("mask.rate")->pending_value, "0.8");
    /* Used one after the other. */
    assert_int_equal(use(0, first, 12, "mask.rate", "0.9", &replaced), 0);
    assert_string_equal(knob_row("mask.rate")->value, "0.9");
    assert_int_equal(knob_row("mask.rate")->pending, 1);
    assert_int_equal(use(0, second, 13, "mask.rate", "0.8", &replaced), 0);
    assert_int_equal(replaced, 0);
    assert_string_equal(knob_row("mask.rate")->value, "0.8");
    assert_int_equal(record_find_ledger(record, other)->row.state, LEDGER_PROPOSED);
    assert_int_equal(knob_row("train.learning_rate")->pending, 1);
}

static void overtaken_change(void **state)
{
    (void)state;
    uint64_t replaced, first = accept("mask.rate", "0.9", 10), other = accept("train.learning_rate", "0.5", 10);
    uint64_t second = accept("mask.rate", "0.8", 10);
    assert_int_equal(use(0, second, 12, "mask.rate", "0.8", &replaced), 0);
    assert_int_equal(replaced, first);
    assert_int_equal(record_find_ledger(record, first)->row.state, LEDGER_REFUSED);
    assert_int_equal(record_find_ledger(record, other)->row.state, LEDGER_PROPOSED);
    assert_int_equal(knob_row("mask.rate")->pending, 0);
}

static void every_replica_has_to_use_it(void **state)
{
    (void)state;
    uint64_t replaced;
    struct wire_knob knob;
    knobs_free(knobs);
    knobs = knobs_new(&profile, 3, record);
    uint64_t id = accept("mask.rate", "0.9", 10);
    assert_int_equal(use(2, id, 14, "mask.rate", "0.9", &replaced), 0);
    assert_int_equal(use(0, id, 12, "mask.rate", "0.9", &replaced), 0);
    assert_int_equal(record_find_ledger(record, id)->row.state, LEDGER_PROPOSED);
    assert_false(knobs_pending(knobs, 0, 0, &knob));
    assert_true(knobs_pending(knobs, 1, 0, &knob));
    assert_int_equal(use(1, id, 13, "mask.rate", "0.9", &replaced), 0);
    assert_int_equal(record_find_ledger(record, id)->row.state, LEDGER_ACTIVE);
    assert_int_equal(record_find_ledger(record, id)->row.step, 12);
}

static void nonsense_answers(void **state)
{
    (void)state;
    uint64_t replaced, id = accept("mask.rate", "0.9", 10);
    assert_int_equal(use(0, id + 1, 12, "mask.rate", "0.9", &replaced), ERR_INVALID);
    assert_int_equal(use(0, id, 12, "mask.rate", "0.91", &replaced), ERR_INVALID);
    assert_int_equal(use(0, id, 12, "train.learning_rate", "0.9", &replaced), ERR_INVALID);
    assert_int_equal(use(0, 0, 12, "mask.rate", "0.9", &replaced), ERR_INVALID);
    assert_int_equal(record_find_ledger(record, id)->row.state, LEDGER_PROPOSED);
}

static void end_refuses_what_waits(void **state)
{
    (void)state;
    uint64_t id = accept("mask.rate", "0.9", 10);
    knobs_end(knobs);
    assert_int_equal(record_find_ledger(record, id)->row.state, LEDGER_REFUSED);
    assert_int_equal(knob_row("mask.rate")->pending, 0);
    assert_string_equal(knob_row("mask.rate")->value, "0.95");
}

static void ledger_survives_its_scheduler(void **state)
{
    (void)state;
    uint64_t replaced;
    struct wire_knob knob;
    use(0, accept("mask.rate", "0.9", 10), 12, "mask.rate", "0.9", &replaced);
    use(0, accept("mask.rate", "0.8", 12), 14, "mask.rate", "0.8", &replaced);
    uint64_t waiting = accept("train.learning_rate", "0.5", 14);
    knobs_free(knobs);
    knobs = knobs_new(&profile, 1, record);
    assert_string_equal(knob_row("mask.rate")->value, "0.8");
    assert_true(knobs_pending(knobs, 0, 0, &knob) && knob.ledger == waiting && knob.from_step == 16);
    assert_int_equal(record->knob_count, LIVE);
}

/* Nobody has to agree with kedged about what it alone obeys: no stage is told, at any step up to the last. */
static void what_kedged_applies_is_active_at_once(void **state)
{
    (void)state;
    struct wire_knob knob;
    const struct record_ledger *ledger = record_find_ledger(record, accept("revert.steps", "20", 1000));
    assert_true(ledger->row.state == LEDGER_ACTIVE && ledger->row.step == 1000 && record->urgent);
    assert_string_equal(ledger->row.old_value, "0");
    assert_string_equal(knob_row("revert.steps")->value, "20");
    assert_int_equal(knob_row("revert.steps")->pending, 0);
    assert_int_equal(knobs_profile(knobs)->revert_steps, 20);
    assert_false(knobs_pending(knobs, 0, 0, &knob));
    knobs_free(knobs);
    knobs = knobs_new(&profile, 1, record);
    assert_int_equal(knobs_profile(knobs)->revert_steps, 20);
}

static void pending_is_bounded_and_the_ring_goes_on(void **state)
{
    (void)state;
    struct why why;
    uint64_t ledger, replaced;
    char value[32];
    for (int i = 0; i < KNOBS_PENDING; i++) {
        snprintf(value, sizeof value, "0.%d", 1000 + i);
        accept("mask.rate", value, 10);
    }
    assert_int_equal(propose("mask.rate", "0.5", 10, &ledger, &why), ERR_FULL);
    for (int i = 0; i < 3 * RECORD_LEDGER; i++) { /* the newest one overtakes all before it, again and again */
        snprintf(value, sizeof value, "0.%d", 1000 + KNOBS_PENDING + i);
        if (i == 0) {
            const struct record_ledger *newest = record_find_ledger(record, KNOBS_PENDING);
            assert_int_equal(use(0, KNOBS_PENDING, 12, "mask.rate", newest->row.new_value, &replaced), 0);
            assert_int_equal(replaced, KNOBS_PENDING - 1);
        }
        uint64_t id = accept("mask.rate", value, 10);
        assert_int_equal(use(0, id, 12, "mask.rate", record_find_ledger(record, id)->row.new_value, &replaced), 0);
    }
    assert_null(record_find_ledger(record, 1));
}

/* What replicas change together: memory and sense have limits that the table's ranges do not know. */
static void what_replicas_exchange(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *why; /* NULL: accepted */
    } cases[] = {
        {"sync.every", "15", NULL}, {"sync.every", "2", "sync.fragments = 3"}, {"sync.every", "5",
                                                                                "must be more than sync.overlap = 5"},
        {"sync.every", "12", "would have 2 exchanges under way"}, {"sync.every", "100", NULL}, {"sync.rank", "4", NULL},
        {"sync.rank", "16", NULL}, {"sync.rank", "17", "more than the 16"}, {"sync.merge", "0", NULL}, {"sync.outer_rate",
            "0.4", NULL},
        {"sync.outer_rate", "11", "out of range"}, {"sync.overlap", "1", "fixed while a run goes on"},
    };
    struct why why;
    uint64_t ledger;
    assert_int_equal(propose("sync.every", "12", 10, &ledger, &why), ERR_REFUSED);
    assert_non_null(strstr(why.text, "there is one replica"));
    knobs_free(knobs);
    profile.replicas = 2;
    profile.sync_overlap = 5;
    profile.sync_payload = SEND_POWERSGD;
    knobs = knobs_new(&profile, 2, record);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int err = propose(cases[i].name, cases[i].value, 10, &ledger, &why);
        if (!cases[i].why && err < 0)
            fail_msg("%s = %s: %s", cases[i].name, cases[i].value, why.text);
        assert_true(err < 0 ? cases[i].why && strstr(why.text, cases[i].why) : !cases[i].why);
    }
    profile.sync_outer = OUTER_NONE;
    profile.sync_payload = SEND_INT4;
    knobs_free(knobs);
    knobs = knobs_new(&profile, 2, record);
    assert_int_equal(propose("sync.outer_rate", "0.1", 10, &ledger, &why), ERR_REFUSED);
    assert_int_equal(propose("sync.rank", "1", 10, &ledger, &why), ERR_REFUSED);
    profile.sync_every = 1;
    knobs_free(knobs);
    knobs = knobs_new(&profile, 2, record);
    assert_int_equal(propose("sync.merge", "0.1", 10, &ledger, &why), ERR_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(what_can_be_turned_has_a_row),
        TEST(proposed_then_used),
        TEST(refusals_name_the_remedy),
        TEST(same_value_is_no_change),
        TEST(too_late_for_the_run),
        TEST(two_changes_pending),
        TEST(overtaken_change),
        TEST(every_replica_has_to_use_it),
        TEST(nonsense_answers),
        TEST(end_refuses_what_waits),
        TEST(ledger_survives_its_scheduler),
        TEST(what_replicas_exchange),
        TEST(what_kedged_applies_is_active_at_once),
        TEST(pending_is_bounded_and_the_ring_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
