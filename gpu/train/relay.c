/*
 * Between the data roads and the mailbox: what comes is checked and put into the inbox, what the compute thread sends goes
 * out, and the numbers of the roads become telemetry. The payload of a message is copied once on its way in and never on its
 * way out.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "gpu/train/anchor.h"
#include "gpu/train/ship.h"
#include "gpu/train/worker.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

#define TELEMETRY_NS CLOCK_SECOND
#define LOOK_NS (20 * CLOCK_MS) /* at the queues of the data roads while something lies in them */

static void check_ready(struct worker *worker)
{
    if (worker->is_anchor) /* its roads come and go */
        return;
    bool upstream = worker->assign.stage == 0 || roads_stand(worker->roads, MAIL_UPSTREAM);
    bool downstream = worker->assign.stage + 1 == worker->assign.stages || roads_stand(worker->roads, MAIL_DOWNSTREAM);
    bool siblings = true;
    for (int r = 0; r < worker->assign.replicas; r++)
        siblings &= r == worker->assign.replica || !(worker->assign.members >> r & 1) ||
                    roads_stand(worker->roads, (enum mail_road)(MAIL_SIBLINGS + r));
    if (worker->ready.state != READY_LOADED || !upstream || !downstream || !siblings)
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
    measure(worker);
    if (worker->is_anchor)
        anchor_road(worker->anchor, (int)side - MAIL_STAGES, worker);
    else if (side == MAIL_ANCHOR)
        ship_road(worker, true);
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

/* A round can do without a replica; an averaged gradient is part of the step. */
static bool is_elastic(const struct profile *profile)
{
    return profile->replicas > 1 && (profile->sync_every > 1 || profile->sync_outer != OUTER_NONE);
}

static void on_road_lost(enum mail_road side, const char *peer, int err, const char *reason, void *arg)
{
    struct worker *worker = arg;
    char text[WIRE_TEXT];
    snprintf(text, sizeof text, "lost %s: %.300s", peer, reason);
    if (side >= MAIL_ANCHOR) {
        if (!worker->is_anchor)
            ship_road(worker, false);
        log_at(LOG_WARN, "stage", "%s", text);
        return; /* nobody waits for it */
    }
    if (side >= MAIL_SIBLINGS && is_elastic(&worker->profile)) { /* kedged says who leaves; what is here of it may still count */
        stage_say(worker, EVENT_WARN, "sibling-lost", text);
        control_send(worker->control, WIRE_PART, &(struct wire_part){.replica = (uint16_t)(side - MAIL_SIBLINGS)});
        return;
    }
    stage_say(worker, err ? EVENT_ALERT : EVENT_WARN, err ? "peer-lost" : "peer-left", text);
    break_off(worker, text);
}

static void on_roads_closed(void *arg)
{
    struct worker *worker = arg;
    worker->roads_over = true;
    stage_check_over(worker);
}

/* What may come from which side, checked before the compute thread sees it. */
static int on_data(enum mail_road side, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                   struct why *why)
{
    static const struct {
        uint16_t type;
        uint8_t side;
    } allowed[] = {{WIRE_STAMP, MAIL_UPSTREAM}, {WIRE_ACT, MAIL_UPSTREAM},    {WIRE_CODEC_STATE, MAIL_UPSTREAM},
                   {WIRE_TIED, MAIL_UPSTREAM},  {WIRE_GRAD, MAIL_DOWNSTREAM}, {WIRE_TIED, MAIL_DOWNSTREAM},
                   {WIRE_CODEC_STATE, MAIL_DOWNSTREAM},
                   {WIRE_SYNC, MAIL_SIBLINGS},  {WIRE_AGREE, MAIL_SIBLINGS}, {WIRE_HAVE, MAIL_SIBLINGS},
                   {WIRE_ENTER, MAIL_SIBLINGS}, {WIRE_PULL, MAIL_SIBLINGS}, {WIRE_STATE, MAIL_SIBLINGS}};
    uint8_t place = side < MAIL_SIBLINGS ? (uint8_t)side : MAIL_SIBLINGS;
    union { /* only the check counts */
        struct wire_stamp stamp;
        struct wire_act act;
        struct wire_codec_state codec_state;
        struct wire_grad grad;
        struct wire_tied tied;
        struct wire_sync sync;
        struct wire_agree agree;
        struct wire_have have;
        struct wire_enter enter;
        struct wire_pull pull;
        struct wire_state state;
    } decoded;
    struct worker *worker = arg;
    size_t i = 0;
    if (side == MAIL_ANCHOR)
        return ship_message(worker, header, payload, bytes, why);
    if (side >= MAIL_STAGES)
        return anchor_message(worker->anchor, (int)side - MAIL_STAGES, header, payload, bytes, worker, why);
    while (i < sizeof allowed / sizeof *allowed && (allowed[i].type != header->type || allowed[i].side != place))
        i++;
    if (i == sizeof allowed / sizeof *allowed)
        return why_set(why, ERR_INVALID, "a %s has no place on this road", wire_find(header->type)->name);
    int err = wire_decode(header->type, payload, bytes, &decoded, why);
    if (err)
        return err;
    struct letter letter = {.type = header->type,
                            .road = (uint8_t)side,
                            .step = header->step,
                            .micro_batch = header->micro_batch,
                            .payload = mem_copy(payload, bytes),
                            .bytes = bytes};
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
    worker->newest_step = sample.step;
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
    control_sample(worker->control, WIRE_SAMPLE, &sample, (uint32_t)sample.step << 2 | sample.kind,
                   sample.kind == STAMP_EVALUATE);
}

void relay_tell_roads(struct worker *worker)
{
    for (int side = 0; side < MAIL_ROADS; side++)
        for (int lane = 0; lane < LANE_COUNT; lane++) {
            struct wire_road_sample sample;
            if (!roads_sample(worker->roads, (enum mail_road)side, (enum wire_lane)lane, &sample))
                continue;
            control_sample(worker->control, WIRE_ROAD_SAMPLE, &sample, (uint32_t)(side * LANE_COUNT + lane), false);
        }
}

static void on_telemetry(void *arg)
{
    struct worker *worker = arg;
    loop_timer_set(worker->telemetry, TELEMETRY_NS);
    relay_tell_roads(worker);
    ship_report(worker);
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
    relay_tell_roads(worker); /* what travelled in all, also in a run of less than a second */
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

static void take_saved(struct worker *worker, const struct letter *letter)
{
    if (wire_decode(WIRE_SAVED, letter->payload, letter->bytes, &worker->saved, NULL) < 0)
        BUG("a SAVED of our own cannot be read");
    if (worker->saved.reason[0])
        log_at(LOG_ERROR, "stage", "the weights after step %" PRIu64 " are not saved: %s", worker->saved.step,
               worker->saved.reason);
    control_send(worker->control, WIRE_SAVED, &worker->saved);
}

static void take_outer(struct worker *worker, const struct letter *letter)
{
    struct wire_outer outer;
    if (wire_decode(WIRE_OUTER, letter->payload, letter->bytes, &outer, NULL) < 0)
        BUG("an OUTER of our own cannot be read");
    control_send(worker->control, WIRE_OUTER, &outer);
}

static void take_mark(struct worker *worker, const struct letter *letter)
{
    struct wire_mark mark;
    if (wire_decode(WIRE_MARK, letter->payload, letter->bytes, &mark, NULL) < 0)
        BUG("a MARK of our own cannot be read");
    control_send(worker->control, WIRE_MARK, &mark);
}

static void take_meter(struct worker *worker, const struct letter *letter)
{
    struct wire_meter meter;
    if (wire_decode(WIRE_METER, letter->payload, letter->bytes, &meter, NULL) < 0)
        BUG("a METER of our own cannot be read");
    control_sample(worker->control, WIRE_METER, &meter, meter.matrix_class, false);
}

static void take_spectrum(struct worker *worker, const struct letter *letter)
{
    struct wire_spectrum spectrum;
    if (wire_decode(WIRE_SPECTRUM, letter->payload, letter->bytes, &spectrum, NULL) < 0)
        BUG("a SPECTRUM of our own cannot be read");
    control_sample(worker->control, WIRE_SPECTRUM, &spectrum, (uint32_t)spectrum.layer * MATRIX_CLASSES + spectrum.matrix_class, false);
}

static void take_parted(struct worker *worker, const struct letter *letter)
{
    struct wire_parted parted;
    if (wire_decode(WIRE_PARTED, letter->payload, letter->bytes, &parted, NULL) < 0)
        BUG("a PARTED of our own cannot be read");
    control_send(worker->control, WIRE_PARTED, &parted);
}

static void take_entered(struct worker *worker, const struct letter *letter)
{
    struct wire_entered entered;
    if (wire_decode(WIRE_ENTERED, letter->payload, letter->bytes, &entered, NULL) < 0)
        BUG("an ENTERED of our own cannot be read");
    worker->entered = entered;
    control_send(worker->control, WIRE_ENTERED, &entered);
}

static void take_failed(struct worker *worker, const struct letter *letter)
{
    char text[600];
    snprintf(text, sizeof text, "%.*s", (int)letter->bytes, (const char *)letter->payload);
    stage_stop(worker, -(int)letter->micro_batch, text, worker->timeouts.grace_ns);
}

static void take_ended(struct worker *worker, const struct letter *letter)
{
    (void)letter;
    if (worker->is_anchor)
        anchor_join(worker->anchor);
    else
        compute_join(worker->compute);
    worker->ended = true;
    stage_check_over(worker);
}

static void take_letter(struct worker *worker, struct letter *letter)
{
    static const struct {
        uint16_t type;
        void (*take)(struct worker *worker, const struct letter *letter);
    } takers[] = {
        {WIRE_SAMPLE, send_sample},       {WIRE_READY, take_ready},   {WIRE_DONE, take_done},   {WIRE_EVENT, take_event},
        {WIRE_KNOB_USED, take_knob_used}, {WIRE_OUTER, take_outer},   {MAIL_FAILED, take_failed}, {MAIL_ENDED, take_ended},
        {WIRE_SAVED, take_saved},         {WIRE_MARK, take_mark},     {WIRE_METER, take_meter},
        {WIRE_PARTED, take_parted},       {WIRE_ENTERED, take_entered},
        {WIRE_SPECTRUM, take_spectrum},
    };
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
        if (takers[i].type == letter->type) {
            takers[i].take(worker, letter);
            mem_free(letter->payload);
            return;
        }
    BUG("a letter of type %u to kedged", letter->type);
}

void relay_on_mail(void *arg)
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
        if (roads_send(worker->roads, &letter) != ERR_FULL)
            continue;
        if (worker->is_anchor) { /* a road too slow for what it finds: the version is of no use then, a newer one will be */
            log_at(LOG_WARN, "anchor", "what was found of version %" PRIu64 " has no room on the road to stage %d", letter.step,
                   letter.road - MAIL_STAGES);
        } else { /* credit makes this impossible unless a peer breaks it */
            stage_say(worker, EVENT_ALERT, "drift", "a road's queue is full beyond all credit");
            break_off(worker, "a road's queue is full beyond all credit");
        }
    }
    if (sent)
        measure(worker);
}

