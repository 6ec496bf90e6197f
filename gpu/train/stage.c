/*
 * `kedge-worker stage`: the loop thread of a stage. It owns the road to kedged, the data roads and the listener; all that
 * computes is behind the mailbox (relay.c feeds it). Orders of kedged for the compute thread are checked here and put into
 * its inbox.
 *
 *   hello → ASSIGN → (compute thread loads) READY loaded → ROAD … → READY roads → START → passes → DONE
 *
 * STOP is answered at once, whatever the compute thread does: goodbye on all roads, and the process ends when the compute
 * thread has (between two micro-batches), or without it shortly before the grace is over. A lost data road abandons the
 * step; the stage then keeps its memory and waits for STOP. A lost kedged changes nothing: the stage trains on and dials
 * again.
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "gpu/model/set.h"
#include "gpu/train/anchor.h"
#include "gpu/train/places.h"
#include "gpu/train/ship.h"
#include "gpu/train/worker.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

/* ---- the end ---- */

bool stage_is_assigned(const struct worker *worker)
{
    return worker->compute || worker->anchor;
}

void stage_check_over(struct worker *worker)
{
    if (worker->stopping && worker->control_over && worker->roads_over && worker->ended)
        loop_stop(worker->loop);
}

static void on_deadline(void *arg)
{
    struct worker *worker = arg;
    log_at(LOG_WARN, "stage", "the grace is over%s", worker->ended ? "" : ", computing had not ended");
    loop_stop(worker->loop);
}

void stage_stop(struct worker *worker, int err, const char *reason, uint64_t grace_ns)
{
    if (worker->stopping)
        return;
    worker->stopping = true;
    worker->exit_err = err;
    snprintf(worker->exit_why, sizeof worker->exit_why, "%s", reason);
    log_at(err ? LOG_ERROR : LOG_INFO, "stage", err ? "%s" : "stops: %s", reason);
    uint64_t patience_ns = grace_ns - grace_ns / 8; /* be gone before somebody kills */
    loop_timer_set(worker->deadline, patience_ns);
    if (worker->mail)
        mail_order(worker->mail, MAIL_STOP);
    worker->ended = worker->ended || !stage_is_assigned(worker);
    listener_free(worker->listener);
    worker->listener = NULL;
    if (worker->roads)
        relay_tell_roads(worker); /* the end of the last validation is younger than the last telemetry */
    control_close(worker->control, err, reason, patience_ns / 2);
    if (worker->roads)
        roads_close(worker->roads, reason, patience_ns / 2);
    else
        worker->roads_over = true;
    stage_check_over(worker);
}

static void on_signal(int number, void *arg)
{
    struct worker *worker = arg;
    char reason[80];
    snprintf(reason, sizeof reason, "signal %d (%s)", number, number == SIGTERM ? "Terminated" : "Interrupt");
    stage_stop(worker, 0, reason, worker->timeouts.grace_ns);
}

/* Nobody is left to say STOP: no kedged for a whole lease, no agent, and nothing moves. */
static void on_lease(void *arg)
{
    struct worker *worker = arg;
    uint64_t lease_ns = worker->timeouts.lease_ns;
    bool alone = control_lost_ns(worker->control) > lease_ns && getppid() != worker->agent;
    if (alone && clock_now_ns() - worker->busy_ns > lease_ns)
        stage_stop(worker, ERR_GONE, "no scheduler and no agent for a whole lease, and nothing to compute",
                   worker->timeouts.grace_ns);
    else
        loop_timer_set(worker->lease, lease_ns / 8);
}

/* ---- words to kedged ---- */

void stage_say(struct worker *worker, enum event_level level, const char *code, const char *text)
{
    struct wire_event event = {.level = (uint8_t)level, .step = worker->newest_step};
    snprintf(event.code, sizeof event.code, "%s", code);
    snprintf(event.text, sizeof event.text, "%s", text);
    log_at(level == EVENT_INFO ? LOG_INFO : LOG_WARN, "stage", "%s: %s", code, text);
    control_send(worker->control, WIRE_EVENT, &event);
}

/* What kedged must know of us, also when it is another kedged than before. */
static void tell_state(struct worker *worker)
{
    if (!worker->ready.state)
        return;
    control_send(worker->control, WIRE_READY,
                 &(struct wire_ready){.state = READY_LOADED,
                                      .parameters = worker->ready.parameters,
                                      .memory_bytes = worker->ready.memory_bytes});
    if (worker->entered.life)
        control_send(worker->control, WIRE_ENTERED, &worker->entered);
    if (worker->ready.state >= READY_ROADS)
        control_send(worker->control, WIRE_READY, &worker->ready);
    if (worker->saved.file[0])
        control_send(worker->control, WIRE_SAVED, &worker->saved);
    if (worker->done)
        control_send(worker->control, WIRE_DONE, &(struct wire_done){.step = worker->done_step});
}

