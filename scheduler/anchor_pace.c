/*
 * How fast a snapshot travels to the anchor and what is found of it travels back: asked of scheduler/deliver.c, told to the
 * stages that send and to the anchor.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/link/link.h"

#define LOOK_NS (100 * CLOCK_MS)
#define SHORT_STEP 0.02 /* seconds, until one is known */
#define CHUNK_BYTES ((uint64_t)2 * WIRE_CHUNK_WORDS)

/* ---- what is known of roads ---- */

/* Bits a second that a process sends beside bulk. */
static double busy_bps(const struct run *run, const char *process)
{
    double sum = 0;
    for (size_t i = 0; i < run->record->road_count; i++) {
        const struct wire_road_row *row = &run->record->roads[i].row;
        if (row->lane != LANE_BULK && strcmp(row->from, process) == 0 && isfinite(row->bytes_per_second))
            sum += 8 * row->bytes_per_second;
    }
    return sum;
}

static double least_known(double one, double other)
{
    return one <= 0 ? other : other <= 0 ? one : one < other ? one : other;
}

/* One of `roads` that carry as much each: what is told of it, and what is seen where the kernel is what holds it up. */
static void describe_road(const struct run *run, const char *process, uint64_t uplink_bps, int roads, struct deliver_road *road)
{
    double shared = (double)uplink_bps / roads,
           own = least_known((double)run->profile.slow_rate_bps, (double)run->profile.link_rate_bps);
    for (size_t i = 0; i < run->record->road_count; i++) {
        const struct wire_road_row *row = &run->record->roads[i].row;
        if (row->lane == LANE_BULK && strcmp(row->from, process) == 0 && (row->hold_reasons & HOLD_KERNEL))
            own = least_known(own, (double)row->capacity_bps);
    }
    road->capacity_bps = least_known(shared, own);
    road->busy_bps = shared > 0 && shared <= road->capacity_bps ? busy_bps(run, process) / roads : 0;
}

/* The anchor's to the stage that gets most. */
static void describe_back(struct run *run, struct deliver_road *road)
{
    const struct process *process = processes_anchor(&run->processes);
    const struct plan_anchor *plan = &run->plan.anchor;
    int roads = leaving_count(run) * run->plan.stages_per_replica;
    *road = (struct deliver_road){.whole_bytes = plan->road_bytes, .left_bytes = plan->road_bytes};
    describe_road(run, process->record->row.process, plan->uplink_bps, roads > 0 ? roads : 1, road);
}

/* ---- time ---- */

static double step_seconds(const struct run *run)
{
    double seconds = run->record->state.row.step_seconds;
    return isfinite(seconds) && seconds > 0 ? seconds : SHORT_STEP;
}

static struct deliver_time time_of(const struct run *run, uint64_t version, bool computed)
{
    struct deliver_goal goal = {.version = version,
                                .staleness = (uint64_t)run->profile.anchor_staleness,
                                .step = (double)run->record->state.row.step,
                                .step_seconds = step_seconds(run),
                                .compute_seconds = run->anchor.compute_seconds,
                                .computed = computed};
    struct deliver_time time = deliver_time(&goal);
    if (run->anchor.compute_seconds <= 0)
        time.left = 0; /* the first version hurries: how long the anchor takes is not known, and cuts may have nothing without it */
    return time;
}

/* ---- out ---- */

static void measure_part(const struct anchor *anchor, const struct anchor_part *part, struct deliver_road *road)
{
    double whole = (double)part->full_bytes * (anchor->share > 0 && anchor->share < 1 ? anchor->share : 1);
    whole = part->known_bytes ? (double)part->known_bytes : fmax(whole, (double)part->sent_bytes);
    *road = (struct deliver_road){.whole_bytes = (uint64_t)whole, .left_bytes = (uint64_t)(whole * (1 - part->done))};
}

