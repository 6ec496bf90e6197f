#include "ssh/link/out.h"

#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/link/link.h"

#define OUT_HOLD_NS (10 * CLOCK_MS)    /* a frame holds the road about so long */
#define OUT_FRAME_LEAST 1024
#define OUT_FRAME_MOST (256 * 1024)
#define OUT_FRAME_UNKNOWN (16 * 1024)  /* while no rate is known */
#define OUT_QUEUE_LEAST (16 * 1024)
#define OUT_QUEUE_MOST (1024 * 1024)
#define OUT_QUEUE_FIRST (64 * 1024)
#define OUT_RECORD_BYTES 16384         /* one TLS record */
#define OUT_COPY_MOST (32 * 1024)      /* a larger frame is not copied */
#define OUT_TURN_BYTES (1024 * 1024)   /* then the loop's other work has its turn */
#define OUT_AGED_NS (500 * CLOCK_MS)   /* held so long by the uplink's reserve: one frame of 10 ms, 2 % */
#define OUT_YIELD_NS 1000

void out_init(struct out *out, size_t queue_max_bytes, uint64_t pace_bps, struct pace *uplink)
{
    *out = (struct out){.uplink = uplink, .queue_bytes = OUT_QUEUE_FIRST};
    lanes_init(&out->lanes, queue_max_bytes);
    pace_init(&out->pace, pace_bps, clock_now_ns());
}

void out_clear(struct out *out)
{
    lanes_clear(&out->lanes);
    lane_frame_clear(&out->frame);
    out->stage_used = out->stage_sent = out->frame_sent = 0;
}

bool out_staged(const struct out *out)
{
    return out->stage_sent < out->stage_used || out->frame_sent < out->frame.header.frame_bytes;
}

void out_stage_first(struct out *out, const struct frame_header *header, const uint8_t *payload)
{
    BUG_IF(out->stage_used || header->message_bytes > OUT_STAGE_BYTES - FRAME_HEADER_BYTES);
    struct lane *lane = &out->lanes.lane[header->lane];
    frame_encode(header, out->stage);
    memcpy(out->stage + FRAME_HEADER_BYTES, payload, header->message_bytes);
    out->stage_used = FRAME_HEADER_BYTES + header->message_bytes;
    lane->sent_bytes += out->stage_used;
    lane->sent_frames++;
    lane->sent_messages++;
}

/* ---- how much at a time ---- */

static uint64_t out_slowest_bps(const struct out *out)
{
    const uint64_t known[] = {out->rate.bits_per_second, out->pace.bits_per_second,
                              out->uplink ? out->uplink->bits_per_second : 0};
    uint64_t slowest = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] && (!slowest || known[i] < slowest))
            slowest = known[i];
    return slowest;
}

static size_t out_hold_bytes(uint64_t bits_per_second, size_t least, size_t most)
{
    uint64_t bytes = bits_per_second / 8 / (CLOCK_SECOND / OUT_HOLD_NS);
    return bytes < least ? least : bytes > most ? most : (size_t)bytes;
}

static size_t out_frame_max(const struct out *out)
{
    uint64_t bps = out_slowest_bps(out);
    return bps ? out_hold_bytes(bps, OUT_FRAME_LEAST, OUT_FRAME_MOST) : OUT_FRAME_UNKNOWN;
}

/* The road's own queue follows its rate: too long and priority means nothing, too short and the road runs dry between
 * two turns. */
static void out_adapt_queue(struct out *out, struct road *road)
{
    if (!out->rate.bits_per_second)
        return;
    size_t wanted = out_hold_bytes(out->rate.bits_per_second, OUT_QUEUE_LEAST, OUT_QUEUE_MOST);
    if (wanted < out->queue_bytes * 2 && wanted > out->queue_bytes / 2)
        return;
    out->queue_bytes = wanted;
    road_set_queue(road, wanted);
}

/* ---- the buckets ---- */

/* CONTROL may go into debt (it is small and must not wait for bulk); SYNC and BULK leave a part of the shared uplink's
 * burst to the ACT of other roads, but not for longer than OUT_AGED_NS. */
static int64_t out_reserve(struct out *out, int lane, const struct pace *pace, uint64_t now)
{
    int64_t burst = (int64_t)pace->burst_bytes;
    if (lane == LANE_CONTROL)
        return -burst;
    if (pace != out->uplink || (lane != LANE_SYNC && lane != LANE_BULK))
        return 0;
    if (out->held_ns[lane] && now - out->held_ns[lane] >= OUT_AGED_NS)
        return 0;
    return lane == LANE_BULK ? burst / 2 : burst / 4;
}

/* Which of the lanes in `allowed` no bucket holds; the shortest wait of those that one does hold. */
static uint32_t out_unpaced(struct out *out, uint32_t allowed, uint64_t now, uint64_t *wait_ns)
{
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        out->lanes.lane[lane].blocked = 0;
        if (!(allowed & 1u << lane) || !lane_ready(&out->lanes, lane))
            continue;
        uint64_t wait = pace_wait_above_ns(&out->pace, out_reserve(out, lane, &out->pace, now), now);
        if (wait)
            out->lanes.lane[lane].blocked |= HOLD_PACE;
        uint64_t uplink =
            out->uplink ? pace_wait_above_ns(out->uplink, out_reserve(out, lane, out->uplink, now), now) : 0;
        if (uplink) {
            out->lanes.lane[lane].blocked |= HOLD_UPLINK;
            if (!out->held_ns[lane])
                out->held_ns[lane] = now;
        }
        if (uplink > wait)
            wait = uplink;
        if (!wait)
            continue;
        allowed &= ~(1u << lane);
        if (wait < *wait_ns)
            *wait_ns = wait;
    }
    return allowed;
}

