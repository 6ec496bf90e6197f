/*
 * The life of a link: road → greeting → up → down. What is sent is in out.c, what comes in in.c.
 *
 * Two rules keep callbacks simple for the owner. Nothing calls back before link_new returns, nor from inside link_send
 * or link_close: these only queue and wake `kick`, and all road calls are made from the loop. And the owner may free
 * the link inside any callback: link_free lets go of everything at once but the struct and the parser, which go at the
 * end of the turn, and every function here looks at `state` after a callback.
 *
 * Parting: our BYE is flushed, the road told that no more comes, and what still arrives is dropped until the peer has
 * closed too; closing with unread bytes would make TCP throw away the BYE that the peer has not read yet.
 */
#include "ssh/link/link.h"

#include <stdio.h>
#include <string.h>

#include "ssh/base/buf.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/link/beat.h"
#include "ssh/link/greet.h"
#include "ssh/link/in.h"
#include "ssh/link/out.h"
#include "ssh/link/road.h"

#define LINK_QUEUE_BYTES ((size_t)256 << 20)
#define LINK_TURN_BYTES (1024 * 1024) /* read in one turn; then others are served */
#define LINK_PART_NS CLOCK_SECOND     /* how long a peer that we refuse may take to close */
#define LANES_ALL ((1u << LANE_COUNT) - 1)

enum link_state {
    LINK_STARTING, /* awaits the road;              next: GREETING, CLOSING, DOWN */
    LINK_GREETING, /* awaits the peer's HELLO;      next: UP, CLOSING, DOWN */
    LINK_UP,       /* messages;                     next: CLOSING, DOWN */
    LINK_CLOSING,  /* awaits the end of our BYE, then the peer's end of the road; next: DOWN */
    LINK_DOWN,     /* the down callback was called, or the link was freed */
};

struct link {
    struct loop *loop;
    struct road *road; /* NULL once down */
    struct link_settings settings;
    struct link_callbacks callbacks;
    void *arg;
    enum link_state state;
    bool started, finished; /* the road stands; the road was told that no more comes */
    bool want_write;
    struct out out;
    struct in in;
    struct loop_timer *kick, *beat_due, *deadline;
    uint64_t greet_until_ns, part_until_ns;
    uint64_t deadline_at_ns; /* when the timer should fire: much later means that we slept ourselves */

    struct wire_hello peer;
    bool greeted;
    uint32_t peer_incarnation;
    struct beat beat;

    int close_err; /* CLOSING: what down will say */
    bool refusing; /* CLOSING: also a road that does not stand yet is parted from in order (TLS has an alert to deliver) */
    char *close_reason;
    char text[400], who[300];
};

/* ---- words ---- */

const char *link_hold_name(uint32_t bit)
{
    static const struct { uint32_t bit; const char *name; } names[] = {
        {HOLD_GREETING, "greeting"}, {HOLD_PACE, "pace"},         {HOLD_UPLINK, "uplink"}, {HOLD_PRIORITY, "priority"},
        {HOLD_KERNEL, "road"},       {HOLD_OPERATOR, "operator"}, {HOLD_GRANT, "grant"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].bit == bit)
            return names[i].name;
    return "unknown";
}

/* The peer as a sentence begins with it: "r0s1 at 127.0.0.1:4711". */
static const char *link_who(struct link *link)
{
    if (!link->road)
        return link->who; /* the last words stay */
    char where[200];
    road_where(link->road, where, sizeof where);
    if (link->greeted)
        snprintf(link->who, sizeof link->who, "%s at %s", link->peer.name, where);
    else
        snprintf(link->who, sizeof link->who, "%s", where);
    return link->who;
}

const char *link_describe(const struct link *link)
{
    struct link *mine = (struct link *)(uintptr_t)link; /* the text is a cache, not state */
    char words[200] = "closed";
    if (link->road)
        road_describe(link->road, words, sizeof words);
    snprintf(mine->text, sizeof mine->text, link->greeted ? "%s → %s" : "%s", words, link->peer.name);
    return link->text;
}

/* ---- the end ---- */

static void link_set_deadline(struct link *link, uint64_t delay_ns)
{
    link->deadline_at_ns = clock_now_ns() + delay_ns;
    loop_timer_set(link->deadline, delay_ns);
}

static void link_release(void *arg)
{
    struct link *link = arg;
    in_clear(&link->in);
    mem_free(link->close_reason);
    mem_free(link);
}