static void grant(struct run *run, int stage, double rate_bps, double passed)
{
    struct anchor_part *part = &run->anchor.parts[stage];
    uint64_t room = (uint64_t)(rate_bps / 8 * (passed < 1 ? passed : 1)) + CHUNK_BYTES;
    if (part->granted_bytes < part->sent_bytes + room)
        part->granted_bytes = part->sent_bytes + room;
    struct wire_grant order = {.version = run->anchor.version, .bytes = part->granted_bytes, .rate_bps = (uint64_t)rate_bps};
    run_send(run, anchor_sender_stage(run, stage), WIRE_GRANT, &order);
}

static void say_limited(struct run *run, double seconds)
{
    const struct anchor *anchor = &run->anchor;
    uint64_t newest = run->record->state.row.step;
    run_say(run, EVENT_WARN, NULL, "snapshot-slow",
            "the snapshot of step %" PRIu64 " cannot be there in time for anchor.staleness = %" PRId64
            ": the roads have no more room; about %.0f steps it will be",
            anchor->version, run->profile.anchor_staleness,
            (double)newest - (double)anchor->version + (seconds + anchor->compute_seconds) / step_seconds(run) + 3);
}

/* Of the stage that has most of it to send. */
static uint64_t most_left(const struct run *run)
{
    uint64_t most = 0;
    for (int i = 0; i < run->plan.stages_per_replica; i++) {
        struct deliver_road road;
        measure_part(&run->anchor, &run->anchor.parts[i], &road);
        most = road.left_bytes > most ? road.left_bytes : most;
    }
    return most;
}

void anchor_pace_out(struct run *run)
{
    struct anchor *anchor = &run->anchor;
    uint64_t now_ns = clock_now_ns();
    double passed = anchor->granted_ns ? (double)(now_ns - anchor->granted_ns) / 1e9 : 0, eta = 0;
    struct deliver_time both = time_of(run, anchor->version, false), out;
    struct deliver_road road;
    bool limited = false;
    describe_back(run, &road);
    out = deliver_time_out(&both, &road, most_left(run));
    anchor->granted_ns = now_ns;
    for (int i = 0; i < run->plan.stages_per_replica; i++) {
        const struct plan_stage *plan = &run->plan.stages[anchor->sender * run->plan.stages_per_replica + i];
        struct deliver_pace pace;
        if (!anchor->parts[i].captured || anchor->parts[i].done >= 1)
            continue;
        measure_part(anchor, &anchor->parts[i], &road);
        describe_road(run, plan->process, plan->uplink_bps, 1, &road);
        deliver_pace(&road, &out, &pace);
        limited |= pace.limited;
        eta = fmax(eta, pace.seconds);
        grant(run, i, pace.rate_bps, passed);
    }
    anchor_row(run)->eta_seconds = eta;
    if (limited && !anchor->late_told)
        say_limited(run, eta + both.left - out.left);
    anchor->late_told = limited;
}

/* ---- back ---- */

/* One rate from when the version is whole at the anchor, another when it is computed: how much of it has left need not be known. */
static void tell_back(struct run *run, bool computed)
{
    struct deliver_road road;
    struct deliver_pace pace;
    describe_back(run, &road);
    struct deliver_time time = time_of(run, run->anchor.back, computed);
    deliver_pace(&road, &time, &pace);
    struct wire_grant order = {.version = run->anchor.back, .rate_bps = (uint64_t)pace.rate_bps};
    run_send(run, processes_anchor(&run->processes), WIRE_GRANT, &order);
}

void anchor_pace_back(struct run *run, uint64_t version)
{
    run->anchor.back = version;
    tell_back(run, false);
}

void anchor_pace_computed(struct run *run, uint64_t version)
{
    if (version == run->anchor.back)
        tell_back(run, true);
}

void anchor_pace_look(struct run *run)
{
    if (run->anchor.version && clock_now_ns() - run->anchor.granted_ns > LOOK_NS)
        anchor_pace_out(run);
}
