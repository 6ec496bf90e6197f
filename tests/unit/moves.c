/*
 * What people, and the ends of leases, do with hosts. Replica 0, and replica 1 with one stage, are on host a; the other stage of replica 1,
 * and replica 2, on host b.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "tests/helpers/trio.h"

static struct wire_reply order(enum order_kind kind, const char *host, const char *by)
{
    struct wire_order wanted = {.kind = (uint8_t)kind, .who = "ann@shore"};
    struct wire_reply reply = {0};
    snprintf(wanted.name, sizeof wanted.name, "%s", host);
    snprintf(wanted.value, sizeof wanted.value, "%s", by);
    run_order(trio.run, &wanted, &reply);
    return reply;
}

static void refused(enum order_kind kind, const char *host, const char *by, const char *words)
{
    struct wire_reply reply = order(kind, host, by);
    if (reply.err != ERR_REFUSED || !strstr(reply.text, words))
        fail_msg("%d, '%s' and not '%s'", reply.err, reply.text, words);
}

static void round_ends(int replica, int stage, uint64_t round)
{
    trio_say(trio_stage_at(replica, stage), WIRE_OUTER, &(struct wire_outer){.round = round, .hash = 7 * round, .contributors = TRIO_REPLICAS});
}

static const struct wire_ledger_row *ledger(uint64_t id)
{
    return &record_find_ledger(trio.record, id)->row;
}

static int use_of(int host)
{
    return trio.record->hosts[host].row.use;
}

/* All that replicas 1 and 2 are ends; replica 0 says what it had of them. */
static void end_two(void)
{
    for (int r = 1; r < TRIO_REPLICAS; r++)
        for (int s = 0; s < TRIO_STAGES; s++) {
            trio_killed(trio_stage_at(r, s));
            trio_parted(0, s, r, 5, false);
        }
}

static void a_drained_host_stays_empty(void **state)
{
    (void)state;
    struct wire_reply reply = order(ORDER_DRAIN, "b", "");
    assert_int_equal(reply.err, 0);
    assert_string_equal(ledger(reply.ledger)->who, "ann@shore");
    assert_int_equal(ledger(reply.ledger)->state, LEDGER_PROPOSED);
    assert_int_equal(use_of(1), HOST_MOVES);
    refused(ORDER_DRAIN, "a", "", "host b is just being drained; one host at a time");
    for (int r = 0; r < TRIO_REPLICAS; r++)
        for (int s = 0; s < TRIO_STAGES; s++) {
            assert_false(trio_happened("replica-left", "")); /* not before all have ended the round */
            round_ends(r, s, 4);
        }
    assert_true(trio_happened("replica-left", "replica 1 leaves the run: ann@shore drains host b; 2 of 3 replicas go on"));
    assert_true(trio_happened("replica-left", "replica 2 leaves the run: ann@shore drains host b; 1 of 3 replicas go on"));
    assert_int_equal(use_of(1), HOST_MOVES);
    end_two();
    trio_pass(2);
    assert_int_equal(use_of(1), HOST_DRAINED);
    assert_int_equal(ledger(reply.ledger)->state, LEDGER_ACTIVE);
    assert_true(trio_happened("host", "host b is drained: nothing of the run is there but its agent"));
    refused(ORDER_DRAIN, "a", "", "nobody would be left");
    assert_string_equal(order(ORDER_DRAIN, "b", "").text, "host b is drained already");
    trio_pass(700);
    assert_false(trio_happened("replica-starts", ""));
    run_gone(trio.run, &trio.handles[1], ERR_GONE, "the connection was closed"); /* it is switched off */
    trio_pass(700);
    assert_false(trio_happened("silent", ""));
    run_free(trio.run);
    trio.run = run_new(&trio.profile, &trio.plan, 7, trio.record, NULL, &trio_sink, NULL);
    for (int i = 0; i < TRIO_ALL; i++)
        if (i == 0 || i == trio_stage_at(0, 0) || i == trio_stage_at(0, 1))
            trio_hello(i);
    trio_pass(20);
    assert_int_equal(use_of(1), HOST_DRAINED);
    assert_false(trio_happened("replica-starts", ""));
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
}