static void link_let_go(struct link *link)
{
    link_who(link);
    link->state = LINK_DOWN;
    road_free(link->road);
    link->road = NULL;
    out_clear(&link->out);
    loop_timer_unset(link->kick);
    loop_timer_unset(link->beat_due);
    loop_timer_unset(link->deadline);
}

void link_free(struct link *link)
{
    if (!link)
        return;
    link_let_go(link);
    loop_timer_free(link->kick);
    loop_timer_free(link->beat_due);
    loop_timer_free(link->deadline);
    loop_later(link->loop, link_release, link);
}

static void link_down(struct link *link, int err, const char *reason)
{
    char kept[700];
    snprintf(kept, sizeof kept, "%s", reason);
    log_at(err == 0 || err == ERR_GONE ? LOG_INFO : LOG_WARN, "link", "%s", kept);
    link_let_go(link);
    if (link->callbacks.down)
        link->callbacks.down(link, err, kept, link->arg);
}

static void link_put(struct link *link, enum wire_type type, const void *payload)
{
    int err = link_send(link, type, payload, 0, 0);
    if (err != 0 && err != ERR_FULL)
        BUG("%s cannot be sent: %s", wire_find((uint16_t)type)->name, why_name(err));
}

/* Say BYE, and go down with `err` and `reason` once it is out. */
static void link_part(struct link *link, int err, const char *bye, const char *reason, uint64_t linger_ns)
{
    if (link->state == LINK_CLOSING || link->state == LINK_DOWN)
        return;
    link->close_err = err;
    link->close_reason = mem_text(reason);
    link->part_until_ns = clock_now_ns() + linger_ns;
    if (link->state != LINK_UP)
        lane_clear(&link->out.lanes, LANE_CONTROL); /* meant for a peer that we accept */
    if (link->started) {
        struct wire_bye message = {.err = err};
        text_harmless(bye, strlen(bye), message.text, sizeof message.text);
        link_put(link, WIRE_BYE, &message);
    }
    link->state = LINK_CLOSING;
    loop_timer_unset(link->beat_due);
    loop_timer_set(link->kick, 0);
    link_set_deadline(link, linger_ns);
}

void link_close(struct link *link, int err, const char *reason, uint64_t linger_ns)
{
    if (link->state == LINK_CLOSING || link->state == LINK_DOWN)
        return;
    char text[700];
    snprintf(text, sizeof text, "%s: closed by us: %.350s", link_who(link), reason);
    link_part(link, err, reason, text, linger_ns);
}

/* We refuse the peer: it is told why. */
static void link_refuse(struct link *link, int err, const char *between, const char *text)
{
    char reason[1000];
    snprintf(reason, sizeof reason, "%s%s%s", link_who(link), between, text);
    link->refusing = true;
    link_part(link, err, text, reason, LINK_PART_NS);
}

/* The road came to an end. */
static void link_road_failed(struct link *link, int err, const char *text)
{
    char reason[1000];
    snprintf(reason, sizeof reason, "%s %s%s", link_who(link), text,
             link->state == LINK_GREETING && err == ERR_GONE ? " before it had greeted" : "");
    if (link->state == LINK_CLOSING)
        link_down(link, link->close_err, link->close_reason);
    else if (err == ERR_INVALID || err == ERR_REFUSED)
        link_refuse(link, err, " ", text);
    else
        link_down(link, err, reason);
}

/* ---- sending ---- */

static void link_drain(struct link *link)
{
    for (int lane = 0; lane < LANE_COUNT && link->state == LINK_UP; lane++)
        if (lane_drained(&link->out.lanes, lane) && link->callbacks.drained)
            link->callbacks.drained(link, (enum wire_lane)lane, link->arg);
}

static void link_want(struct link *link, bool write)
{
    link->want_write = write;
    road_want(link->road, true, write);
}

/* CLOSING, and the BYE is out: tell the road, then wait for the peer's end. */
static void link_finish(struct link *link)
{
    struct why why = {0};
    int err = road_finish(link->road, &why);
    link->finished = err == 0;
    if (err == 0 || err == ERR_AGAIN)
        link_want(link, err == ERR_AGAIN);
    else
        link_down(link, link->close_err, link->close_reason);
}

