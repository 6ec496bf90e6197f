#include "scheduler/anchor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/run_state.h"
#include "ssh/base/clock.h"
#include "ssh/base/text.h"

static struct process *anchor_process(struct run *run)
{
    return processes_anchor(&run->processes);
}

struct wire_anchor_row *anchor_row(struct run *run)
{
    record_touch(run->record, &run->record->anchor.version);
    return &run->record->anchor.row;
}

static uint64_t newest_step(const struct run *run)
{
    return run->record->state.row.step;
}

static bool is_going(const struct run *run)
{
    return run->ending == ENDING_NOT && (run_phase(run) == PHASE_TRAINING || run_phase(run) == PHASE_HOLDING);
}

struct process *anchor_sender_stage(struct run *run, int stage)
{
    return processes_stage(&run->processes, run->anchor.sender * run->plan.stages_per_replica + stage);
}

static int stage_index(const struct run *run, const struct process *process)
{
    return (int)(process->stage - run->plan.stages);
}

void anchor_begin(struct run *run)
{
    struct process *process = anchor_process(run);
    struct wire_anchor_row *row = &run->record->anchor.row;
    if (!process)
        return;
    *row = (struct wire_anchor_row){.staleness = (double)NAN,
                                    .age = (double)NAN,
                                    .mix = (double)NAN,
                                    .eta_seconds = (double)NAN,
                                    .delta_share = (double)NAN,
                                    .cosine = (double)NAN,
                                    .inside = (double)NAN,
                                    .norm_ratio = (double)NAN,
                                    .changed = (double)NAN,
                                    .noise = (double)NAN,
                                    .compute_seconds = (double)NAN,
                                    .validation_loss = (double)NAN,
                                    .price_per_hour = (double)NAN,
                                    .target = (double)run->profile.anchor_staleness,
                                    .follows = run->profile.anchor_follow};
    record_text(row->host, sizeof row->host, "%s", process->record->row.host);
    record_text(row->saying, sizeof row->saying, "is not started yet");
    record_touch(run->record, &run->record->anchor.version);
}

static void say_row(struct run *run, const char *text)
{
    struct wire_anchor_row *row = &run->record->anchor.row;
    if (strcmp(row->saying, text) == 0)
        return;
    record_text(row->saying, sizeof row->saying, "%s", text);
    record_touch(run->record, &run->record->anchor.version);
}

/* ---- its life ---- */

static void start(struct run *run, struct process *process)
{
    struct anchor *anchor = &run->anchor;
    const struct profile_host *host = &run->profile.hosts[process->host];
    struct wire_spawn spawn = {.role = ROLE_ANCHOR, .incarnation = process->record->row.incarnation};
    if (moves_holds(run, process->host) || anchor->asked || anchor->lives.over || !processes_agent(&run->processes, process)->handle)
        return;
    if (!lives_take(&anchor->lives, clock_now_ns())) {
        if (!anchor->lives.over)
            return; /* a little later */
        run_say(run, EVENT_ALERT, process, "anchor-down",
                "the anchor ended %d times within ten minutes and is not started again; training goes "
                "on without it", LIVES_MOST);
        say_row(run, "ended too often and is not started again");
        return;
    }
    record_text(spawn.process, sizeof spawn.process, "%s", process->record->row.process);
    process_address(&run->processes, process, host->listen, spawn.listen, sizeof spawn.listen);
    process_address(&run->processes, process, host->announce, spawn.announce, sizeof spawn.announce);
    anchor->asked = true;
    process->record->spawned = 1;
    record_touch(run->record, &process->record->version);
    run->record->urgent = true;
    run_send(run, processes_agent(&run->processes, process), WIRE_SPAWN, &spawn);
    say_row(run, "starts");
}

