/*
 * `kedge-worker stage`: the loop thread of a stage. It owns the road to kedged, the data roads and the listener; all that computes is
 * behind the mailbox. Messages for the compute thread are checked here and put into its inbox; what it sends goes out here.
 *
 *   hello → ASSIGN → (compute thread loads) READY loaded → ROAD … → READY roads → START → passes → DONE
 *
 * STOP is answered at once, whatever the compute thread does: goodbye on all roads, and the process ends when the compute thread has
 * (between two micro-batches), or without it shortly before the grace is over. A lost data road abandons the step; the stage then keeps
 * its memory and waits for STOP. A lost kedged changes nothing: the stage trains on and dials again.
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "gpu/train/command.h"
#include "gpu/train/compute.h"
#include "gpu/train/control.h"
#include "gpu/train/mail.h"
#include "gpu/train/roads.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define TELEMETRY_NS CLOCK_SECOND
#define LOOK_NS (20 * CLOCK_MS) /* at the queues of the data roads while something lies in them */

struct worker {
    struct worker_arguments arguments;
    struct loop *loop;
    struct credentials *credentials; /* NULL: plain */
    struct control *control;
    struct listener *listener;
    struct timeouts timeouts;
    struct loop_timer *deadline, *telemetry, *look, *lease;
    pid_t agent; /* who started us */

    struct profile profile; /* since ASSIGN */
    struct wire_assign assign;
    struct roads *roads; /* NULL before ASSIGN */
    struct mail *mail;
    struct compute *compute;

    struct wire_ready ready; /* state 0: not loaded yet */
    bool started, done, ended, broken, stopping, control_over, roads_over;
    uint64_t done_step, busy_ns; /* busy_ns: when a pass last moved */
    uint64_t act_sent, act_received; /* already told in samples */
    char broken_why[WIRE_TEXT];
    int exit_err;
    char exit_why[600];
};

/* ---- the end ---- */

static void check_over(struct worker *worker)
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

/* Goodbye on all roads now; the compute thread ends when it looks up. */
static void stop(struct worker *worker, int err, const char *reason, uint64_t grace_ns)
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
    worker->ended = worker->ended || !worker->compute;
    listener_free(worker->listener);
    worker->listener = NULL;
    control_close(worker->control, err, reason, patience_ns / 2);
    if (worker->roads)
        roads_close(worker->roads, reason, patience_ns / 2);
    else
        worker->roads_over = true;
    check_over(worker);
}

static void on_signal(int number, void *arg)
{
    struct worker *worker = arg;
    char reason[80];
    snprintf(reason, sizeof reason, "signal %d (%s)", number, number == SIGTERM ? "Terminated" : "Interrupt");
    stop(worker, 0, reason, worker->timeouts.grace_ns);
}

/* Nobody is left to say STOP: no kedged for a whole lease, no agent, and nothing moves. */
static void on_lease(void *arg)
{
    struct worker *worker = arg;
    uint64_t lease_ns = worker->timeouts.lease_ns;
    bool alone = control_lost_ns(worker->control) > lease_ns && getppid() != worker->agent;
    if (alone && clock_now_ns() - worker->busy_ns > lease_ns)
        stop(worker, ERR_GONE, "no scheduler and no agent for a whole lease, and nothing to compute", worker->timeouts.grace_ns);
    else
        loop_timer_set(worker->lease, lease_ns / 8);
}

/* ---- words to kedged ---- */

static void say(struct worker *worker, enum event_level level, const char *code, const char *text)
{
    struct wire_event event = {.level = (uint8_t)level};
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
    control_send(worker->control, WIRE_READY, &(struct wire_ready){.state = READY_LOADED, .parameters = worker->ready.parameters,
                                                                   .memory_bytes = worker->ready.memory_bytes});
    if (worker->ready.state == READY_ROADS)
        control_send(worker->control, WIRE_READY, &worker->ready);
    if (worker->done)
        control_send(worker->control, WIRE_DONE, &(struct wire_done){.step = worker->done_step});
}