/* ---- begin ---- */

void relay_open(struct worker *worker, uint64_t profile_hash, size_t queue_bytes)
{
    static const struct roads_callbacks callbacks = {
        .up = on_road_up, .message = on_data, .lost = on_road_lost, .closed = on_roads_closed};
    struct roads_settings settings = {
        .profile = &worker->profile,
        .credentials = worker->credentials,
        .timeouts = worker->timeouts,
        .run_id = worker->arguments.run_id,
        .uplink_bps = worker->assign.uplink_bps,
        .incarnation = (uint32_t)worker->arguments.incarnation,
        .hello = {.role = worker->is_anchor ? ROLE_ANCHOR : ROLE_STAGE, .profile_hash = profile_hash},
        .queue_bytes = queue_bytes,
    };
    control_hello(&settings.hello);
    memcpy(settings.hello.name, worker->arguments.name, sizeof settings.hello.name);
    memcpy(settings.hello.host, worker->arguments.host, sizeof settings.hello.host);
    memcpy(settings.folder, worker->arguments.folder, sizeof settings.folder);
    worker->roads = roads_new(worker->loop, &settings, &callbacks, worker);
    loop_timer_set(worker->telemetry, TELEMETRY_NS);
}

void relay_timers(struct worker *worker)
{
    worker->telemetry = loop_timer_new(worker->loop, on_telemetry, worker);
    worker->look = loop_timer_new(worker->loop, on_look, worker);
}