static void out_spend(struct out *out, int lane, size_t bytes)
{
    pace_spend(&out->pace, bytes);
    if (out->uplink)
        pace_spend(out->uplink, bytes);
    out->held_ns[lane] = 0;
    out->spent = true;
}

/* ---- making ready ---- */

static void out_stage(struct out *out, struct lane_frame *frame)
{
    frame_encode(&frame->header, out->stage + out->stage_used);
    out->stage_used += FRAME_HEADER_BYTES;
    size_t bytes = frame->header.frame_bytes, copied = bytes;
    if (bytes > OUT_COPY_MOST)
        copied = OUT_RECORD_BYTES - out->stage_used % OUT_RECORD_BYTES;
    if (copied)
        memcpy(out->stage + out->stage_used, frame->payload, copied);
    out->stage_used += copied;
    if (copied == bytes) {
        lane_frame_clear(frame);
    } else {
        out->frame = *frame;
        out->frame_sent = copied;
    }
}

/* A large frame always fits: it ends the filling. */
static bool out_fits(const struct out *out, size_t bytes)
{
    size_t room = OUT_STAGE_BYTES - out->stage_used;
    return bytes > FRAME_HEADER_BYTES + OUT_COPY_MOST ? room >= FRAME_HEADER_BYTES + OUT_RECORD_BYTES : room >= bytes;
}

/* Fill the empty stage: at least one frame, more while together they are no longer than one frame may be. */
static bool out_fill(struct out *out, uint32_t allowed, uint64_t *wait_ns)
{
    size_t most = out_frame_max(out), staged = 0;
    uint64_t now = clock_now_ns();
    out->stage_used = out->stage_sent = 0;
    *wait_ns = UINT64_MAX;
    while (staged + OUT_FRAME_LEAST <= most && !out->frame.header.frame_bytes) {
        int lane = lane_pick(&out->lanes, out_unpaced(out, allowed, now, wait_ns), most - staged);
        if (lane < 0 || !out_fits(out, lane_next_bytes(&out->lanes, lane, most - staged)))
            break;
        struct lane_frame frame;
        lane_cut(&out->lanes, lane, most - staged, &frame);
        size_t bytes = FRAME_HEADER_BYTES + frame.header.frame_bytes;
        staged += bytes;
        out_spend(out, lane, bytes);
        out_stage(out, &frame);
    }
    return out->stage_used > 0;
}

/* Why each waiting lane waits, for people: `all` for every one, and HOLD_PRIORITY for those behind another. */
static void out_explain(struct out *out, uint32_t all)
{
    uint32_t behind = 0;
    for (int i = 0; i < LANE_COUNT; i++) {
        struct lane *lane = &out->lanes.lane[lane_order[i]];
        if (STAILQ_EMPTY(&lane->queue)) {
            lane->blocked = 0;
            continue;
        }
        lane->blocked |= all | behind;
        if (!lane->paused)
            behind = HOLD_PRIORITY;
    }
}

/* ---- writing ---- */

static ssize_t out_write(struct out *out, struct road *road, struct why *why)
{
    size_t left = out->frame.header.frame_bytes - out->frame_sent;
    ssize_t written;
    if (out->stage_sent < out->stage_used) {
        written = road_write(road, out->stage + out->stage_sent, out->stage_used - out->stage_sent, why);
        if (written > 0)
            out->stage_sent += (size_t)written;
    } else {
        written = road_write(road, out->frame.payload + out->frame_sent, left, why);
        if (written > 0)
            out->frame_sent += (size_t)written;
    }
    if (written > 0 && !out_staged(out)) {
        lane_frame_clear(&out->frame);
        out->frame_sent = out->stage_used = out->stage_sent = 0;
    }
    return written;
}

int out_flush(struct out *out, struct road *road, uint32_t allowed, uint64_t *wait_ns, struct why *why)
{
    size_t turn = 0;
    while (turn < OUT_TURN_BYTES) {
        if (!out_staged(out) && !out_fill(out, allowed, wait_ns)) {
            rate_idle(&out->rate, clock_now_ns());
            out_explain(out, 0);
            if (*wait_ns == UINT64_MAX)
                return OUT_IDLE;
            /* Of several roads that wait for the same bytes of an uplink, the one that has just sent waits a hair
             * longer: they take turns. */
            if (out->spent)
                *wait_ns += OUT_YIELD_NS;
            out->spent = false;
            return OUT_WAIT;
        }
        ssize_t written = out_write(out, road, why);
        if (written < 0 && written != ERR_AGAIN)
            return (int)written;
        if (written < 0)
            break;
        rate_add(&out->rate, (uint64_t)written);
        turn += (size_t)written;
    }
    rate_busy(&out->rate, clock_now_ns());
    out_adapt_queue(out, road);
    out_explain(out, HOLD_KERNEL);
    return OUT_ROAD;
}
