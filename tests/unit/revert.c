/* Taking back what a run does not bear: the band, the verdicts, and what a run does with them through its ledger. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/revert.h"

static struct profile settings;
static struct record *record;
static struct revert revert;
static uint64_t at;

static int set_up(void **state)
{
    (void)state;
    profile_defaults(&settings);
    settings.revert_steps = 20;
    record = record_new();
    memset(&revert, 0, sizeof revert);
    at = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    record_free(record);
    return 0;
}

static void train(int steps, double loss, double norm)
{
    while (steps--)
        revert_step(&revert, ++at, loss, norm);
}

/* A change of `name` that the next step uses, by `who`. */
static struct record_ledger *change(const char *name, const char *who, bool watched)
{
    char words[WIRE_TEXT] = "";
    struct record_ledger *row = record_add_ledger(record);
    row->row.state = LEDGER_ACTIVE;
    row->row.step = at + 1;
    snprintf(row->row.name, sizeof row->row.name, "%s", name);
    snprintf(row->row.who, sizeof row->row.who, "%s", who);
    snprintf(row->row.old_value, sizeof row->row.old_value, "0.95");
    snprintf(row->row.new_value, sizeof row->row.new_value, "0.99");
    record->urgent = false;
    assert_true(revert_arm(&revert, &settings, record, row, words, sizeof words) == (words[0] != '\0'));
    assert_int_equal(row->row.watched_until, watched ? at + 20 : 0);
    assert_int_equal(record->urgent, watched);
    return row;
}

static enum revert_verdict judge(struct record_ledger *row)
{
    char words[WIRE_TEXT] = "";
    enum revert_verdict verdict = revert_judge(&revert, record, row, words, sizeof words);
    assert_int_equal(words[0] != '\0', verdict != REVERT_NOTHING);
    assert_int_equal(row->row.watched_until == 0, verdict != REVERT_NOTHING);
    return verdict;
}

static void the_band_is_around_the_mean_before(void **state)
{
    (void)state;
    train(20, 9, 9); /* too old to count */
    train(5, 3, 1);
    train(5, 5, 3);
    struct record_ledger *row = change("mask.rate", "anna@home", true);
    assert_true(fabs(row->row.loss_most - 4.4) < 1e-9 && fabs(row->row.norm_most - 8) < 1e-9);
}

static void off_too_early_and_not_for_itself(void **state)
{
    (void)state;
    train(2, 4, 2);
    change("mask.rate", "anna@home", false); /* two steps are no mean */
    train(8, 4, 2);
    change("mask.rate", REVERT_WHO, false);
    change("revert.norm", "anna@home", false);
    settings.revert_steps = 0;
    change("mask.rate", "anna@home", false);
}

static void one_bad_step_is_noise_three_are_not(void **state)
{
    (void)state;
    train(10, 4, 2);
    struct record_ledger *row = change("mask.rate", "anna@home", true);
    train(1, 4, 2);
    assert_int_equal(judge(row), REVERT_NOTHING);
    train(1, 5, 2);
    assert_int_equal(judge(row), REVERT_NOTHING);
    train(1, 4, 2);
    assert_int_equal(judge(row), REVERT_NOTHING);
    train(2, 5, 2);
    assert_int_equal(judge(row), REVERT_BACK);
}

static void the_gradient_norm_alone_and_what_is_not_finite(void **state)
{
    (void)state;
    static const struct { double loss, norm; int steps; } cases[] = {{4, 9, 3}, {(double)NAN, 2, 1}, {4, (double)INFINITY, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        train(10, 4, 2);
        struct record_ledger *row = change("mask.rate", "anna@home", true);
        train(cases[i].steps, cases[i].loss, cases[i].norm);
        assert_int_equal(judge(row), REVERT_BACK);
        train(15, 4, 2);
    }
}

static void what_is_borne_stays(void **state)
{
    (void)state;
    train(10, 4, 2);
    struct record_ledger *row = change("mask.rate", "anna@home", true);
    for (int i = 0; i < 19; i++) {
        train(1, 4.3, 7);
        assert_int_equal(judge(row), REVERT_NOTHING);
    }
    train(1, 4.3, 7);
    assert_int_equal(judge(row), REVERT_KEPT);
}

/* One step of watch is judged by that step. */
static void a_short_watch_is_one_all_the_same(void **state)
{
    (void)state;
    settings.revert_steps = 1;
    train(10, 4, 2);
    char words[WIRE_TEXT];
    struct record_ledger *row = record_add_ledger(record);
    row->row.state = LEDGER_ACTIVE;
    row->row.step = at + 1;
    snprintf(row->row.name, sizeof row->row.name, "mask.rate");
    assert_true(revert_arm(&revert, &settings, record, row, words, sizeof words));
    train(1, 5, 2);
    assert_int_equal(judge(row), REVERT_BACK);
}

/* The newest of a setting is the one in use; another kedged, which has seen no step, goes on with what the rows say. */
static void rows_are_the_memory(void **state)
{
    (void)state;
    train(10, 4, 2);
    struct record_ledger *first = change("mask.rate", "anna@home", true);
    struct record_ledger *other = change("train.learning_rate", "anna@home", true);
    struct record_ledger *second = change("mask.rate", "anna@home", true);
    assert_int_equal(first->row.watched_until, 0);
    assert_ptr_equal(revert_watched(record, UINT64_MAX), second);
    assert_ptr_equal(revert_watched(record, second->row.id), other);
    assert_null(revert_watched(record, other->row.id));
    memset(&revert, 0, sizeof revert);
    assert_int_equal(judge(second), REVERT_NOTHING);
    train(3, 5, 2);
    assert_int_equal(judge(second), REVERT_BACK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(the_band_is_around_the_mean_before),  TEST(off_too_early_and_not_for_itself),
        TEST(one_bad_step_is_noise_three_are_not), TEST(the_gradient_norm_alone_and_what_is_not_finite),
        TEST(what_is_borne_stays),                 TEST(a_short_watch_is_one_all_the_same),
        TEST(rows_are_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
