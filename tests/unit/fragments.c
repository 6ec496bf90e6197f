/* The schedule of fragments, over many settings: every fragment once per H, never two under way when τ < H/P, the same for
 * who joins late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/train/fragments.h"
#include "profiles/profile.h"

static const struct fragments settings[] = {
    {.every = 1, .count = 1},
    {.every = 24, .count = 3, .overlap = 2},
    {.every = 100, .count = 8, .overlap = 5},
    {.every = 10, .count = 3, .overlap = 3},
    {.every = 7, .count = 7, .overlap = 1},
    {.every = 30, .count = 1, .overlap = 29},
    {.every = 11, .count = 4, .overlap = 10},
    {.every = 500, .count = 1, .pattern = FRAGMENTS_SEQUENTIAL},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static struct fragments with_last(int i, uint64_t last)
{
    struct fragments fragments = settings[i];
    fragments.last = last;
    return fragments;
}

static void test_once_per_h(void **state)
{
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        struct fragments fragments = with_last(i, UINT64_MAX);
        struct fragment_round round;
        uint64_t every = (uint64_t)fragments.every;
        assert_int_equal(fragments_check(&fragments, NULL), 0);
        for (uint64_t from = every; from < 3 * every; from++) {
            uint64_t seen = 0;
            for (uint64_t step = from; step < from + every; step++)
                if (fragments_sent_at(&fragments, step, &round)) {
                    assert_int_equal(seen >> round.fragment & 1, 0);
                    seen |= UINT64_C(1) << round.fragment;
                }
            assert_int_equal(seen, (UINT64_C(1) << fragments.count) - 1);
        }
    }
}

/* Offsets differ by ⌊H/P⌋ or one more. */
static void test_spread(void **state)
{
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        struct fragments fragments = with_last(i, UINT64_MAX);
        struct fragment_round round, before = {0};
        uint64_t gap = (uint64_t)(fragments.every / fragments.count);
        for (uint64_t step = 1; step < 5 * (uint64_t)fragments.every; step++) {
            if (!fragments_sent_at(&fragments, step, &round))
                continue;
            assert_int_equal(round.sent, step);
            assert_int_equal(round.applied, step + (uint64_t)fragments.overlap);
            if (before.sent) {
                assert_int_equal(round.round, before.round + 1);
                assert_true(step - before.sent >= gap && step - before.sent <= gap + 1);
            } else {
                assert_true(step >= (uint64_t)fragments.every / 2 && step >= 1);
            }
            before = round;
        }
        assert_int_not_equal(before.sent, 0);
    }
}

/* As the worker does it: what is due is applied before the next round is sent. */
static void test_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        struct fragments fragments = with_last(i, UINT64_MAX);
        struct fragment_round round, due;
        int now = 0, most = 0;
        uint64_t next = UINT64_MAX;
        for (uint64_t step = 1; step < 6 * (uint64_t)fragments.every; step++) {
            if (fragments.overlap && fragments_applied_at(&fragments, step, &due)) {
                assert_int_equal(due.applied, step);
                assert_true(next == UINT64_MAX || due.round == next);
                next = due.round + 1;
                now--;
            }
            now += fragments_sent_at(&fragments, step, &round);
            most = now > most ? now : most;
            if (!fragments.overlap && fragments_applied_at(&fragments, step, &due)) {
                assert_int_equal(due.round, round.round);
                now--;
            }
        }
        assert_int_equal(most, fragments_in_flight(&fragments));
        if (fragments.overlap * fragments.count < fragments.every)
            assert_int_equal(most, 1);
    }
}

/* Who asks at any step for the first time gets the same answer as who asked all along: nothing is remembered. And near the
 * end nothing is sent that could not be applied. */
static void test_pure(void **state)
{
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        uint64_t last = 3 * (uint64_t)settings[i].every + 2;
        struct fragments fragments = with_last(i, last), endless = with_last(i, UINT64_MAX);
        for (uint64_t join = 1; join <= last; join++) {
            struct fragment_round here = {0}, there = {0};
            bool sent = fragments_sent_at(&fragments, join, &here), would = fragments_sent_at(&endless, join, &there);
            assert_true(sent == (would && there.applied <= last));
            if (!sent)
                continue;
            assert_int_equal(here.round, there.round);
            assert_true(here.round < fragments_end(&fragments));
            struct fragment_round again;
            assert_true(fragments_applied_at(&fragments, here.applied, &again));
            assert_int_equal(again.round, here.round);
        }
    }
}