static void assign(struct run *run, struct process *process)
{
    const struct plan_anchor *plan = &run->plan.anchor;
    struct buf settings;
    struct why why = {0};
    buf_init(&settings, PROFILE_SETTINGS_BYTES);
    if (profile_to_settings(knobs_profile(run->knobs), &settings, &why) < 0)
        BUG("settings of the profile: %s", why.text);
    struct wire_assign message = {
        .replicas = (uint16_t)run->plan.replicas,
        .stages = (uint16_t)run->plan.stages_per_replica,
        .layers = (uint16_t)run->profile.layers,
        .in_flight = 1,
        .threads = (uint16_t)plan->threads,
        .uplink_bps = plan->uplink_bps,
        .first_step = newest_step(run) + 1,
        .settings = {.data = buf_peek(&settings), .bytes = (uint32_t)buf_used(&settings)},
    };
    run_send(run, process, WIRE_ASSIGN, &message);
    buf_clear(&settings);
    process->assigned = true;
}

/* A stage dials the anchor. */
static void tell_roads(struct run *run, struct process *process)
{
    struct anchor *anchor = &run->anchor;
    if (!process->handle || process->record->ready == 0 || !process->record->announce[0])
        return;
    for (int i = 0; i < run->plan.stage_count; i++) {
        struct process *stage = processes_stage(&run->processes, i);
        if (anchor->road_told[i] || !stage->handle || stage->record->ready == 0)
            continue;
        struct wire_road dial = {.dial = 1, .side = ROAD_ANCHOR},
                         wait = {.side = ROAD_STAGE, .replica = (uint16_t)stage->stage->replica, .index = (uint16_t)i};
        record_text(dial.peer, sizeof dial.peer, "%s", process->record->row.process);
        record_text(dial.address, sizeof dial.address, "%s", process->record->announce);
        record_text(wait.peer, sizeof wait.peer, "%s", stage->record->row.process);
        run_send(run, process, WIRE_ROAD, &wait);
        run_send(run, stage, WIRE_ROAD, &dial);
        anchor->road_told[i] = true;
    }
}

void anchor_ready(struct run *run, struct process *process)
{
    memset(run->anchor.road_told, 0, sizeof run->anchor.road_told);
    process_set_state(run, process, PROCESS_READY);
    say_row(run, "waits for the first snapshot");
    anchor_tick(run);
}

/* The run goes on; another incarnation is started when its agent can. */
void anchor_ended(struct run *run)
{
    struct process *process = anchor_process(run);
    struct anchor *anchor = &run->anchor;
    bool expected = run->ending != ENDING_NOT, moves = moves_holds(run, process->host);
    run_say(run, expected || moves ? EVENT_INFO : EVENT_WARN, process, "anchor-exit", "%s%s", process->ending,
            expected ? "" : "; training goes on, and anchor.mix fades when what the anchor told is older than anchor.limit");
    say_row(run, process->ending);
    if (expected) {
        ending_advance(run);
        return;
    }
    processes_renew(run->record, process);
    anchor->asked = anchor->ordered = false;
    anchor->version = 0;
}

/* ---- snapshots ---- */

static void forget_version(struct run *run)
{
    struct anchor *anchor = &run->anchor;
    anchor->version = 0;
    memset(anchor->parts, 0, sizeof anchor->parts);
    anchor_row(run)->pending = 0;
    anchor_tell_progress(run);
}

static void capture(struct run *run)
{
    struct anchor *anchor = &run->anchor;
    struct wire_capture order = {.from_step = newest_step(run) + 1};
    forget_version(run);
    anchor->ordered = true;
    anchor->ordered_step = newest_step(run);
    anchor->wanted = false;
    run_send(run, anchor_sender_stage(run, 0), WIRE_CAPTURE, &order);
}

static bool roads_stand(const struct run *run)
{
    for (int i = 0; i < run->plan.stages_per_replica; i++)
        if (!run->anchor.road_told[run->anchor.sender * run->plan.stages_per_replica + i])
            return false;
    return true;
}

/* The replica that sent them has left: another one does, with whole chunks at first. */
static void follow(struct run *run)
{
    struct anchor *anchor = &run->anchor;
    if (!leaving_has_left(run, anchor->sender) || leaving_count(run) == 0)
        return;
    anchor->sender = leaving_lowest(run);
    anchor->ordered = false;
    forget_version(run);
    run_say(run, EVENT_INFO, NULL, "anchor-follows", "%s from replica %d from now on",
            run->profile.anchor_follow ? "it is told of rounds" : "snapshots come", anchor->sender);
}