static void no_round_is_waited_for_without_an_end(void **state)
{
    (void)state;
    assert_int_equal(order(ORDER_DRAIN, "b", "").err, 0);
    trio_pass(30);
    assert_true(trio_happened("host", "no round of its replicas has ended everywhere"));
    assert_true(trio_happened("replica-left", "1 of 3 replicas go on"));
    trio.sent_count = 0;
    trio_pass(10);
    assert_true(trio_count(1, WIRE_SIGNAL) > 0); /* said again until they are gone */
    trio_pass(150);
    assert_true(trio_happened("host", "host b: its processes do not end; its agent may be away"));
    assert_int_equal(use_of(1), HOST_USED);
}

/* Host b is restarted though replicas do not come back by themselves in this run. */
static void a_restarted_host_comes_back(void **state)
{
    (void)state;
    struct wire_reply reply = order(ORDER_RESTART, "b", "");
    assert_int_equal(reply.err, 0);
    for (int s = 0; s < TRIO_STAGES; s++)
        for (int r = 0; r < TRIO_REPLICAS; r++)
            round_ends(r, s, 9);
    end_two();
    trio_pass(4);
    assert_true(trio_happened("replica-starts", "replica 1 is started again"));
    assert_int_equal(trio.sent[trio_newest(1, WIRE_SPAWN)].of.spawn.incarnation, 2);
    assert_int_equal(ledger(reply.ledger)->state, LEDGER_PROPOSED);
    assert_int_equal(use_of(1), HOST_USED);
    trio_pass(300);
    assert_true(trio_happened("join-failed", ""));
}

/* Replica 2 alone is on host b, which c takes the place of; a new scheduler in the middle of it goes on. */
static void a_spare_takes_the_place(void **state)
{
    (void)state;
    run_free(trio.run);
    record_free(trio.record);
    snprintf(trio.profile.hosts[1].name, sizeof trio.profile.hosts[1].name, "b");
    assert_non_null(profile_add_host(&trio.profile, "c", NULL));
    trio.profile.hosts[2].spare = true;
    trio_begin();
    struct wire_hello agent = {.version = WIRE_VERSION, .role = ROLE_AGENT, .program = "test", .name = "agent@c", .host = "c", .pid = 99};
    int road = TRIO_ALL;
    assert_int_equal(use_of(2), HOST_SPARE);
    refused(ORDER_REPLACE, "b", "c", "agent@c is away");
    assert_int_equal(run_hello(trio.run, &road, &agent, 1, NULL), 0);
    refused(ORDER_REPLACE, "b", "x", "spare = yes");
    refused(ORDER_REPLACE, "b", "b", "cannot take its own place");
    refused(ORDER_REPLACE, "b", "a", "has processes of the run");
    refused(ORDER_RESTART, "c", "", "there is nothing to restart");
    struct wire_reply reply = order(ORDER_REPLACE, "b", "c");
    assert_int_equal(reply.err, 0);
    for (int s = 0; s < TRIO_STAGES; s++)
        for (int r = 0; r < TRIO_REPLICAS; r++)
            round_ends(r, s, 9);
    end_two();
    trio_pass(1);
    assert_int_equal(use_of(1), HOST_DRAINED);
    assert_int_equal(use_of(2), HOST_USED);
    run_free(trio.run);
    trio.run = run_new(&trio.profile, &trio.plan, 7, trio.record, NULL, &trio_sink, NULL);
    assert_string_equal(record_find_process(trio.record, "r2s1")->row.host, "c");
    assert_int_equal(ledger(reply.ledger)->state, LEDGER_PROPOSED);
    assert_int_equal(run_hello(trio.run, &road, &agent, 1, NULL), 0);
    int stay[] = {0, 1, trio_stage_at(0, 0), trio_stage_at(0, 1)};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        trio_hello(stay[i]);
    for (int r = 1; r < TRIO_REPLICAS; r++)
        for (int s = 0; s < TRIO_STAGES; s++)
            trio_parted(0, s, r, 5, true);
    trio_pass(4);
    assert_true(trio_happened("replica-starts", "replica 1 is started again"));
    assert_int_equal(trio_count(TRIO_ALL, WIRE_SPAWN), 3); /* at the agent of c: r1s1 by the former kedged, all of replica 2 by this one */
    assert_int_equal(trio_count(1, WIRE_SPAWN), 0);
    assert_int_equal(trio_count(0, WIRE_SPAWN), 1); /* r1s0 */
    trio.profile.host_count = 2;
}