/* ---- from kedged ---- */

static void neighbour(const struct worker *worker, int stage, char *out)
{
    if (stage >= 0 && stage < worker->assign.stages)
        snprintf(out, WIRE_NAME, "r%us%d", worker->assign.replica, stage);
}

static int begin_compute(struct worker *worker, uint64_t profile_hash, struct why *why)
{
    size_t letters, bytes;
    struct compute_settings *settings = mem_new(sizeof *settings);
    settings->profile = worker->profile;
    settings->assign = worker->assign;
    memcpy(settings->name, worker->arguments.name, sizeof settings->name);
    memcpy(settings->folder, worker->arguments.folder, sizeof settings->folder);
    memcpy(settings->host, worker->arguments.host, sizeof settings->host);
    neighbour(worker, worker->assign.stage - 1, settings->upstream);
    neighbour(worker, worker->assign.stage + 1, settings->downstream);
    int err = worker->is_anchor ? anchor_new(settings, &worker->anchor, why) : ship_open(worker, settings, why);
    if (!err && !worker->is_anchor)
        err = compute_new(settings, &worker->compute, why);
    if (!err) {
        if (worker->is_anchor)
            anchor_bounds(worker->anchor, &letters, &bytes);
        else
            compute_bounds(settings, &letters, &bytes);
        worker->mail = mail_new(worker->loop, relay_on_mail, worker, letters, bytes);
        relay_open(worker, profile_hash, bytes + ship_queue_bytes(worker));
        err = worker->is_anchor ? anchor_start(worker->anchor, worker->mail, why)
                                : compute_start(worker->compute, worker->mail, why);
        worker->ended = err != 0;
    }
    mem_free(settings);
    return err;
}

static int take_assign(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_assign *assign = message;
    struct why reason = {0};
    if (stage_is_assigned(worker))
        return 0; /* said again: `up` has told what we are */
    int err = profile_from_settings(assign->settings.data, assign->settings.bytes, &worker->profile, &reason);
    if (!err) {
        uint64_t hash = profile_hash(&worker->profile);
        log_set_level((enum log_level)worker->profile.log_level);
        worker->timeouts = timeouts_derive(worker->profile.timeout_ns);
        control_set(worker->control, hash, &worker->timeouts);
        worker->assign = *assign;
        worker->assign.settings = (struct wire_bytes){0};
        log_at(
            LOG_INFO, "stage",
            "is stage %u of %u of replica %u: layers %u to %u, %u micro-batches in flight, %u threads, profile %016" PRIx64,
            assign->stage, assign->stages, assign->replica, assign->first_layer, assign->first_layer + assign->layers - 1u,
            assign->in_flight, assign->threads, hash);
        err = places_apply(worker->arguments.folder, worker->arguments.host, &worker->profile, &reason);
        if (!err)
            err = begin_compute(worker, hash, &reason);
    }
    (void)why;
    if (err)
        stage_stop(worker, err, reason.text, worker->timeouts.grace_ns);
    return 0;
}

static int take_road(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_road *road = message;
    if (!worker->roads)
        return why_set(why, ERR_INVALID, "a ROAD came before the ASSIGN");
    if (road->side == ROAD_SIBLING && (road->replica >= worker->assign.replicas || road->replica == worker->assign.replica))
        return why_set(why, ERR_INVALID, "a ROAD to the sibling of replica %u: there are %u replicas, and this is replica %u",
                       road->replica, worker->assign.replicas, worker->assign.replica);
    roads_expect(worker->roads, road);
    return 0;
}

static int check_sibling(const struct worker *worker, const char *what, unsigned replica, struct why *why)
{
    if (worker->compute && replica < worker->assign.replicas && replica != worker->assign.replica)
        return 0;
    return why_set(why, ERR_INVALID, "a %s of replica %u, which is no sibling of replica %u of %u", what, replica, worker->assign.replica,
                   worker->assign.replicas);
}

static int take_part(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_part *part = message;
    int err = check_sibling(worker, "PART", part->replica, why);
    if (!err)
        roads_drop(worker->roads, (enum mail_road)(MAIL_SIBLINGS + part->replica), part->life, "this replica leaves the run");
    return err;
}

static int take_leave(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_leave *leave = message;
    return check_sibling(worker, "LEAVE", leave->replica, why);
}

static int take_join(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_join *join = message;
    if (worker->compute && join->replica == worker->assign.replica)
        return 0;
    return check_sibling(worker, "JOIN", join->replica, why);
}

