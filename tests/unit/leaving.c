/*
 * Replicas that leave: who is asked, what is made of the answers in any order, who leaves after a partition, and when a run
 * has to hold. And that come back: what is said to whom on the way, what ends it, and how often it is tried. Three replicas of two stages on two hosts, without any network; the test speaks for all of them.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/run.h"
#include "ssh/base/clock.h"
#include "tests/helpers/dice.h"

enum { REPLICAS = 3, STAGES = 2, AGENTS = 2, ALL = AGENTS + REPLICAS * STAGES, MOST_SENT = 2000 };

static struct profile profile;
static struct plan plan;
static struct record *record;
static struct run *run;
static int handles[ALL + 1]; /* the address is the handle, the value the process */
static struct {
    int process;
    enum wire_type type;
    struct wire_part part;
    struct wire_leave leave;
    struct wire_signal order;
    struct wire_spawn spawn;
    struct wire_assign assign;
    struct wire_road road;
    struct wire_start start;
} sent[MOST_SENT];
static int sent_count;
static uint32_t life[ALL]; /* incarnations */
static struct saving newest_set;
static int sets;

static int stage_at(int replica, int stage)
{
    return AGENTS + replica * STAGES + stage;
}

static const char *name_of(int process)
{
    static char name[16];
    if (process < AGENTS)
        snprintf(name, sizeof name, "agent@%c", 'a' + process);
    else
        snprintf(name, sizeof name, "r%ds%d", (process - AGENTS) / STAGES, (process - AGENTS) % STAGES);
    return name;
}

static int host_of(int process)
{
    return process < AGENTS ? process : plan.stages[process - AGENTS].host;
}

static void on_send(void *handle, enum wire_type type, const void *payload, void *arg)
{
    (void)arg;
    assert_true(sent_count < MOST_SENT);
    sent[sent_count].process = *(int *)handle;
    sent[sent_count].type = type;
    if (type == WIRE_PART)
        sent[sent_count].part = *(const struct wire_part *)payload;
    if (type == WIRE_LEAVE)
        sent[sent_count].leave = *(const struct wire_leave *)payload;
    if (type == WIRE_SIGNAL)
        sent[sent_count].order = *(const struct wire_signal *)payload;
    if (type == WIRE_SPAWN)
        sent[sent_count].spawn = *(const struct wire_spawn *)payload;
    if (type == WIRE_ASSIGN)
        sent[sent_count].assign = *(const struct wire_assign *)payload;
    if (type == WIRE_ROAD)
        sent[sent_count].road = *(const struct wire_road *)payload;
    if (type == WIRE_START)
        sent[sent_count].start = *(const struct wire_start *)payload;
    sent_count++;
}

static void on_close(void *handle, int err, const char *reason, void *arg)
{
    (void)handle, (void)err, (void)arg;
    fail_msg("a road is closed: %s", reason);
}

static uint64_t on_heard(void *handle, void *arg)
{
    (void)handle, (void)arg;
    return 0;
}

static bool on_clock(void *handle, int64_t *offset_ns, uint64_t *rtt_ns, void *arg)
{
    (void)handle, (void)offset_ns, (void)rtt_ns, (void)arg;
    return false;
}

static void on_sample(const char *process, const struct wire_sample *sample, void *arg)
{
    (void)process, (void)sample, (void)arg;
}

static void on_road_sample(const char *process, const struct wire_road_sample *sample, void *arg)
{
    (void)process, (void)sample, (void)arg;
}

static int on_saved(const struct saving *saving, void *arg, struct why *why)
{
    (void)arg, (void)why;
    newest_set = *saving;
    sets++;
    return 0;
}

static const struct run_sink sink = {on_send, on_close, on_heard, on_clock, on_sample, on_road_sample, on_saved, NULL};

static void say(int process, enum wire_type type, const void *payload)
{
    struct why why = {0};
    if (run_message(run, &handles[process], type, payload, &why) < 0)
        fail_msg("%s: %s", name_of(process), why.text);
}

static void hello(int process)
{
    struct wire_hello hello = {.version = WIRE_VERSION, .role = process < AGENTS ? ROLE_AGENT : ROLE_STAGE,
                               .program = "test",
                               .announce = "127.0.0.1:7000", .pid = 1000u + (uint32_t)process};
    struct why why = {0};
    snprintf(hello.name, sizeof hello.name, "%s", name_of(process));
    snprintf(hello.host, sizeof hello.host, "%c", 'a' + host_of(process));
    if (run_hello(run, &handles[process], &hello, life[process], &why) < 0)
        fail_msg("%s", why.text);
    run_welcome(run, &handles[process]);
}