static void link_flush(struct link *link)
{
    uint32_t allowed = link->state == LINK_UP ? LANES_ALL : link->state == LINK_CLOSING ? 1u << LANE_CONTROL : 0;
    uint64_t wait_ns;
    struct why why = {0};
    int result = out_flush(&link->out, link->road, allowed, &wait_ns, &why);
    if (result == ERR_GONE && link->state != LINK_CLOSING) {
        /* Its last words may still be there to read, and reading will find the end. */
        out_clear(&link->out);
        link_want(link, false);
        return;
    }
    if (result < 0) {
        link_road_failed(link, result, why.text);
        return;
    }
    if (result == OUT_WAIT)
        loop_timer_set(link->kick, wait_ns);
    if (link->state == LINK_CLOSING && result == OUT_IDLE)
        link_finish(link);
    else if (link->want_write != (result == OUT_ROAD))
        link_want(link, result == OUT_ROAD);
    link_drain(link);
}

int link_send_encoded(struct link *link, enum wire_type type, uint8_t *payload, size_t bytes, uint64_t step,
                      uint32_t micro_batch)
{
    const struct wire_message *message = wire_find((uint16_t)type);
    BUG_IF(!message);
    if (link->state == LINK_DOWN || link->state == LINK_CLOSING || bytes > message->max_bytes) {
        mem_free(payload);
        return bytes > message->max_bytes ? ERR_INVALID : ERR_GONE;
    }
    struct frame_header header = {
        .message_bytes = (uint32_t)bytes,
        .type = (uint16_t)type,
        .lane = (uint8_t)message->lane,
        .run_id = link->settings.run_id,
        .incarnation = link->settings.incarnation,
        .step = step,
        .micro_batch = micro_batch,
    };
    int err = lane_put(&link->out.lanes, &header, payload);
    if (err == 0 && link->state == LINK_UP && !link->want_write)
        loop_timer_set(link->kick, 0);
    return err;
}

int link_send(struct link *link, enum wire_type type, const void *payload, uint64_t step, uint32_t micro_batch)
{
    const struct wire_message *message = wire_find((uint16_t)type);
    struct buf bytes;
    struct why why = {0};
    BUG_IF(!message);
    buf_init(&bytes, message->max_bytes);
    int err = wire_encode((uint16_t)type, payload, &bytes, &why);
    if (err) {
        log_at(LOG_ERROR, "link", "%s: %s", link_who(link), why.text);
        buf_clear(&bytes);
        return ERR_INVALID;
    }
    return link_send_encoded(link, type, bytes.data, buf_used(&bytes), step, micro_batch);
}

/* ---- heartbeats ---- */

static void link_send_heartbeat(struct link *link)
{
    if (lane_has(&link->out.lanes, LANE_CONTROL, WIRE_HEARTBEAT))
        return; /* a road that is stuck gets no heap of them */
    struct wire_heartbeat beat = beat_make(&link->beat, clock_now_ns(), clock_wall_ns());
    link_put(link, WIRE_HEARTBEAT, &beat);
}

static void link_on_beat(void *arg)
{
    struct link *link = arg;
    link_send_heartbeat(link);
    loop_timer_set(link->beat_due, link->settings.heartbeat_ns);
}

static int link_heard_heartbeat(struct link *link, const uint8_t *payload, size_t bytes, struct why *why)
{
    struct wire_heartbeat beat;
    int err = wire_decode(WIRE_HEARTBEAT, payload, bytes, &beat, why);
    if (err)
        return err;
    beat_heard(&link->beat, &beat, clock_now_ns(), clock_wall_ns());
    if (!link->beat.answered)
        link_send_heartbeat(link); /* the first answer at once: both sides soon know the round trip */
    return 0;
}

/* ---- greeting ---- */

static void link_send_hello(struct link *link)
{
    struct buf bytes;
    buf_init(&bytes, wire_find(WIRE_HELLO)->max_bytes);
    greet_encode(&link->settings.hello, &bytes);
    struct frame_header header = {
        .frame_bytes = (uint32_t)buf_used(&bytes),
        .message_bytes = (uint32_t)buf_used(&bytes),
        .type = WIRE_HELLO,
        .lane = (uint8_t)LANE_CONTROL,
        .run_id = link->settings.run_id,
        .incarnation = link->settings.incarnation,
    };
    out_stage_first(&link->out, &header, buf_peek(&bytes));
    buf_clear(&bytes);
}

static int link_heard_hello(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes,
                            struct why *why)
{
    int err = greet_check(payload, bytes, road_tls_peer(link->road), &link->peer, why);
    if (err)
        return err;
    link->greeted = true;
    link->peer_incarnation = header->incarnation;
    link->state = LINK_UP;
    link_set_deadline(link, link->settings.silent_ns);
    loop_timer_set(link->kick, 0);
    log_at(LOG_INFO, "link", "%s is up: %s, %s, incarnation %u", link_who(link), wire_role_name(link->peer.role),
           link->peer.program, link->peer_incarnation);
    err = link->callbacks.up ? link->callbacks.up(link, &link->peer, link->arg, why) : 0;
    if (link->state != LINK_UP)
        return 0;
    if (err) {
        link->state = LINK_GREETING; /* nothing that was queued meanwhile goes to it */
        return why_set(why, err, "was refused");
    }
    link_on_beat(link);
    return 0;
}