static int take_stop(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_stop *order = message;
    (void)why;
    stage_stop(worker, 0, order->reason[0] ? order->reason : "by order", order->grace_ms * CLOCK_MS);
    return 0;
}

static int take_start(struct worker *worker, const void *message, struct why *why)
{
    (void)message;
    char text[WIRE_TEXT];
    if (!stage_is_assigned(worker))
        return why_set(why, ERR_INVALID, "a START came before the ASSIGN");
    if (worker->broken) {
        snprintf(text, sizeof text, "cannot go on: %.340s", worker->broken_why);
        stage_say(worker, EVENT_ALERT, "peer-lost", text);
    }
    worker->started = true;
    return 0;
}

static int take_grant(struct worker *worker, const void *message, struct why *why)
{
    if (worker->anchor)
        anchor_grant(worker->anchor, message, worker);
    else if (worker->snap || worker->follow)
        ship_grant(worker, message);
    else
        return why_set(why, ERR_INVALID, "a GRANT came to one that sends no snapshots");
    return 0;
}

/* Our files of sets that nobody goes on from any more; folders stay while others have something in them. */
static int take_kept(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_kept *kept = message;
    char file[WIRE_NAME + 16];
    (void)why;
    snprintf(file, sizeof file, "%s.safetensors", worker->arguments.name);
    set_remove_file(worker->arguments.folder, file, kept->from_step);
    return 0;
}

static int take_nothing(struct worker *worker, const void *message, struct why *why)
{
    (void)message;
    return stage_is_assigned(worker) ? 0 : why_set(why, ERR_INVALID, "the ASSIGN is still missing");
}

static int on_control(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    static const struct {
        uint16_t type;
        bool computes; /* goes on to the compute thread */
        int (*take)(struct worker *worker, const void *message, struct why *why);
    } takers[] = {
        {WIRE_ASSIGN, false, take_assign}, {WIRE_ROAD, true, take_road},   {WIRE_STOP, false, take_stop},
        {WIRE_START, true, take_start},    {WIRE_HOLD, true, take_nothing}, {WIRE_KNOB, true, take_nothing},
        {WIRE_SAVE, true, take_nothing},   {WIRE_KEPT, false, take_kept},   {WIRE_CAPTURE, true, take_nothing}, {WIRE_USE, true, take_nothing},
        {WIRE_GRANT, false, take_grant},
        {WIRE_PART, true, take_part},      {WIRE_LEAVE, true, take_leave},   {WIRE_JOIN, true, take_join},
    };
    union {
        struct wire_assign assign;
        struct wire_road road;
        struct wire_stop stop;
        struct wire_start start;
        struct wire_hold hold;
        struct wire_knob knob;
        struct wire_save save;
        struct wire_kept kept;
        struct wire_capture capture;
        struct wire_use use;
        struct wire_grant grant;
        struct wire_part part;
        struct wire_leave leave;
        struct wire_join join;
    } decoded;
    struct worker *worker = arg;
    size_t i = 0;
    while (i < sizeof takers / sizeof *takers && takers[i].type != header->type)
        i++;
    if (i == sizeof takers / sizeof *takers)
        return why_set(why, ERR_INVALID, "a %s is not for a stage", wire_find(header->type)->name);
    int err = wire_decode(header->type, payload, bytes, &decoded, why);
    if (!err)
        err = takers[i].take(worker, &decoded, why);
    if (!err && takers[i].computes && !worker->is_anchor) {
        struct letter letter = {
            .type = header->type, .road = MAIL_CONTROL, .payload = mem_copy(payload, bytes), .bytes = bytes};
        err = mail_post(worker->mail, &letter);
        if (err == ERR_FULL)
            return why_set(why, ERR_FULL, "orders come faster than they can be obeyed");
        err = 0;
    }
    return err;
}

static void on_control_up(void *arg)
{
    struct worker *worker = arg;
    tell_state(worker);
}

static void on_control_down(int err, const char *reason, bool final, void *arg)
{
    struct worker *worker = arg;
    worker->control_over = final;
    if (final && !worker->stopping)
        stage_stop(worker, err ? err : ERR_GONE, reason, worker->timeouts.grace_ns);
    else if (!final)
        log_at(LOG_WARN, "stage", "no road to the scheduler: %s", reason);
    stage_check_over(worker);
}

/* ---- begin ---- */

static void on_incoming(struct road *road, const char *from, void *arg)
{
    struct worker *worker = arg;
    if (worker->roads)
        roads_incoming(worker->roads, road, from);
    else
        road_free(road); /* the dialler tries again */
}