static void begin(void)
{
    struct why why = {0};
    assert_int_equal(plan_make_for(&profile, 4, &plan, &why), 0);
    record = record_new();
    run = run_new(&profile, &plan, 7, record, NULL, &sink, NULL);
    sets = 0;
    for (int i = 0; i < ALL; i++) {
        handles[i] = i;
        life[i] = 1;
        hello(i);
    }
    for (int state = READY_LOADED; state <= READY_ROADS; state++)
        for (int i = AGENTS; i < ALL; i++)
            say(i, WIRE_READY, &(struct wire_ready){.state = (uint8_t)state});
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    sent_count = 0;
}

static int set_up(void **state)
{
    (void)state;
    clock_own(5000 * CLOCK_SECOND);
    profile_defaults(&profile);
    snprintf(profile.name, sizeof profile.name, "laptop");
    profile.stages = STAGES;
    profile.replicas = REPLICAS;
    profile.rejoin = false;
    assert_non_null(profile_add_host(&profile, "a", NULL));
    assert_non_null(profile_add_host(&profile, "b", NULL));
    begin();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    run_free(run);
    record_free(record);
    clock_disown();
    return 0;
}

static void pass(double seconds)
{
    for (int i = 0; i < (int)(4 * seconds); i++) {
        clock_advance_ns(CLOCK_SECOND / 4);
        run_tick(run);
    }
}

static void killed(int process)
{
    struct wire_process report = {.incarnation = life[process], .state = PROCESS_EXITED, .exit_code = -1, .signal = SIGKILL};
    snprintf(report.process, sizeof report.process, "%s", name_of(process));
    run_gone(run, &handles[process], ERR_GONE, "the connection was closed");
    say(host_of(process), WIRE_PROCESS, &report);
}

static void parted(int replica, int stage, int from, uint64_t received, bool decided)
{
    say(stage_at(replica, stage), WIRE_PARTED,
        &(struct wire_parted){.replica = (uint16_t)from, .life = life[stage_at(from, 0)], .received = received, .decided = decided});
}

static int count(int process, enum wire_type type)
{
    int found = 0;
    for (int i = 0; i < sent_count; i++)
        found += sent[i].process == process && sent[i].type == type;
    return found;
}

/* The newest LEAVE of a replica to a process; UINT64_MAX = none. */
static uint64_t leave_to(int process, int replica)
{
    uint64_t found = UINT64_MAX;
    for (int i = 0; i < sent_count; i++)
        if (sent[i].process == process && sent[i].type == WIRE_LEAVE && sent[i].leave.replica == replica)
            found = sent[i].leave.count;
    return found;
}

static bool happened(const char *code, const char *words)
{
    for (int i = 0; i < RECORD_EVENTS; i++)
        if (strcmp(record->events[i].row.code, code) == 0 && strstr(record->events[i].row.text, words))
            return true;
    return false;
}

static void the_least_counts_for_each_stage(void **state)
{
    (void)state;
    killed(stage_at(2, 1));
    assert_true(happened("replica-left",
                         "replica 2 leaves the run: r2s1 on host b was killed by signal 9 (Killed); 2 of 3 replicas go on"));
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < STAGES; s++)
            assert_int_equal(count(stage_at(r, s), WIRE_PART), 1);
    assert_int_equal(count(host_of(stage_at(2, 0)), WIRE_SIGNAL), 1); /* the rest of it is of no use */
    parted(0, 0, 2, 5, false);
    parted(1, 1, 2, 7, false);
    assert_true(leave_to(stage_at(0, 0), 2) == UINT64_MAX && leave_to(stage_at(1, 1), 2) == UINT64_MAX);
    parted(1, 0, 2, 4, false);
    assert_true(leave_to(stage_at(0, 0), 2) == 4 && leave_to(stage_at(1, 0), 2) == 4 && leave_to(stage_at(0, 1),
        2) == UINT64_MAX);
    parted(0, 1, 2, 8, false);
    assert_true(leave_to(stage_at(0, 1), 2) == 7 && leave_to(stage_at(1, 1), 2) == 7);
    killed(stage_at(2, 0)); /* its end is no news any more */
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
}