static void check_ready(struct worker *worker)
{
    bool upstream = worker->assign.stage == 0 || roads_stand(worker->roads, MAIL_UPSTREAM);
    bool downstream = worker->assign.stage + 1 == worker->assign.stages || roads_stand(worker->roads, MAIL_DOWNSTREAM);
    if (worker->ready.state != READY_LOADED || !upstream || !downstream)
        return;
    worker->ready.state = READY_ROADS;
    control_send(worker->control, WIRE_READY, &worker->ready);
}

/* ---- data roads ---- */

static void measure(struct worker *worker)
{
    struct mail_roads roads;
    roads_measure(worker->roads, &roads);
    mail_set_roads(worker->mail, &roads);
    if (roads.unsent[MAIL_UPSTREAM] || roads.unsent[MAIL_DOWNSTREAM])
        loop_timer_set(worker->look, LOOK_NS);
}

static void on_look(void *arg)
{
    measure(arg);
}

static void on_road_up(enum mail_road side, void *arg)
{
    struct worker *worker = arg;
    (void)side;
    measure(worker);
    check_ready(worker);
}

/* The step cannot be finished any more. Weights and memory stay. */
static void break_off(struct worker *worker, const char *text)
{
    if (!worker->broken)
        snprintf(worker->broken_why, sizeof worker->broken_why, "%s", text);
    worker->broken = true;
    mail_order(worker->mail, MAIL_ABANDON);
}

static void on_road_lost(enum mail_road side, const char *peer, int err, const char *reason, void *arg)
{
    struct worker *worker = arg;
    char text[WIRE_TEXT];
    (void)side;
    snprintf(text, sizeof text, "lost %s: %.300s", peer, reason);
    say(worker, err ? EVENT_ALERT : EVENT_WARN, err ? "peer-lost" : "peer-left", text);
    break_off(worker, text);
}

static void on_roads_closed(void *arg)
{
    struct worker *worker = arg;
    worker->roads_over = true;
    check_over(worker);
}

/* What may come from which side, checked before the compute thread sees it. */
static int on_data(enum mail_road side, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                   struct why *why)
{
    static const struct {
        uint16_t type;
        uint8_t side;
    } allowed[] = {{WIRE_STAMP, MAIL_UPSTREAM}, {WIRE_ACT, MAIL_UPSTREAM}, {WIRE_CODEC_STATE, MAIL_UPSTREAM},
                 {WIRE_TIED, MAIL_UPSTREAM},  {WIRE_GRAD, MAIL_DOWNSTREAM}, {WIRE_TIED, MAIL_DOWNSTREAM}};
    union { /* only the check counts */
        struct wire_stamp stamp;
        struct wire_act act;
        struct wire_codec_state codec_state;
        struct wire_grad grad;
        struct wire_tied tied;
    } decoded;
    struct worker *worker = arg;
    size_t i = 0;
    while (i < sizeof allowed / sizeof *allowed && (allowed[i].type != header->type || allowed[i].side != side))
        i++;
    if (i == sizeof allowed / sizeof *allowed)
        return why_set(why, ERR_INVALID, "a %s has no place on this road", wire_find(header->type)->name);
    int err = wire_decode(header->type, payload, bytes, &decoded, why);
    if (err)
        return err;
    struct letter letter = {.type = header->type, .road = (uint8_t)side, .step = header->step, .micro_batch = header->micro_batch,
                            .payload = mem_copy(payload, bytes), .bytes = bytes};
    worker->busy_ns = clock_now_ns();
    err = mail_post(worker->mail, &letter);
    measure(worker);
    if (err == ERR_FULL)
        return why_set(why, ERR_INVALID, "more messages came than there is credit for");
    return 0; /* after an order what comes is dropped */
}

/* ---- from the compute thread ---- */