static void what_nobody_else_has_is_never_ended(void **state)
{
    (void)state;
    refused(ORDER_DRAIN, "z", "", "there is no host 'z' in this run");
    run_free(trio.run);
    record_free(trio.record);
    trio.profile.sync_every = trio.profile.sync_fragments = 1;
    trio.profile.sync_overlap = 0;
    trio.profile.sync_outer = OUTER_NONE;
    trio_begin();
    refused(ORDER_RESTART, "b", "", "average gradients");
    assert_int_equal(trio.record->newest_ledger, 0);
}

/* The lease of the host of the two lowest ends: the third writes the weights, the host is drained, and the third goes on alone. */
static void the_end_of_a_lease_drains(void **state)
{
    struct wire_saved saved = {.step = 1, .bytes = 1000, .hash = 1};
    (void)state;
    run_free(trio.run);
    record_free(trio.record);
    trio.profile.hosts[0].lease_until_s = clock_wall_ms() / 1000 + 600;
    trio_begin();
    assert_true(trio_host_of(trio_stage_at(0, 0)) == 0 && trio_host_of(trio_stage_at(1, 0)) == 0 && trio_host_of(trio_stage_at(2, 0)) == 1);
    trio_pass(560);
    assert_int_equal(trio_count(trio_stage_at(2, 0), WIRE_SAVE), 0);
    trio_pass(15); /* 20 s are for leaving, a timeout of 10 s and a little for saving */
    assert_true(trio_happened("lease", "the lease of host a ends at 20") && trio_happened("lease", ": the weights are saved, then the host is drained"));
    assert_true(trio_count(trio_stage_at(2, 0), WIRE_SAVE) == 1 && trio_count(trio_stage_at(0, 0), WIRE_SAVE) == 0);
    snprintf(saved.file, sizeof saved.file, "r2s0.safetensors");
    trio_say(trio_stage_at(2, 0), WIRE_SAVED, &saved);
    assert_false(trio_happened("host", "drains host a"));
    snprintf(saved.file, sizeof saved.file, "r2s1.safetensors");
    trio_say(trio_stage_at(2, 1), WIRE_SAVED, &saved);
    assert_true(trio.sets == 1 && trio.newest_set.replica == 2);
    trio_pass(1);
    assert_true(trio_happened("host", "the lease of host a drains host a: replicas 0, 1"));
    trio_pass(5); /* no round ends */
    assert_true(trio_happened("replica-left", "replica 0 leaves the run: the lease of host a drains host a"));
    assert_true(trio_happened("replica-left", "replica 1 leaves the run: the lease of host a drains host a; 1 of 3 replicas go on"));
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < TRIO_STAGES; s++)
            trio_killed(trio_stage_at(r, s));
    trio_pass(2);
    assert_true(trio_happened("host", "host a is drained"));
    trio_pass(1000);
    assert_int_equal(trio.record->state.row.phase, PHASE_TRAINING);
    assert_int_equal(trio_count(trio_stage_at(2, 0), WIRE_SAVE), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        trio_test(the_end_of_a_lease_drains),
        trio_test(no_round_is_waited_for_without_an_end),
        trio_test(a_restarted_host_comes_back),
        trio_test(a_spare_takes_the_place),
        trio_test(what_nobody_else_has_is_never_ended),
        trio_test_rejoin(a_drained_host_stays_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