static void who_leaves_meanwhile_is_not_waited_for(void **state)
{
    (void)state;
    killed(stage_at(2, 0));
    parted(0, 0, 2, 9, false);
    parted(0, 1, 2, 9, false);
    killed(stage_at(1, 0));
    assert_true(leave_to(stage_at(0, 0), 2) == 9 && leave_to(stage_at(0, 1), 2) == 9);
    parted(0, 0, 1, 3, false);
    assert_int_equal(leave_to(stage_at(0, 0), 1), 3);
    assert_true(happened("replica-left", "1 of 3 replicas go on"));
    killed(stage_at(0, 1)); /* nobody is left to go on */
    assert_int_equal(record->state.row.phase, PHASE_HOLDING);
    assert_non_null(strstr(record->state.row.reason, "r0s1 on host a was killed by signal 9"));
}

/* A neighbour is often faster than the agent: the agent's word is the better reason, and is waited for, but not for long. */
static void a_broken_cut(void **state)
{
    (void)state;
    struct wire_event lost = {.level = EVENT_ALERT, .code = "peer-lost", .text = "lost r1s1: connection reset"};
    say(stage_at(1, 0), WIRE_EVENT, &lost);
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    assert_int_equal(count(stage_at(0, 0), WIRE_PART), 0);
    killed(stage_at(1, 1));
    assert_true(happened("replica-left", "replica 1 leaves the run: r1s1 on host"));
    say(stage_at(2, 0), WIRE_EVENT, &(struct wire_event){.level = EVENT_ALERT, .code = "peer-lost",
                                                         .text = "lost r2s1: no route"});
    pass(5);
    assert_true(happened("replica-left", "lost r2s1: no route"));
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    assert_int_equal(count(host_of(stage_at(2, 0)), WIRE_SIGNAL) + count(host_of(stage_at(2, 1)), WIRE_SIGNAL) > 0, 1);
}

static void lost(int replica, int stage, int other)
{
    say(stage_at(replica, stage), WIRE_PART, &(struct wire_part){.replica = (uint16_t)other});
}

static void one_side_of_a_partition_leaves(void **state)
{
    (void)state;
    lost(0, 0, 1); /* replica 0 and 2 see each other, 1 sees nobody */
    lost(1, 0, 0);
    lost(1, 1, 2);
    lost(2, 1, 1);
    pass(1);
    assert_false(happened("replica-left", ""));
    pass(5);
    assert_true(happened("replica-left", "replica 1 leaves the run: 2 of its siblings lost their roads to it"));
    assert_false(happened("replica-left", "replica 0 leaves"));
    assert_false(happened("replica-left", "replica 2 leaves"));
    lost(0, 1, 2); /* of two that lost each other the higher one */
    lost(2, 1, 0);
    pass(5);
    assert_true(happened("replica-left", "replica 2 leaves"));
    assert_false(happened("replica-left", "replica 0 leaves"));
}

static void who_comes_back_hears_it_again(void **state)
{
    (void)state;
    killed(stage_at(2, 0));
    for (int s = 0; s < STAGES; s++) {
        parted(0, s, 2, 5, false);
        parted(1, s, 2, 6, false);
    }
    sent_count = 0;
    run_gone(run, &handles[stage_at(1, 0)], ERR_GONE, "the connection was closed");
    hello(stage_at(1, 0));
    assert_int_equal(count(stage_at(1, 0), WIRE_PART), 1);
    parted(1, 0, 2, 6, false); /* the LEAVE was lost with the road */
    assert_int_equal(leave_to(stage_at(1, 0), 2), 5);
}

/* Another kedged asks all again; what the former one decided stands, whatever the others count. */
static void a_new_scheduler_decides_the_same(void **state)
{
    (void)state;
    killed(stage_at(2, 0));
    killed(stage_at(2, 1));
    run_free(run);
    sent_count = 0;
    run = run_new(&profile, &plan, 7, record, NULL, &sink, NULL);
    for (int i = 0; i < AGENTS; i++)
        hello(i);
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < STAGES; s++)
            hello(stage_at(r, s));
    for (int r = 0; r < 2; r++)
        assert_int_equal(count(stage_at(r, 0), WIRE_PART), 1);
    parted(0, 0, 2, 4, true);
    parted(1, 0, 2, 6, false);
    assert_int_equal(leave_to(stage_at(1, 0), 2), 4);
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
}

static void saved(int replica, int stage)
{
    struct wire_saved message = {.step = (uint64_t)profile.steps, .bytes = 1};
    snprintf(message.file, sizeof message.file, "r%ds%d.safetensors", replica, stage);
    say(stage_at(replica, stage), WIRE_SAVED, &message);
}

static void the_others_finish(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < STAGES; s++)
            say(stage_at(r, s), WIRE_DONE, &(struct wire_done){.step = (uint64_t)profile.steps});
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    killed(stage_at(2, 1));
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    saved(0, 0);
    saved(0, 1);
    assert_int_equal(record->state.row.phase, PHASE_FINISHED);
}