static int open_log(const struct worker_arguments *arguments, struct why *why)
{
    char path[sizeof arguments->folder + WIRE_NAME + 16];
    snprintf(path, sizeof path, "%s/log", arguments->folder);
    int err = file_make_folders(path, 0700, why);
    snprintf(path, sizeof path, "%s/log/%s.log", arguments->folder, arguments->name);
    return err ? err : log_open(path, "kedge-worker", 0, why);
}

/* How others reach our listener. An announced host without a port has the port that was bound. */
static void announce(const struct worker *worker, char *out, size_t size)
{
    const char *bound = listener_address(worker->listener), *said = worker->arguments.announce;
    bool bare = *said && (said[strlen(said) - 1] == ']' || !strchr(said, ':'));
    if (bare)
        snprintf(out, size, "%s%s", said, strrchr(bound, ':'));
    else
        snprintf(out, size, "%s", *said ? said : bound);
}

static void dial_control(struct worker *worker)
{
    static const struct control_callbacks callbacks = {.up = on_control_up, .message = on_control, .down = on_control_down};
    struct control_settings settings = {
        .credentials = worker->credentials,
        .run_id = worker->arguments.run_id,
        .incarnation = (uint32_t)worker->arguments.incarnation,
        .hello = {.role = worker->is_anchor ? ROLE_ANCHOR : ROLE_STAGE},
        .timeouts = worker->timeouts,
    };
    memcpy(settings.head, worker->arguments.head, sizeof settings.head);
    memcpy(settings.hello.name, worker->arguments.name, sizeof settings.hello.name);
    memcpy(settings.hello.host, worker->arguments.host, sizeof settings.hello.host);
    announce(worker, settings.hello.announce, sizeof settings.hello.announce);
    worker->control = control_new(worker->loop, &settings, &callbacks, worker);
}

static int begin(struct worker *worker, struct why *why)
{
    char creds[sizeof worker->arguments.folder + 16];
    snprintf(creds, sizeof creds, "%s/creds", worker->arguments.folder);
    worker->timeouts = timeouts_derive(worker->arguments.timeout_ns);
    worker->busy_ns = clock_now_ns();
    worker->agent = getppid();
    worker->loop = loop_new(why);
    if (!worker->loop)
        return why->err;
    if (!worker->arguments.plain) {
        worker->credentials = credentials_load_folder(creds, worker->arguments.host, why);
        if (!worker->credentials)
            return why->err;
    }
    worker->listener = listener_tcp(worker->loop, worker->arguments.listen, on_incoming, worker, why);
    if (!worker->listener)
        return why->err;
    worker->deadline = loop_timer_new(worker->loop, on_deadline, worker);
    relay_timers(worker);
    worker->lease = loop_timer_new(worker->loop, on_lease, worker);
    loop_timer_set(worker->lease, worker->timeouts.lease_ns / 8);
    int err = loop_signal(worker->loop, SIGTERM, on_signal, worker, why);
    if (!err)
        err = loop_signal(worker->loop, SIGINT, on_signal, worker, why);
    if (!err)
        dial_control(worker);
    return err;
}

static void end(struct worker *worker)
{
    if (stage_is_assigned(worker) && !worker->ended) /* it is in the middle of a computation: memory goes with the process */
        _exit(command_exit(worker->exit_err));
    loop_timer_free(worker->deadline);
    loop_timer_free(worker->telemetry);
    loop_timer_free(worker->look);
    loop_timer_free(worker->lease);
    listener_free(worker->listener);
    roads_free(worker->roads);
    control_free(worker->control);
    mail_free(worker->mail);
    compute_free(worker->compute);
    anchor_free(worker->anchor);
    ship_free(worker);
    loop_free(worker->loop);
    credentials_free(worker->credentials);
    mem_free(worker);
    log_close();
}

static int worker_main(int count, char **words, bool is_anchor)
{
    static const char *const needs[] = {"--folder", "--name", "--host", "--head", "--listen", "--incarnation", NULL};
    struct worker *worker = mem_new(sizeof *worker);
    struct why why = {0};
    worker->is_anchor = is_anchor;
    int err = command_arguments(count, words, needs, &worker->arguments, &why);
    if (!err)
        err = open_log(&worker->arguments, &why);
    if (!err) {
        err = begin(worker, &why);
        if (err)
            log_at(LOG_ERROR, "stage", "%s", why.text);
    }
    if (err) {
        fprintf(stderr, "kedge-worker: %s\n", why.text);
        worker->exit_err = err;
    } else {
        loop_run(worker->loop);
        err = worker->exit_err;
    }
    end(worker);
    return command_exit(err);
}

int stage_main(int count, char **words)
{
    return worker_main(count, words, false);
}

int anchor_main(int count, char **words)
{
    return worker_main(count, words, true);
}