static int link_heard_bye(struct link *link, const uint8_t *payload, size_t bytes, struct why *why)
{
    struct wire_bye bye;
    int err = wire_decode(WIRE_BYE, payload, bytes, &bye, why);
    if (err)
        return err;
    char reason[800];
    snprintf(reason, sizeof reason, "%s %s: %s", link_who(link), bye.err ? "ended the link" : "said goodbye", bye.text);
    link_down(link, bye.err >= 0 ? 0 : bye.err >= ERR_ABSENT ? bye.err : ERR_GONE, reason);
    return 0;
}

/* ---- receiving ---- */

static int link_on_message(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                           struct why *why)
{
    struct link *link = arg;
    if (link->state != LINK_GREETING && link->state != LINK_UP)
        return 0; /* an earlier message of the same read ended the link */
    link->in.messages[header->lane]++;
    if (header->type == WIRE_BYE)
        return link_heard_bye(link, payload, bytes, why);
    if (link->state == LINK_GREETING) {
        if (header->type != WIRE_HELLO)
            return why_set(why, ERR_INVALID, "a %s came before the HELLO", wire_find(header->type)->name);
        return link_heard_hello(link, header, payload, bytes, why);
    }
    if (header->incarnation != link->peer_incarnation)
        return why_set(why, ERR_INVALID, "the incarnation changed from %u to %u on one road", link->peer_incarnation,
                       header->incarnation);
    if (header->type == WIRE_HEARTBEAT)
        return link_heard_heartbeat(link, payload, bytes, why);
    if (header->type == WIRE_HELLO)
        return why_set(why, ERR_INVALID, "a second HELLO came");
    int err = link->callbacks.message ? link->callbacks.message(link, header, payload, bytes, link->arg, why) : 0;
    return link->state == LINK_UP ? err : 0;
}

static void link_read(struct link *link)
{
    enum in_state state = IN_MORE;
    size_t turn = 0, count = 0;
    struct why why = {0};
    int err = 0;
    while (state == IN_MORE && turn < LINK_TURN_BYTES && link->state != LINK_DOWN) {
        state = link->state == LINK_CLOSING ? in_drop(&link->in, link->road, &count, &err, &why)
                                            : in_read(&link->in, link->road, &count, &err, &why);
        turn += count;
    }
    if (link->state == LINK_DOWN)
        return;
    if (state == IN_ENDED)
        link_road_failed(link, err, why.text);
    else if (state == IN_REFUSED)
        link_refuse(link, err, ": ", why.text);
}

/* ---- the loop ---- */

static void link_start(struct link *link)
{
    struct why why = {0};
    int err = road_start(link->road, &why);
    if (err == ERR_AGAIN)
        return;
    if (err < 0) {
        link_road_failed(link, err, why.text);
        return;
    }
    link->started = true;
    link->state = LINK_GREETING;
    link->in.heard_ns = clock_now_ns();
    link_send_hello(link);
    link_want(link, false);
    link_flush(link);
}

/* What is to be done now; also the kick timer. Once down or freed in a callback, the link is only looked at for its state. */
static void link_turn(void *arg)
{
    struct link *link = arg;
    if (link->state == LINK_STARTING) {
        link_start(link);
        return;
    }
    if (link->state == LINK_CLOSING && !link->started && !link->refusing) {
        link_down(link, link->close_err, link->close_reason);
        return;
    }
    if (link->state != LINK_DOWN && !link->finished)
        link_flush(link);
}

static void link_on_ready(void *arg)
{
    struct link *link = arg;
    if (link->state != LINK_STARTING)
        link_read(link);
    if (link->state == LINK_STARTING || (link->state != LINK_DOWN && link->want_write))
        link_turn(link);
}

static uint64_t link_deadline_ns(const struct link *link)
{
    return link->state == LINK_CLOSING ? link->part_until_ns
           : link->state == LINK_UP    ? link->in.heard_ns + link->settings.silent_ns
                                       : link->greet_until_ns;
}