/* The lowest one dies while it writes the last weights: all are done, and the run is not before the next one has written them, all of them. */
static void the_next_one_writes_the_last_weights(void **state)
{
    (void)state;
    saved(0, 0);
    for (int r = 0; r < REPLICAS; r++)
        for (int s = 0; s < STAGES; s++)
            if (r > 0 || s > 0)
                say(stage_at(r, s), WIRE_DONE, &(struct wire_done){.step = (uint64_t)profile.steps});
    killed(stage_at(0, 0));
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    saved(0, 1); /* a last word of who has left */
    assert_int_equal(sets, 0);
    saved(1, 1);
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    assert_int_equal(sets, 0);
    saved(1, 0);
    assert_int_equal(sets, 1);
    assert_int_equal(newest_set.replica, 1);
    assert_string_equal(newest_set.files[STAGES].file, "r1s0.safetensors");
    assert_string_equal(newest_set.files[STAGES + 1].file, "r1s1.safetensors");
    assert_int_equal(record->state.row.phase, PHASE_FINISHED);
}

/* Weights of who was the lowest when they were asked for are a set, whoever is the lowest now; what two replicas say makes none. */
static void a_set_is_of_one_replica(void **state)
{
    (void)state;
    saved(0, 0);
    saved(1, 1);
    assert_int_equal(sets, 0);
    saved(1, 0);
    assert_int_equal(sets, 1);
    assert_int_equal(newest_set.replica, 1);
    saved(0, 0);
    saved(0, 1);
    assert_int_equal(sets, 1); /* of that step there is one */
}

static void averaged_gradients_need_everybody(void **state)
{
    run_free(run);
    record_free(record);
    (void)state;
    profile.sync_every = 1;
    profile.sync_fragments = 1;
    profile.sync_overlap = 0;
    profile.sync_outer = OUTER_NONE;
    begin();
    killed(stage_at(2, 0));
    assert_int_equal(record->state.row.phase, PHASE_HOLDING);
    assert_false(happened("replica-left", ""));
}

/* Deaths, answers, lost roads and returns in any order: every stage of who is here gets one and the same number, never more
 * than what any of them that is still here has. */
static void any_order(void **state)
{
    (void)state;
    struct dice dice = {.state = 11};
    for (int trial = 0; trial < 200; trial++) {
        run_free(run);
        record_free(record);
        begin();
        int dead[2] = {(int)dice_below(&dice, REPLICAS), 0};
        dead[1] = (dead[0] + 1 + (int)dice_below(&dice, REPLICAS - 1)) % REPLICAS;
        int last = REPLICAS - dead[0] - dead[1];
        uint64_t has[REPLICAS];
        for (int r = 0; r < REPLICAS; r++)
            has[r] = dice_below(&dice, 9);
        killed(stage_at(dead[0], (int)dice_below(&dice, STAGES)));
        bool first = dice_below(&dice, 2), second = dice_below(&dice, 2);
        if (first)
            parted(last, 0, dead[0], has[last], false);
        if (second)
            parted(dead[1], 0, dead[0], has[dead[1]], false);
        uint64_t decided = leave_to(stage_at(last, 0), dead[0]);
        assert_int_equal(decided != UINT64_MAX, first && second);
        killed(stage_at(dead[1], (int)dice_below(&dice, STAGES)));
        if (!first)
            parted(last, 0, dead[0], has[last], false);
        uint64_t told = leave_to(stage_at(last, 0), dead[0]);
        assert_true(told != UINT64_MAX && told <= has[last] && (decided == UINT64_MAX || told == decided));
        assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    }
}

/* ---- coming back ---- */

static int set_up_rejoin(void **state)
{
    set_up(state);
    run_free(run);
    record_free(record);
    profile.rejoin = true;
    begin();
    return 0;
}

/* Replica 2 is dead, and all know it. */
static void all_gone(void)
{
    for (int s = 0; s < STAGES; s++)
        if (record_find_process(record, name_of(stage_at(2, s)))->row.state != PROCESS_EXITED)
            killed(stage_at(2, s));
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < STAGES; s++)
            parted(r, s, 2, 5, false);
}

static int newest(int process, enum wire_type type)
{
    int found = -1;
    for (int i = 0; i < sent_count; i++)
        found = sent[i].process == process && sent[i].type == type ? i : found;
    return found;
}