/* H changes, again and again, also while rounds are under way: numbers go on, nothing of the old schedule is under way when
 * the new one sends, and who learns it late makes the same schedule of it. */
static void test_change(void **state)
{
    (void)state;
    static const int64_t every[] = {24, 6, 100, 7, 3, 30};
    struct fragments fragments = {.every = 12, .count = 3, .overlap = 2, .last = UINT64_MAX};
    struct fragment_round round;
    uint64_t applied = 0, number = 0, changes = 0;
    bool fresh = false;
    for (uint64_t step = 1; step < 3000; step++) {
        if (fragments_sent_at(&fragments, step, &round)) {
            assert_true(number == 0 || round.round > number);
            assert_true(!fresh || (step >= applied && step - fragments.since >= (uint64_t)fragments.every / 2));
            fresh = false;
            number = round.round;
            applied = round.applied;
        }
        if (step % 97 != 13 && step % 97 != 14)
            continue;
        struct fragments before = fragments; /* the second of two changes comes before the first has sent anything */
        fragments = fragments_change(&before, step, every[changes++ % 6]);
        assert_true(fragments.since == step + 2 && fragments.number > number);
        fresh = true;
    }
    assert_true(changes > 50 && number > 200);
    fragments.last = 3000;
    assert_true(fragments_end(&fragments) > number);
}

/* What one that joins at a step is needed for: all that is sent from there on and nothing that was sent before. */
static void test_first_round(void **state)
{
    (void)state;
    for (int64_t every = 1; every <= 12; every++)
        for (int64_t count = 1; count <= every; count++)
            for (uint64_t since = 0; since <= 9; since += 9) {
                struct fragments fragments = {.every = every, .count = count, .overlap = every / 2, .last = 10000, .since = since, .number = 3 * since};
                for (uint64_t step = 1; step < 60; step++) {
                    struct fragment_round round;
                    uint64_t first = fragments_first_round(&fragments, step);
                    for (uint64_t t = 1; t < 100; t++)
                        if (fragments_sent_at(&fragments, t, &round))
                            assert_int_equal(round.round >= first, t >= step);
                }
            }
}

/* The scheduler refuses what a worker has no memory for by the same number. */
static void test_under_way_in_a_profile(void **state)
{
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        struct profile profile = {.sync_every = settings[i].every, .sync_fragments = settings[i].count,
                                  .sync_overlap = settings[i].overlap};
        assert_int_equal(profile_rounds_under_way(&profile), fragments_in_flight(&settings[i]));
    }
}

static void test_layers(void **state)
{
    (void)state;
    struct fragments strided = {.every = 24, .count = 3}, sequential = {.every = 24, .count = 3,
                                                                        .pattern = FRAGMENTS_SEQUENTIAL};
    const int want_strided[] = {0, 1, 2, 0, 1, 2, 0}, want_sequential[] = {0, 0, 0, 1, 1, 2, 2};
    for (int layer = 0; layer < 7; layer++) {
        assert_int_equal(fragments_of_layer(&strided, layer, 7), want_strided[layer]);
        assert_int_equal(fragments_of_layer(&sequential, layer, 7), want_sequential[layer]);
    }
}

static void test_refused(void **state)
{
    (void)state;
    const struct fragments bad[] = {{.every = 0, .count = 1},
                                    {.every = 4, .count = 5},
                                    {.every = 4, .count = 0},
                                    {.every = 4, .count = 1, .overlap = 4},
                                    {.every = 4, .count = 1, .overlap = -1}};
    struct why why = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(fragments_check(&bad[i], &why), ERR_INVALID);
    assert_true(why.text[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_per_h), cmocka_unit_test(test_spread), cmocka_unit_test(test_under_way),
        cmocka_unit_test(test_pure),       cmocka_unit_test(test_change), cmocka_unit_test(test_first_round),
        cmocka_unit_test(test_under_way_in_a_profile), cmocka_unit_test(test_layers), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