static uint64_t resident_bytes(void)
{
    uint8_t *text = NULL;
    size_t bytes = 0;
    uint64_t pages = 0;
    char *end;
    if (file_read("/proc/self/statm", 256, &text, &bytes, NULL) < 0)
        return 0;
    strtoull((char *)text, &end, 10);
    pages = strtoull(end, NULL, 10);
    mem_free(text);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The compute thread does not see the roads: their part of a sample is filled in here. */
static void send_sample(struct worker *worker, const struct letter *letter)
{
    struct wire_sample sample;
    if (wire_decode(WIRE_SAMPLE, letter->payload, letter->bytes, &sample, NULL) < 0)
        BUG("a sample of our own cannot be read");
    if (sample.kind == STAMP_TRAIN) {
        uint64_t sent, received;
        roads_act_bytes(worker->roads, &sent, &received);
        sample.sent_act_bytes = sent - worker->act_sent;
        sample.received_act_bytes = received - worker->act_received;
        worker->act_sent = sent;
        worker->act_received = received;
        sample.memory_bytes = resident_bytes();
    }
    /* Every step has its own key: no sample replaces another. An evaluation is too dear to be lost with a road. */
    control_sample(worker->control, WIRE_SAMPLE, &sample, (uint32_t)sample.step << 2 | sample.kind, sample.kind == STAMP_EVALUATE);
}

static void take_ready(struct worker *worker, const struct letter *letter)
{
    if (wire_decode(WIRE_READY, letter->payload, letter->bytes, &worker->ready, NULL) < 0)
        BUG("a READY of our own cannot be read");
    control_send(worker->control, WIRE_READY, &worker->ready);
    check_ready(worker);
}

static void take_done(struct worker *worker, const struct letter *letter)
{
    worker->done = true;
    worker->done_step = letter->step;
    control_send(worker->control, WIRE_DONE, &(struct wire_done){.step = letter->step});
}

static void take_event(struct worker *worker, const struct letter *letter)
{
    struct wire_event event;
    if (wire_decode(WIRE_EVENT, letter->payload, letter->bytes, &event, NULL) < 0)
        BUG("an EVENT of our own cannot be read");
    log_at(event.level == EVENT_INFO ? LOG_INFO : LOG_WARN, "stage", "%s: %s", event.code, event.text);
    if (strcmp(event.code, "drift") == 0 && !worker->broken) {
        worker->broken = true;
        snprintf(worker->broken_why, sizeof worker->broken_why, "%s", event.text);
    }
    control_send(worker->control, WIRE_EVENT, &event);
}

static void take_knob_used(struct worker *worker, const struct letter *letter)
{
    struct wire_knob_used used;
    if (wire_decode(WIRE_KNOB_USED, letter->payload, letter->bytes, &used, NULL) < 0)
        BUG("a KNOB_USED of our own cannot be read");
    control_send(worker->control, WIRE_KNOB_USED, &used);
}

static void take_failed(struct worker *worker, const struct letter *letter)
{
    char text[600];
    snprintf(text, sizeof text, "%.*s", (int)letter->bytes, (const char *)letter->payload);
    stop(worker, -(int)letter->micro_batch, text, worker->timeouts.grace_ns);
}

static void take_ended(struct worker *worker, const struct letter *letter)
{
    (void)letter;
    compute_join(worker->compute);
    worker->ended = true;
    check_over(worker);
}

static void take_letter(struct worker *worker, struct letter *letter)
{
    static const struct {
        uint16_t type;
        void (*take)(struct worker *worker, const struct letter *letter);
    } takers[] = {
        {WIRE_SAMPLE, send_sample},         {WIRE_READY, take_ready},   {WIRE_DONE, take_done},  {WIRE_EVENT, take_event},
        {WIRE_KNOB_USED, take_knob_used}, {MAIL_FAILED, take_failed}, {MAIL_ENDED, take_ended},
    };
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
        if (takers[i].type == letter->type) {
            takers[i].take(worker, letter);
            mem_free(letter->payload);
            return;
        }
    BUG("a letter of type %u to kedged", letter->type);
}

static void on_mail(void *arg)
{
    struct worker *worker = arg;
    struct letter letter;
    bool sent = false;
    while (mail_collect(worker->mail, &letter) == 0) {
        worker->busy_ns = clock_now_ns();
        if (letter.road == MAIL_CONTROL) {
            take_letter(worker, &letter);
            continue;
        }
        sent = true;
        if (roads_send(worker->roads, &letter) == ERR_FULL) { /* credit makes this impossible unless a peer breaks it */
            say(worker, EVENT_ALERT, "drift", "a road's queue is full beyond all credit");
            break_off(worker, "a road's queue is full beyond all credit");
        }
    }
    if (sent)
        measure(worker);
}

static void on_telemetry(void *arg)
{
    struct worker *worker = arg;
    loop_timer_set(worker->telemetry, TELEMETRY_NS);
    for (int side = 0; side < MAIL_CONTROL; side++)
        for (int lane = 0; lane < LANE_COUNT; lane++) {
            struct wire_road_sample sample;
            if (!roads_sample(worker->roads, (enum mail_road)side, (enum wire_lane)lane, &sample))
                continue;
            control_sample(worker->control, WIRE_ROAD_SAMPLE, &sample, (uint32_t)(side * LANE_COUNT + lane), false);
        }
}

/* ---- from kedged ---- */

static void neighbour(const struct worker *worker, int stage, char *out)
{
    if (stage >= 0 && stage < worker->assign.stages)
        snprintf(out, WIRE_NAME, "r%us%d", worker->assign.replica, stage);
}

static void open_roads(struct worker *worker, uint64_t profile_hash, size_t queue_bytes)
{
    static const struct roads_callbacks callbacks = {.up = on_road_up, .message = on_data, .lost = on_road_lost, .closed = on_roads_closed};
    struct roads_settings settings = {
        .profile = &worker->profile,
        .credentials = worker->credentials,
        .timeouts = worker->timeouts,
        .run_id = worker->arguments.run_id,
        .uplink_bps = worker->assign.uplink_bps,
        .incarnation = (uint32_t)worker->arguments.incarnation,
        .hello = {.role = ROLE_STAGE, .profile_hash = profile_hash},
        .queue_bytes = queue_bytes,
    };
    control_hello(&settings.hello);
    memcpy(settings.hello.name, worker->arguments.name, sizeof settings.hello.name);
    memcpy(settings.hello.host, worker->arguments.host, sizeof settings.hello.host);
    memcpy(settings.folder, worker->arguments.folder, sizeof settings.folder);
    worker->roads = roads_new(worker->loop, &settings, &callbacks, worker);
    loop_timer_set(worker->telemetry, TELEMETRY_NS);
}

static int begin_compute(struct worker *worker, uint64_t profile_hash, struct why *why)
{
    size_t letters, bytes;
    struct compute_settings *settings = mem_new(sizeof *settings);
    settings->profile = worker->profile;
    settings->assign = worker->assign;
    memcpy(settings->name, worker->arguments.name, sizeof settings->name);
    neighbour(worker, worker->assign.stage - 1, settings->upstream);
    neighbour(worker, worker->assign.stage + 1, settings->downstream);
    int err = compute_new(settings, &worker->compute, why);
    if (!err) {
        compute_bounds(settings, &letters, &bytes);
        worker->mail = mail_new(worker->loop, on_mail, worker, letters, bytes);
        open_roads(worker, profile_hash, bytes);
        err = compute_start(worker->compute, worker->mail, why);
        worker->ended = err != 0;
    }
    mem_free(settings);
    return err;
}

static int take_assign(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_assign *assign = message;
    struct why reason = {0};
    if (worker->compute)
        return 0; /* said again: `up` has told what we are */
    int err = profile_from_settings(assign->settings.data, assign->settings.bytes, &worker->profile, &reason);
    if (!err) {
        uint64_t hash = profile_hash(&worker->profile);
        log_set_level((enum log_level)worker->profile.log_level);
        worker->timeouts = timeouts_derive(worker->profile.timeout_ns);
        control_set(worker->control, hash, &worker->timeouts);
        worker->assign = *assign;
        worker->assign.settings = (struct wire_bytes){0};
        log_at(LOG_INFO, "stage", "is stage %u of %u of replica %u: layers %u to %u, %u micro-batches in flight, %u threads, profile %016"
               PRIx64, assign->stage, assign->stages, assign->replica, assign->first_layer, assign->first_layer + assign->layers - 1u,
               assign->in_flight, assign->threads, hash);
        err = begin_compute(worker, hash, &reason);
    }
    (void)why;
    if (err)
        stop(worker, err, reason.text, worker->timeouts.grace_ns);
    return 0;
}

static int take_road(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_road *road = message;
    if (!worker->roads)
        return why_set(why, ERR_INVALID, "a ROAD came before the ASSIGN");
    roads_expect(worker->roads, road);
    return 0;
}

static int take_stop(struct worker *worker, const void *message, struct why *why)
{
    const struct wire_stop *order = message;
    (void)why;
    stop(worker, 0, order->reason[0] ? order->reason : "by order", order->grace_ms * CLOCK_MS);
    return 0;
}

static int take_start(struct worker *worker, const void *message, struct why *why)
{
    (void)message;
    char text[WIRE_TEXT];
    if (!worker->compute)
        return why_set(why, ERR_INVALID, "a START came before the ASSIGN");
    if (worker->broken) {
        snprintf(text, sizeof text, "cannot go on: %.340s", worker->broken_why);
        say(worker, EVENT_ALERT, "peer-lost", text);
    }
    worker->started = true;
    return 0;
}

static int take_nothing(struct worker *worker, const void *message, struct why *why)
{
    (void)message;
    return worker->compute ? 0 : why_set(why, ERR_INVALID, "the ASSIGN is still missing");
}

static int on_control(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    static const struct {
        uint16_t type;
        bool computes; /* goes on to the compute thread */
        int (*take)(struct worker *worker, const void *message, struct why *why);
    } takers[] = {
        {WIRE_ASSIGN, false, take_assign}, {WIRE_ROAD, false, take_road},   {WIRE_STOP, false, take_stop},
        {WIRE_START, true, take_start},    {WIRE_HOLD, true, take_nothing}, {WIRE_KNOB, true, take_nothing},
    };
    union {
        struct wire_assign assign;
        struct wire_road road;
        struct wire_stop stop;
        struct wire_start start;
        struct wire_hold hold;
        struct wire_knob knob;
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
    if (!err && takers[i].computes) {
        struct letter letter = {.type = header->type, .road = MAIL_CONTROL, .payload = mem_copy(payload, bytes), .bytes = bytes};
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
        stop(worker, err ? err : ERR_GONE, reason, worker->timeouts.grace_ns);
    else if (!final)
        log_at(LOG_WARN, "stage", "no road to the scheduler: %s", reason);
    check_over(worker);
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

static void dial_control(struct worker *worker)
{
    static const struct control_callbacks callbacks = {.up = on_control_up, .message = on_control, .down = on_control_down};
    struct control_settings settings = {
        .credentials = worker->credentials,
        .run_id = worker->arguments.run_id,
        .incarnation = (uint32_t)worker->arguments.incarnation,
        .hello = {.role = ROLE_STAGE},
        .timeouts = worker->timeouts,
    };
    memcpy(settings.head, worker->arguments.head, sizeof settings.head);
    memcpy(settings.hello.name, worker->arguments.name, sizeof settings.hello.name);
    memcpy(settings.hello.host, worker->arguments.host, sizeof settings.hello.host);
    snprintf(settings.hello.announce, sizeof settings.hello.announce, "%s",
             worker->arguments.announce[0] ? worker->arguments.announce : listener_address(worker->listener));
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
    worker->telemetry = loop_timer_new(worker->loop, on_telemetry, worker);
    worker->look = loop_timer_new(worker->loop, on_look, worker);
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
    if (worker->compute && !worker->ended) /* it is in the middle of a computation: memory goes with the process */
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
    loop_free(worker->loop);
    credentials_free(worker->credentials);
    mem_free(worker);
    log_close();
}

int stage_main(int count, char **words)
{
    static const char *const needs[] = {"--folder", "--name", "--host", "--head", "--listen", "--incarnation", NULL};
    struct worker *worker = mem_new(sizeof *worker);
    struct why why = {0};
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