static void ready(int state)
{
    for (int s = 0; s < STAGES; s++)
        say(stage_at(2, s), WIRE_READY, &(struct wire_ready){.state = (uint8_t)state});
}

/* Up to the moment when its stages copy. */
static void come(void)
{
    sent_count = 0;
    for (int s = 0; s < STAGES; s++) {
        life[stage_at(2, s)]++;
        hello(stage_at(2, s));
        assert_int_equal(sent[newest(stage_at(2, s), WIRE_ASSIGN)].assign.members, 3);
    }
    ready(READY_LOADED);
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < STAGES; s++) {
            const struct wire_road *road = &sent[newest(stage_at(r, s), WIRE_ROAD)].road;
            assert_true(road->side == ROAD_SIBLING && road->replica == 2 && road->life == life[stage_at(2, s)]);
        }
    assert_int_equal(count(stage_at(2, 0), WIRE_ROAD), 3);
    assert_int_equal(count(stage_at(2, 0), WIRE_JOIN), 0);
    ready(READY_ROADS);
    for (int s = 0; s < STAGES; s++)
        assert_int_equal(count(stage_at(2, s), WIRE_JOIN), 1);
}

static void enter(int process, uint64_t step)
{
    say(process, WIRE_ENTERED,
        &(struct wire_entered){.replica = 2, .life = life[stage_at(2, 0)], .step = step, .round = 17});
}

static void it_comes_back(void **state)
{
    (void)state;
    killed(stage_at(2, 0));
    pass(2);
    assert_false(happened("replica-starts", "")); /* its other stage is still there, and its siblings have not answered */
    all_gone();
    pass(2);
    assert_true(happened("replica-starts", "replica 2 is started again"));
    for (int s = 0; s < STAGES; s++)
        assert_int_equal(sent[newest(host_of(stage_at(2, s)), WIRE_SPAWN)].spawn.incarnation, 2);
    come();
    assert_int_equal(count(stage_at(0, 0), WIRE_JOIN), 0);
    ready(READY_COPIED);
    assert_int_equal(count(stage_at(0, 0), WIRE_JOIN), 1);
    assert_int_equal(count(stage_at(1, 0), WIRE_JOIN), 0);
    enter(stage_at(1, 0), 40);
    enter(stage_at(0, 0), 40);
    assert_int_equal(count(stage_at(2, 0), WIRE_START), 0);
    ready(READY_JOINED);
    assert_true(happened("replica-joined", "replica 2 joined at step 40, round 17; 3 of 3 replicas train"));
    for (int s = 0; s < STAGES; s++)
        assert_int_equal(sent[newest(stage_at(2, s), WIRE_START)].start.first_step, 40);
    sent_count = 0;
    run_gone(run, &handles[stage_at(2, 1)], ERR_GONE, "nothing heard for 2.5 s");
    hello(stage_at(2, 1));
    assert_int_equal(count(stage_at(2, 1), WIRE_LEAVE), 0); /* of its former life the others hear, not it */
    run_gone(run, &handles[stage_at(1, 1)], ERR_GONE, "nothing heard for 2.5 s");
    hello(stage_at(1, 1));
    assert_int_equal(sent[newest(stage_at(1, 1), WIRE_LEAVE)].leave.life, 1);
    killed(stage_at(2, 1)); /* and is a replica as any other */
    assert_int_equal(sent[newest(stage_at(0, 1), WIRE_PART)].part.life, 2);
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
}

static void the_lowest_dies_meanwhile(void **state)
{
    (void)state;
    all_gone();
    pass(2);
    come();
    ready(READY_COPIED);
    killed(stage_at(0, 0));
    pass(2);
    assert_true(count(stage_at(1, 0), WIRE_JOIN) > 0);
    enter(stage_at(1, 0), 50);
    ready(READY_JOINED);
    assert_true(happened("replica-joined", "replica 2 joined at step 50, round 17; 2 of 3 replicas train"));
}

static void who_dies_on_the_way_is_tried_again(void **state)
{
    (void)state;
    for (uint32_t tried = 1; tried <= 3; tried++) {
        all_gone();
        pass(10);
        sent_count = 0;
        come();
        if (tried == 2)
            ready(READY_COPIED);
        killed(stage_at(2, tried % 2));
        assert_true(happened("join-failed", "replica 2 did not join: r2s"));
        for (int s = 0; s < STAGES; s++)
            assert_int_equal(sent[newest(stage_at(1, s), WIRE_PART)].part.life, life[stage_at(2, s)]);
        sent_count = 0;
        say(stage_at(0, 0), WIRE_PARTED, &(struct wire_parted){.replica = 2, .life = tried, .received = 1}); /* old news */
        say(stage_at(1, 0), WIRE_PARTED, &(struct wire_parted){.replica = 2, .life = tried, .received = 1});
        assert_true(leave_to(stage_at(0, 0), 2) == UINT64_MAX);
    }
    sent_count = 0;
    all_gone();
    assert_int_equal(leave_to(stage_at(0, 0), 2), 5);
    pass(10);
    assert_true(happened("replica-down", "replica 2 ended 3 more times within ten minutes"));
    assert_int_equal(count(host_of(stage_at(2, 0)), WIRE_SPAWN), 0);
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
}