static void schedule(struct run *run)
{
    struct anchor *anchor = &run->anchor;
    uint64_t newest = newest_step(run), limit = (uint64_t)run->profile.anchor_limit;
    struct process *process = anchor_process(run), *first;
    follow(run);
    first = anchor_sender_stage(run, 0);
    if (anchor->ordered && newest > anchor->ordered_step + limit)
        anchor->ordered = false; /* it never came */
    if (anchor->version && newest > anchor->version + limit) {
        run_say(run, EVENT_WARN, NULL, "snapshot-late",
                "the snapshot of step %" PRIu64 " is given up: after %" PRIu64 " steps it is not through", anchor->version,
                newest - anchor->version);
        forget_version(run);
    }
    if (!process->handle || process->record->ready == 0 || !first->handle || run_phase(run) != PHASE_TRAINING ||
        anchor->ordered || anchor->version || !roads_stand(run) || newest + 2 >= run->record->state.row.steps)
        return;
    if (anchor->wanted || deliver_is_due(anchor->last, (uint64_t)run->profile.anchor_every, newest))
        capture(run);
}

/* ---- directions ---- */

/* A bit per stage that is there. */
static uint64_t everyone(const struct run *run)
{
    uint64_t bits = 0;
    for (int i = 0; i < run->plan.stage_count; i++)
        bits |= leaving_has_left(run, run->plan.stages[i].replica) ? 0 : (uint64_t)1 << i;
    return bits;
}

static struct deliver_directions *pending_of(struct anchor *anchor, uint64_t version)
{
    struct deliver_directions *oldest = &anchor->pending[0];
    for (int i = 0; i < ANCHOR_PENDING; i++) {
        if (anchor->pending[i].version == version)
            return &anchor->pending[i];
        oldest = anchor->pending[i].version < oldest->version ? &anchor->pending[i] : oldest;
    }
    *oldest = (struct deliver_directions){.version = version};
    return oldest;
}

static void agree(struct run *run)
{
    struct anchor *anchor = &run->anchor;
    struct wire_use use = {0};
    int chosen = deliver_choose(anchor->pending, ANCHOR_PENDING, everyone(run), anchor->used,
                                (uint64_t)run->profile.anchor_staleness, newest_step(run), &use.from_step);
    if (chosen < 0)
        return;
    use.version = anchor->pending[chosen].version;
    anchor->pending[chosen].told_from = use.from_step;
    for (int i = 0; i < run->plan.stage_count; i++)
        if (run->plan.stages[i].stage == 0 && !leaving_has_left(run, run->plan.stages[i].replica)) /* one that joins has none of it */
            run_send(run, processes_stage(&run->processes, i), WIRE_USE, &use);
}

static void tell_use_again(struct run *run)
{
    for (int i = 0; i < ANCHOR_PENDING; i++)
        if (run->anchor.pending[i].version > run->anchor.used)
            run->anchor.pending[i].told_from = 0;
}

void anchor_forget(struct run *run, int replica)
{
    for (int s = 0; s < run->plan.stages_per_replica; s++) {
        int index = replica * run->plan.stages_per_replica + s;
        run->anchor.road_told[index] = false;
        for (int i = 0; i < ANCHOR_PENDING; i++)
            run->anchor.pending[i].holders &= ~((uint64_t)1 << index);
    }
}

void anchor_welcome(struct run *run, struct process *process)
{
    if (process->is_anchor)
        memset(run->anchor.road_told, 0, sizeof run->anchor.road_told);
    else if (process->stage)
        run->anchor.road_told[stage_index(run, process)] = false;
    if (process->stage && process->stage->stage == 0)
        tell_use_again(run);
    anchor_tick(run);
}

/* ---- marks ---- */

static void on_captured(struct run *run, struct process *process, const struct wire_mark *mark)
{
    struct anchor *anchor = &run->anchor;
    int stage = process->stage->stage;
    if (mark->version < anchor->version)
        return;
    if (mark->version > anchor->version) {
        forget_version(run);
        anchor->version = anchor->last = mark->version;
        anchor->ordered = false;
        anchor_row(run)->pending = mark->version;
        say_row(run, "gets a snapshot");
    }
    anchor->parts[stage] = (struct anchor_part){.captured = true, .full_bytes = mark->total, .known_bytes = mark->bytes};
    anchor_tell_progress(run);
    anchor_pace_out(run);
}