static void link_on_deadline(void *arg)
{
    struct link *link = arg;
    uint64_t now = clock_now_ns(), until = link_deadline_ns(link);
    bool overslept = link->state == LINK_UP && now - link->deadline_at_ns > link->settings.heartbeat_ns;
    char passed[40], reason[500];
    if (now < until || overslept) {
        /* Who slept for so long has no right to judge: the peer gets the time of one more heartbeat. */
        link_set_deadline(link, now < until ? until - now : link->settings.heartbeat_ns);
        return;
    }
    if (link->state == LINK_CLOSING) {
        link_down(link, link->close_err, link->close_reason);
        return;
    }
    text_from_duration(link->state == LINK_UP ? now - link->in.heard_ns : link->settings.greet_ns, passed, sizeof passed);
    snprintf(reason, sizeof reason,
             link->state == LINK_UP         ? "%s: nothing heard for %s"
             : link->state == LINK_STARTING ? "%s could not be reached within %s"
                                            : "%s did not greet within %s",
             link_who(link), passed);
    link_down(link, ERR_TIMEOUT, reason);
}

struct link *link_new(struct loop *loop, struct road *road, const struct link_settings *settings,
                      const struct link_callbacks *callbacks, void *arg)
{
    struct link *link = mem_new(sizeof *link);
    link->loop = loop;
    link->road = road;
    link->settings = *settings;
    link->callbacks = *callbacks;
    link->arg = arg;
    in_init(&link->in, settings->run_id, link_on_message, link);
    link->kick = loop_timer_new(loop, link_turn, link);
    link->beat_due = loop_timer_new(loop, link_on_beat, link);
    link->deadline = loop_timer_new(loop, link_on_deadline, link);
    link->greet_until_ns = clock_now_ns() + settings->greet_ns;
    out_init(&link->out, settings->queue_max_bytes ? settings->queue_max_bytes : LINK_QUEUE_BYTES, settings->pace_bps,
             settings->uplink);
    road_on_ready(road, link_on_ready, link);
    loop_timer_set(link->kick, 0);
    link_set_deadline(link, settings->greet_ns);
    return link;
}

/* ---- by order, and for people ---- */

void link_pause(struct link *link, enum wire_lane lane, enum link_hold reason)
{
    link->out.lanes.lane[lane].paused |= (uint32_t)reason;
}

void link_resume(struct link *link, enum wire_lane lane, enum link_hold reason)
{
    link->out.lanes.lane[lane].paused &= ~(uint32_t)reason;
    if (link->state == LINK_UP)
        loop_timer_set(link->kick, 0);
}

void link_set_pace(struct link *link, uint64_t bits_per_second)
{
    pace_set(&link->out.pace, bits_per_second, clock_now_ns());
    if (link->state == LINK_UP)
        loop_timer_set(link->kick, 0);
}

bool link_is_up(const struct link *link)
{
    return link->state == LINK_UP;
}

const struct wire_hello *link_peer(const struct link *link)
{
    return link->greeted ? &link->peer : NULL;
}

uint32_t link_peer_incarnation(const struct link *link)
{
    return link->peer_incarnation;
}

void link_get_counters(const struct link *link, enum wire_lane which, struct link_counters *counters)
{
    const struct lane *lane = &link->out.lanes.lane[which];
    *counters = (struct link_counters){
        .sent_bytes = lane->sent_bytes,
        .sent_frames = lane->sent_frames,
        .sent_messages = lane->sent_messages,
        .received_messages = link->in.messages[which],
        .queued_bytes = lane->queued_bytes,
        .queued_messages = lane->queued_messages,
        .dropped_messages = lane->dropped_messages,
        .hold_reasons = lane->paused,
    };
    frame_parser_count(link->in.parser, (int)which, &counters->received_frames, &counters->received_bytes);
    if (lane->queued_messages)
        counters->hold_reasons |= link->state < LINK_UP ? HOLD_GREETING : lane->blocked;
}

uint64_t link_rtt_ns(const struct link *link)
{
    return beat_rtt_ns(&link->beat);
}

bool link_clock_offset_ns(const struct link *link, int64_t *offset_ns)
{
    const struct beat_round *best = beat_best(&link->beat);
    if (best)
        *offset_ns = best->offset_ns;
    return best != NULL;
}

uint64_t link_rate_bps(const struct link *link)
{
    return link->out.rate.bits_per_second;
}

uint64_t link_heard_ns_ago(const struct link *link)
{
    uint64_t now = clock_now_ns();
    return link->in.heard_ns && now > link->in.heard_ns ? now - link->in.heard_ns : 0;
}