static void no_wait_without_an_end(void **state)
{
    (void)state;
    all_gone();
    pass(2);
    come();
    ready(READY_COPIED);
    pass(1000); /* nobody waits for it yet */
    assert_false(happened("join-failed", ""));
    enter(stage_at(0, 0), 60);
    pass(119);
    assert_false(happened("join-failed", ""));
    pass(3);
    assert_true(happened("join-failed", "it was let in and did not begin within 2 m"));
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
}

static void a_road_of_one_that_joins(void **state)
{
    (void)state;
    all_gone();
    pass(2);
    come();
    lost(1, 0, 2);
    pass(1);
    assert_false(happened("join-failed", ""));
    pass(5);
    assert_true(happened("join-failed", "a road to one of its siblings is lost"));
}

static void who_was_away_hears_of_the_former_life(void **state)
{
    (void)state;
    all_gone();
    pass(2);
    come();
    sent_count = 0;
    run_gone(run, &handles[stage_at(1, 0)], ERR_GONE, "the connection was closed");
    hello(stage_at(1, 0));
    assert_int_equal(leave_to(stage_at(1, 0), 2), 5);
    assert_int_equal(sent[newest(stage_at(1, 0), WIRE_LEAVE)].leave.life, 1);
    assert_int_equal(count(stage_at(1, 0), WIRE_PART), 0);
}

/* What was under way when the scheduler died is given up, and tried again by the next one. */
static void a_new_scheduler_tries_again(void **state)
{
    (void)state;
    all_gone();
    pass(2);
    come();
    run_free(run);
    sent_count = 0;
    run = run_new(&profile, &plan, 7, record, NULL, &sink, NULL);
    for (int i = 0; i < ALL; i++)
        hello(i);
    pass(2);
    assert_true(count(host_of(stage_at(2, 0)), WIRE_SIGNAL) > 0);
    for (int s = 0; s < STAGES; s++) {
        killed(stage_at(2, s));
        parted(0, s, 2, 0, false);
        parted(1, s, 2, 0, false);
    }
    pass(2);
    assert_int_equal(sent[newest(host_of(stage_at(2, 0)), WIRE_SPAWN)].spawn.incarnation, 3);
    come();
}

/* ---- what people do with hosts: 0, and 1 with one stage, are on host a; the other one of 1, and 2, on host b ---- */

static struct wire_reply order(enum order_kind kind, const char *host, const char *by)
{
    struct wire_order wanted = {.kind = (uint8_t)kind, .who = "ann@shore"};
    struct wire_reply reply = {0};
    snprintf(wanted.name, sizeof wanted.name, "%s", host);
    snprintf(wanted.value, sizeof wanted.value, "%s", by);
    run_order(run, &wanted, &reply);
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
    say(stage_at(replica, stage), WIRE_OUTER, &(struct wire_outer){.round = round, .hash = 7 * round, .contributors = REPLICAS});
}

static const struct wire_ledger_row *ledger(uint64_t id)
{
    return &record_find_ledger(record, id)->row;
}

static int use_of(int host)
{
    return record->hosts[host].row.use;
}