static void on_shipped(struct run *run, struct process *process, const struct wire_mark *mark)
{
    struct anchor_part *part = &run->anchor.parts[process->stage->stage];
    if (mark->version != run->anchor.version || !part->captured)
        return;
    part->sent_bytes = mark->bytes;
    part->done = mark->value < 1 ? mark->value : 1;
    anchor_tell_progress(run);
}

/* The lesser of the last two: a version that met a stopped anchor or a broken road says nothing of the next. */
static double usual(double before, double now)
{
    return before < now ? before : now; /* NaN: there was none */
}

static void on_flipped(struct run *run, struct process *process, const struct wire_mark *mark)
{
    struct anchor *anchor = &run->anchor;
    struct wire_anchor_row *row = anchor_row(run);
    char travelled[32], full[32];
    anchor->damaged = false;
    row->flipped = mark->version;
    row->versions++;
    row->sent_bytes += mark->bytes;
    row->full_bytes += mark->total;
    double share = mark->total ? (double)mark->bytes / (double)mark->total : (double)NAN;
    anchor->share = usual(row->delta_share, share);
    row->delta_share = share;
    text_from_bytes(mark->bytes, travelled, sizeof travelled);
    text_from_bytes(mark->total, full, sizeof full);
    run_say(run, EVENT_INFO, process, "snapshot",
            "the weights of step %" PRIu64 " are whole at the anchor: %s%s travelled for %s, %" PRIu64
            " steps after they were taken%s",
            mark->version, travelled, row->follows ? " of rounds" : "", full, newest_step(run) > mark->version ? newest_step(run) - mark->version : 0,
            mark->value > 0 ? "; chunks had to come again since its start" : "");
    if (mark->version == anchor->version)
        forget_version(run);
    anchor_pace_back(run, mark->version);
    say_row(run, "computes");
}

/* Another is taken at once, once: what damages every one of them would have all of the weights travel in each. */
static void on_damaged(struct run *run, struct process *process, const struct wire_mark *mark)
{
    struct anchor *anchor = &run->anchor;
    if (mark->version != anchor->version)
        return;
    run_say(run, EVENT_WARN, process, "snapshot-damaged",
            "the snapshot of step %" PRIu64 " is not what its hashes say: %s, in which what is wrong travels in full", mark->version,
            anchor->damaged ? "nor was the one before; the next one is taken when it is due" : "another one is taken");
    forget_version(run);
    anchor->wanted |= !anchor->damaged;
    anchor->damaged = true;
    say_row(run, "waits for the next snapshot");
}

static void on_computed(struct run *run, struct process *process, const struct wire_mark *mark)
{
    (void)process;
    double seconds = (double)mark->elapsed_ns / 1e9;
    run->anchor.compute_seconds = usual(anchor_row(run)->compute_seconds, seconds);
    anchor_row(run)->compute_seconds = seconds;
    run->record->anchor.row.computed = mark->version;
    anchor_pace_computed(run, mark->version);
    anchor_tell_returned(run);
    say_row(run, "waits for the next snapshot");
}

static void on_directions(struct run *run, struct process *process, const struct wire_mark *mark)
{
    if (mark->version <= run->anchor.used)
        return;
    pending_of(&run->anchor, mark->version)->holders |= (uint64_t)1 << stage_index(run, process);
    anchor_tell_returned(run);
    agree(run);
}