/* All that replicas 1 and 2 are ends; replica 0 says what it had of them. */
static void end_two(void)
{
    for (int r = 1; r < REPLICAS; r++)
        for (int s = 0; s < STAGES; s++) {
            killed(stage_at(r, s));
            parted(0, s, r, 5, false);
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
    for (int r = 0; r < REPLICAS; r++)
        for (int s = 0; s < STAGES; s++) {
            assert_false(happened("replica-left", "")); /* not before all have ended the round */
            round_ends(r, s, 4);
        }
    assert_true(happened("replica-left", "replica 1 leaves the run: ann@shore drains host b; 2 of 3 replicas go on"));
    assert_true(happened("replica-left", "replica 2 leaves the run: ann@shore drains host b; 1 of 3 replicas go on"));
    assert_int_equal(use_of(1), HOST_MOVES);
    end_two();
    pass(2);
    assert_int_equal(use_of(1), HOST_DRAINED);
    assert_int_equal(ledger(reply.ledger)->state, LEDGER_ACTIVE);
    assert_true(happened("host", "host b is drained: nothing of the run is there but its agent"));
    refused(ORDER_DRAIN, "a", "", "nobody would be left");
    assert_string_equal(order(ORDER_DRAIN, "b", "").text, "host b is drained already");
    pass(700);
    assert_false(happened("replica-starts", ""));
    run_gone(run, &handles[1], ERR_GONE, "the connection was closed"); /* it is switched off */
    pass(700);
    assert_false(happened("silent", ""));
    run_free(run);
    run = run_new(&profile, &plan, 7, record, NULL, &sink, NULL);
    for (int i = 0; i < ALL; i++)
        if (i == 0 || i == stage_at(0, 0) || i == stage_at(0, 1))
            hello(i);
    pass(20);
    assert_int_equal(use_of(1), HOST_DRAINED);
    assert_false(happened("replica-starts", ""));
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
}

static void no_round_is_waited_for_without_an_end(void **state)
{
    (void)state;
    assert_int_equal(order(ORDER_DRAIN, "b", "").err, 0);
    pass(30);
    assert_true(happened("host", "no round of its replicas has ended everywhere"));
    assert_true(happened("replica-left", "1 of 3 replicas go on"));
    sent_count = 0;
    pass(10);
    assert_true(count(1, WIRE_SIGNAL) > 0); /* said again until they are gone */
    pass(150);
    assert_true(happened("host", "host b: its processes do not end; its agent may be away"));
    assert_int_equal(use_of(1), HOST_USED);
}

/* Host b is restarted though replicas do not come back by themselves in this run. */
static void a_restarted_host_comes_back(void **state)
{
    (void)state;
    struct wire_reply reply = order(ORDER_RESTART, "b", "");
    assert_int_equal(reply.err, 0);
    for (int s = 0; s < STAGES; s++)
        for (int r = 0; r < REPLICAS; r++)
            round_ends(r, s, 9);
    end_two();
    pass(4);
    assert_true(happened("replica-starts", "replica 1 is started again"));
    assert_int_equal(sent[newest(1, WIRE_SPAWN)].spawn.incarnation, 2);
    assert_int_equal(ledger(reply.ledger)->state, LEDGER_PROPOSED);
    assert_int_equal(use_of(1), HOST_USED);
    pass(300);
    assert_true(happened("join-failed", ""));
}

/* Replica 2 alone is on host b, which c takes the place of; a new scheduler in the middle of it goes on. */
static void a_spare_takes_the_place(void **state)
{
    (void)state;
    run_free(run);
    record_free(record);
    snprintf(profile.hosts[1].name, sizeof profile.hosts[1].name, "b");
    assert_non_null(profile_add_host(&profile, "c", NULL));
    profile.hosts[2].spare = true;
    begin();
    struct wire_hello agent = {.version = WIRE_VERSION, .role = ROLE_AGENT, .program = "test", .name = "agent@c", .host = "c", .pid = 99};
    int road = ALL;
    assert_int_equal(use_of(2), HOST_SPARE);
    refused(ORDER_REPLACE, "b", "c", "agent@c is away");
    assert_int_equal(run_hello(run, &road, &agent, 1, NULL), 0);
    refused(ORDER_REPLACE, "b", "x", "spare = yes");
    refused(ORDER_REPLACE, "b", "b", "cannot take its own place");
    refused(ORDER_REPLACE, "b", "a", "has processes of the run");
    refused(ORDER_RESTART, "c", "", "there is nothing to restart");
    struct wire_reply reply = order(ORDER_REPLACE, "b", "c");
    assert_int_equal(reply.err, 0);
    for (int s = 0; s < STAGES; s++)
        for (int r = 0; r < REPLICAS; r++)
            round_ends(r, s, 9);
    end_two();
    pass(1);
    assert_int_equal(use_of(1), HOST_DRAINED);
    assert_int_equal(use_of(2), HOST_USED);
    run_free(run);
    run = run_new(&profile, &plan, 7, record, NULL, &sink, NULL);
    assert_string_equal(record_find_process(record, "r2s1")->row.host, "c");
    assert_int_equal(ledger(reply.ledger)->state, LEDGER_PROPOSED);
    assert_int_equal(run_hello(run, &road, &agent, 1, NULL), 0);
    int stay[] = {0, 1, stage_at(0, 0), stage_at(0, 1)};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        hello(stay[i]);
    for (int r = 1; r < REPLICAS; r++)
        for (int s = 0; s < STAGES; s++)
            parted(0, s, r, 5, true);
    pass(4);
    assert_true(happened("replica-starts", "replica 1 is started again"));
    assert_int_equal(count(ALL, WIRE_SPAWN), 3); /* at the agent of c: r1s1 by the former kedged, all of replica 2 by this one */
    assert_int_equal(count(1, WIRE_SPAWN), 0);
    assert_int_equal(count(0, WIRE_SPAWN), 1); /* r1s0 */
    profile.host_count = 2;
}

static void what_nobody_else_has_is_never_ended(void **state)
{
    (void)state;
    refused(ORDER_DRAIN, "z", "", "there is no host 'z' in this run");
    run_free(run);
    record_free(record);
    profile.sync_every = profile.sync_fragments = 1;
    profile.sync_overlap = 0;
    profile.sync_outer = OUTER_NONE;
    begin();
    refused(ORDER_RESTART, "b", "", "average gradients");
    assert_int_equal(record->newest_ledger, 0);
}

/* The lease of the host of the two lowest ends: the third writes the weights, the host is drained, and the third goes on alone. */
static void the_end_of_a_lease_drains(void **state)
{
    struct wire_saved saved = {.step = 1, .bytes = 1000, .hash = 1};
    (void)state;
    run_free(run);
    record_free(record);
    profile.hosts[0].lease_until_s = clock_wall_ms() / 1000 + 600;
    begin();
    assert_true(host_of(stage_at(0, 0)) == 0 && host_of(stage_at(1, 0)) == 0 && host_of(stage_at(2, 0)) == 1);
    pass(560);
    assert_int_equal(count(stage_at(2, 0), WIRE_SAVE), 0);
    pass(15); /* 20 s are for leaving, a timeout of 10 s and a little for saving */
    assert_true(happened("lease", "the lease of host a ends at 20") && happened("lease", ": the weights are saved, then the host is drained"));
    assert_true(count(stage_at(2, 0), WIRE_SAVE) == 1 && count(stage_at(0, 0), WIRE_SAVE) == 0);
    snprintf(saved.file, sizeof saved.file, "r2s0.safetensors");
    say(stage_at(2, 0), WIRE_SAVED, &saved);
    assert_false(happened("host", "drains host a"));
    snprintf(saved.file, sizeof saved.file, "r2s1.safetensors");
    say(stage_at(2, 1), WIRE_SAVED, &saved);
    assert_true(sets == 1 && newest_set.replica == 2);
    pass(1);
    assert_true(happened("host", "the lease of host a drains host a: replicas 0, 1"));
    pass(5); /* no round ends */
    assert_true(happened("replica-left", "replica 0 leaves the run: the lease of host a drains host a"));
    assert_true(happened("replica-left", "replica 1 leaves the run: the lease of host a drains host a; 1 of 3 replicas go on"));
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < STAGES; s++)
            killed(stage_at(r, s));
    pass(2);
    assert_true(happened("host", "host a is drained"));
    pass(1000);
    assert_int_equal(record->state.row.phase, PHASE_TRAINING);
    assert_int_equal(count(stage_at(2, 0), WIRE_SAVE), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(the_end_of_a_lease_drains),
        TEST(the_least_counts_for_each_stage),
        TEST(who_leaves_meanwhile_is_not_waited_for),
        TEST(a_broken_cut),
        TEST(one_side_of_a_partition_leaves),
        TEST(the_next_one_writes_the_last_weights),
        TEST(a_set_is_of_one_replica),
        TEST(who_comes_back_hears_it_again),
        TEST(a_new_scheduler_decides_the_same),
        TEST(the_others_finish),
        TEST(averaged_gradients_need_everybody),
        TEST(any_order),
        TEST(no_round_is_waited_for_without_an_end),
        TEST(a_restarted_host_comes_back),
        TEST(a_spare_takes_the_place),
        TEST(what_nobody_else_has_is_never_ended),
#define REJOIN(name) cmocka_unit_test_setup_teardown(name, set_up_rejoin, tear_down)
        REJOIN(a_drained_host_stays_empty),
        REJOIN(it_comes_back),
        REJOIN(the_lowest_dies_meanwhile),
        REJOIN(who_dies_on_the_way_is_tried_again),
        REJOIN(no_wait_without_an_end),
        REJOIN(a_road_of_one_that_joins),
        REJOIN(who_was_away_hears_of_the_former_life),
        REJOIN(a_new_scheduler_tries_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