static void on_used(struct run *run, struct process *process, const struct wire_mark *mark)
{
    struct anchor *anchor = &run->anchor;
    if (process->stage->replica != anchor->sender || mark->version <= anchor->used)
        return;
    anchor->used = mark->version;
    struct wire_anchor_row *row = anchor_row(run);
    row->used = mark->version;
    row->staleness = (double)(mark->step - mark->version);
    bool measures = profile_anchor_measures(&run->profile), corrects = profile_corrects(&run->profile);
    run_say(run, EVENT_INFO, process, "anchor-used",
            "%s by what the anchor found of step %" PRIu64 " from step %" PRIu64 " on: staleness %" PRIu64 ", target %" PRId64,
            !measures   ? "gradients are corrected"
            : !corrects ? "cuts are coded"
                        : "gradients are corrected and cuts are coded",
            mark->version, mark->step, mark->step - mark->version, run->profile.anchor_staleness);
    agree(run);
}

static void on_away(struct run *run, struct process *process, const struct wire_mark *mark)
{
    (void)mark;
    if (run->ending != ENDING_NOT || process->record->done || leaving_has_left(run, process->stage->replica))
        return;
    run->anchor.road_told[stage_index(run, process)] = false; /* said again: the stage dials by itself, too */
    if (process->stage->replica == run->anchor.sender)
        forget_version(run);
    run_say(run, EVENT_WARN, process, "anchor-lost",
            "%s has no road to the anchor; training goes on with the directions that are there",
            process->record->row.process);
}

int anchor_mark(struct run *run, struct process *process, const void *payload, struct why *why)
{
    static const struct {
        void (*take)(struct run *run, struct process *process, const struct wire_mark *mark);
        bool by_anchor, of_sender; /* of_sender: only stages of the replica that sends snapshots */
    } takers[] = {
        [MARK_CAPTURED] = {on_captured, false, true},
        [MARK_SHIPPED] = {on_shipped, false, true},
        [MARK_FLIPPED] = {on_flipped, true, false},
        [MARK_COMPUTED] = {on_computed, true, false},
        [MARK_DIRECTIONS] = {on_directions, false, false},
        [MARK_USED] = {on_used, false, false},
        [MARK_AWAY] = {on_away, false, false},
        [MARK_DAMAGED] = {on_damaged, true, false},
    };
    const struct wire_mark *mark = payload;
    if (!anchor_process(run) || takers[mark->mark].by_anchor != process->is_anchor ||
        mark->version > run->record->state.row.steps + 1)
        return why_set(why, ERR_INVALID, "%s may not say that of version %" PRIu64, process->record->row.process,
                       mark->version);
    if (!takers[mark->mark].of_sender || process->stage->replica == run->anchor.sender)
        takers[mark->mark].take(run, process, mark); /* else it was the sender a moment ago */
    return 0;
}

/* ---- time and people ---- */

void anchor_step(struct run *run)
{
    if (!anchor_process(run) || !is_going(run))
        return;
    schedule(run);
    anchor_pace_look(run);
    agree(run);
    anchor_row(run)->age = run->anchor.used ? (double)newest_step(run) + 1 - (double)run->anchor.used : (double)NAN;
}

void anchor_tick(struct run *run)
{
    struct process *process = anchor_process(run);
    if (!process || run->ending != ENDING_NOT)
        return;
    start(run, process);
    if (process->handle && !process->assigned && process->record->ready == 0)
        assign(run, process);
    tell_roads(run, process);
    anchor_step(run);
    if (!process->handle && process->gone_ns && clock_now_ns() - process->gone_ns > run->timeouts.silent_ns)
        say_row(run, "is not heard of");
}

void anchor_order(struct run *run, const struct wire_order *order, struct wire_reply *reply)
{
    struct process *process = anchor_process(run);
    const char *why = !process                           ? "this run has no anchor: [anchor] host names its host"
                      : run_phase(run) != PHASE_TRAINING ? "only a run that trains can take a snapshot"
                      : !process->handle                 ? "the anchor is away; try again when it is back"
                                                         : NULL;
    if (why) {
        reply->err = ERR_REFUSED;
        record_text(reply->text, sizeof reply->text, "%s", why);
        return;
    }
    run_say(run, EVENT_INFO, NULL, "snapshot-wanted", "%s wants a snapshot", order->who);
    run->anchor.wanted = true;
    record_text(reply->text, sizeof reply->text, "a snapshot is taken %s",
                run->anchor.version || run->anchor.ordered ? "when the one on its way is whole"
                                                           : "at the next step boundary");
    anchor_tick(run);
}
