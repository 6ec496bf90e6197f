/*
 * A slow, far or faulty road, for tests and for trying a profile: rate, delay, jitter, a cut, a flipped bit.
 *
 * Each direction is a line of chunks. A chunk leaves the serialiser when the bytes before it have left (rate), and
 * arrives `delay` and some jitter later, never before the one ahead of it. Like a real road with a short queue the
 * serialiser takes only about SLOW_QUEUE_NS in advance, so priorities above it still mean something; what is under way
 * is bounded by rate times delay.
 */
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/link/road.h"

#define SLOW_QUEUE_NS (10 * CLOCK_MS)
#define SLOW_PIECE_NS (4 * CLOCK_MS)
#define SLOW_PIECE_LEAST 1448
#define SLOW_PIECE_MOST (64 * 1024)
#define SLOW_UNDER_WAY_MAX ((size_t)64 << 20)

struct slow_chunk {
    STAILQ_ENTRY(slow_chunk) entry;
    uint64_t due_ns;
    size_t bytes, used;
    uint8_t data[];
};

struct slow_way {
    STAILQ_HEAD(, slow_chunk) chunks;
    uint64_t free_ns, last_due_ns; /* the serialiser is free; the newest chunk arrives */
    size_t bytes;
};

struct road_slow {
    struct road road;
    struct road *below; /* NULL once cut */
    struct slow_settings settings;
    struct loop_timer *timer;
    struct slow_way out, in;
    bool stands, want_read, want_write, out_blocked, finishing;
    uint64_t written, delivered, random;
    struct why end;   /* the road below has ended; told once `in` is empty and end_due_ns has passed */
    uint64_t end_due_ns;
    char words[200];  /* of the road below, once it is gone */
};

/* ---- a direction ---- */

static uint64_t slow_random(struct road_slow *slow, uint64_t below)
{
    uint64_t x = slow->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return below ? (x ^ (x >> 31)) % below : 0;
}

static uint64_t slow_backlog_ns(const struct slow_way *way, uint64_t now)
{
    return way->free_ns > now ? way->free_ns - now : 0;
}

static bool slow_can_take(const struct slow_way *way, uint64_t now)
{
    return slow_backlog_ns(way, now) < SLOW_QUEUE_NS && way->bytes < SLOW_UNDER_WAY_MAX;
}

static size_t slow_piece(const struct road_slow *slow)
{
    uint64_t bytes = slow->settings.rate_bps / 8 / (CLOCK_SECOND / SLOW_PIECE_NS);
    if (!slow->settings.rate_bps || bytes > SLOW_PIECE_MOST)
        return SLOW_PIECE_MOST;
    return bytes < SLOW_PIECE_LEAST ? SLOW_PIECE_LEAST : (size_t)bytes;
}

static uint64_t slow_stamp(struct road_slow *slow, struct slow_way *way, uint64_t now, size_t bytes)
{
    uint64_t begin = way->free_ns > now ? way->free_ns : now;
    uint64_t rate = slow->settings.rate_bps;
    way->free_ns = begin + (rate ? (uint64_t)((double)bytes * 8e9 / (double)rate) : 0);
    uint64_t due = way->free_ns + slow->settings.delay_ns + slow_random(slow, slow->settings.jitter_ns);
    if (due < way->last_due_ns)
        due = way->last_due_ns;
    way->last_due_ns = due;
    return due;
}

static struct slow_chunk *slow_put(struct road_slow *slow, struct slow_way *way, const uint8_t *bytes, size_t count)
{
    struct slow_chunk *chunk = mem_new(sizeof *chunk + count);
    memcpy(chunk->data, bytes, count);
    chunk->bytes = count;
    chunk->due_ns = slow_stamp(slow, way, clock_now_ns(), count);
    way->bytes += count;
    STAILQ_INSERT_TAIL(&way->chunks, chunk, entry);
    return chunk;
}

static void slow_use(struct slow_way *way, size_t count)
{
    struct slow_chunk *chunk = STAILQ_FIRST(&way->chunks);
    chunk->used += count;
    way->bytes -= count;
    if (chunk->used < chunk->bytes)
        return;
    STAILQ_REMOVE_HEAD(&way->chunks, entry);
    mem_free(chunk);
}

static void slow_drop(struct slow_way *way)
{
    struct slow_chunk *chunk;
    while ((chunk = STAILQ_FIRST(&way->chunks)))
        slow_use(way, chunk->bytes - chunk->used);
}

/* ---- moving ---- */

static void slow_cut(struct road_slow *slow)
{
    road_describe(slow->below, slow->words, sizeof slow->words);
    road_free(slow->below);
    slow->below = NULL;
    slow_drop(&slow->out);
    slow_drop(&slow->in);
    slow->end_due_ns = clock_now_ns();
    why_set(&slow->end, ERR_GONE, "was cut after %llu bytes, as its slow filter was told",
            (unsigned long long)slow->settings.cut_after_bytes);
}

static void slow_end(struct road_slow *slow, int err, const struct why *why)
{
    if (slow->end.err)
        return;
    why_set(&slow->end, err, "%s", why->text[0] ? why->text : "ended");
    slow->end_due_ns = slow_stamp(slow, &slow->in, clock_now_ns(), 0);
}

static void slow_deliver(struct road_slow *slow)
{
    struct slow_chunk *chunk;
    uint64_t now = clock_now_ns(), limit = slow->settings.cut_after_bytes;
    slow->out_blocked = false;
    while (slow->below && (chunk = STAILQ_FIRST(&slow->out.chunks)) && chunk->due_ns <= now) {
        struct why why = {0};
        size_t count = chunk->bytes - chunk->used;
        if (limit && slow->delivered + count > limit)
            count = (size_t)(limit - slow->delivered);
        ssize_t written = count ? road_write(slow->below, chunk->data + chunk->used, count, &why) : 0;
        if (written == ERR_AGAIN) {
            slow->out_blocked = true;
            return;
        }
        if (written < 0) {
            slow_drop(&slow->out);
            slow_end(slow, (int)written, &why);
            return;
        }
        slow->delivered += (uint64_t)written;
        slow_use(&slow->out, (size_t)written);
        if (limit && slow->delivered >= limit)
            slow_cut(slow);
    }
}

static void slow_pull(struct road_slow *slow)
{
    uint8_t bytes[SLOW_PIECE_MOST];
    while (slow->below && slow->stands && !slow->end.err && slow_can_take(&slow->in, clock_now_ns())) {
        struct why why = {0};
        ssize_t count = road_read(slow->below, bytes, slow_piece(slow), &why);
        if (count == ERR_AGAIN)
            return;
        if (count < 0)
            slow_end(slow, (int)count, &why);
        else
            slow_put(slow, &slow->in, bytes, (size_t)count);
    }
}

/* When something is to be done next; UINT64_MAX = the road below will say. */
static uint64_t slow_next_ns(const struct road_slow *slow, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    const struct slow_chunk *out = STAILQ_FIRST(&slow->out.chunks), *in = STAILQ_FIRST(&slow->in.chunks);
    uint64_t in_due = in ? in->due_ns : slow->end.err ? slow->end_due_ns : UINT64_MAX;
    uint64_t half = now + SLOW_QUEUE_NS / 2;
    if (out && !slow->out_blocked && out->due_ns < next)
        next = out->due_ns;
    if (slow->want_read && in_due < next)
        next = in_due;
    if (slow->want_write && !slow->finishing && slow->out.free_ns > half && slow->out.free_ns - SLOW_QUEUE_NS / 2 < next)
        next = slow->out.free_ns - SLOW_QUEUE_NS / 2;
    else if (slow->want_write && (slow->finishing ? !out : slow_can_take(&slow->out, now)))
        next = now;
    if (!slow->end.err && !slow_can_take(&slow->in, now) && slow->in.free_ns - SLOW_QUEUE_NS / 2 < next)
        next = slow->in.free_ns - SLOW_QUEUE_NS / 2;
    return next;
}

static void slow_schedule(struct road_slow *slow)
{
    uint64_t now = clock_now_ns(), next = slow_next_ns(slow, now);
    if (next == UINT64_MAX)
        loop_timer_unset(slow->timer);
    else
        loop_timer_set(slow->timer, next > now ? next - now : 0);
    if (slow->below && slow->stands)
        road_want(slow->below, !slow->end.err && slow_can_take(&slow->in, now), slow->out_blocked);
}

static bool slow_in_due(const struct road_slow *slow, uint64_t now)
{
    const struct slow_chunk *in = STAILQ_FIRST(&slow->in.chunks);
    return in ? in->due_ns <= now : slow->end.err && slow->end_due_ns <= now;
}

static void slow_run(void *arg)
{
    struct road_slow *slow = arg;
    slow_deliver(slow);
    slow_pull(slow);
    slow_schedule(slow);
    uint64_t now = clock_now_ns();
    bool writable = slow->finishing ? STAILQ_EMPTY(&slow->out.chunks) : slow_can_take(&slow->out, now);
    bool due = !slow->stands || (slow->want_read && slow_in_due(slow, now)) || (slow->want_write && writable);
    if (due && slow->road.ready)
        slow->road.ready(slow->road.ready_arg);
}

/* ---- the road ---- */

static int road_slow_start(struct road *base, struct why *why)
{
    struct road_slow *slow = (struct road_slow *)base;
    int err = slow->stands ? 0 : road_start(slow->below, why);
    slow->stands = err == 0;
    slow_schedule(slow);
    return err;
}

static void road_slow_want(struct road *base, bool read, bool write)
{
    struct road_slow *slow = (struct road_slow *)base;
    slow->want_read = read;
    slow->want_write = write;
    if (slow->stands)
        slow_schedule(slow);
    else if (slow->below)
        road_want(slow->below, read, write);
}

static ssize_t road_slow_read(struct road *base, uint8_t *bytes, size_t room, struct why *why)
{
    struct road_slow *slow = (struct road_slow *)base;
    if (!slow->stands && slow->below)
        return road_read(slow->below, bytes, room, why); /* after a failed start: only until the peer closes */
    if (!slow_in_due(slow, clock_now_ns()))
        return ERR_AGAIN;
    struct slow_chunk *chunk = STAILQ_FIRST(&slow->in.chunks);
    if (!chunk)
        return why_set(why, slow->end.err, "%s", slow->end.text);
    size_t count = chunk->bytes - chunk->used < room ? chunk->bytes - chunk->used : room;
    memcpy(bytes, chunk->data + chunk->used, count);
    slow_use(&slow->in, count);
    slow_schedule(slow);
    return (ssize_t)count;
}

static ssize_t road_slow_write(struct road *base, const uint8_t *bytes, size_t count, struct why *why)
{
    struct road_slow *slow = (struct road_slow *)base;
    size_t used = 0, flip = (size_t)(slow->settings.corrupt_byte - slow->written - 1);
    if (!slow->below)
        return why_set(why, slow->end.err, "%s", slow->end.text);
    while (used < count && slow_can_take(&slow->out, clock_now_ns())) {
        size_t piece = slow_piece(slow);
        if (piece > count - used)
            piece = count - used;
        struct slow_chunk *chunk = slow_put(slow, &slow->out, bytes + used, piece);
        if (slow->settings.corrupt_byte > slow->written && flip >= used && flip < used + piece)
            chunk->data[flip - used] ^= 1;
        used += piece;
    }
    slow->written += used;
    slow_schedule(slow);
    return used ? (ssize_t)used : ERR_AGAIN;
}

static int road_slow_finish(struct road *base, struct why *why)
{
    struct road_slow *slow = (struct road_slow *)base;
    if (!slow->below)
        return why_set(why, slow->end.err, "%s", slow->end.text);
    slow->finishing = !STAILQ_EMPTY(&slow->out.chunks);
    return slow->finishing ? ERR_AGAIN : road_finish(slow->below, why);
}

static void road_slow_free(struct road *base)
{
    struct road_slow *slow = (struct road_slow *)base;
    slow_drop(&slow->out);
    slow_drop(&slow->in);
    loop_timer_free(slow->timer);
    road_free(slow->below);
    mem_free(slow);
}

static void road_slow_describe(const struct road *base, char *out, size_t size)
{
    const struct road_slow *slow = (const struct road_slow *)base;
    char words[200];
    snprintf(words, sizeof words, "%s", slow->words);
    if (slow->below)
        road_describe(slow->below, words, sizeof words);
    snprintf(out, size, "slow %s", words);
}

static const char *road_slow_tls_peer(const struct road *base)
{
    const struct road_slow *slow = (const struct road_slow *)base;
    return slow->below ? road_tls_peer(slow->below) : NULL;
}

static const struct road_ops road_slow_ops = {
    .name = "slow",
    .start = road_slow_start,
    .want = road_slow_want,
    .read = road_slow_read,
    .write = road_slow_write,
    .finish = road_slow_finish,
    .free = road_slow_free,
    .describe = road_slow_describe,
    .tls_peer = road_slow_tls_peer,
};

struct road *road_slow(struct loop *loop, struct road *below, const struct slow_settings *settings)
{
    struct road_slow *slow = mem_new(sizeof *slow);
    slow->road.ops = &road_slow_ops;
    slow->below = below;
    slow->settings = *settings;
    slow->random = settings->seed;
    STAILQ_INIT(&slow->out.chunks);
    STAILQ_INIT(&slow->in.chunks);
    slow->timer = loop_timer_new(loop, slow_run, slow);
    road_on_ready(below, slow_run, slow);
    return &slow->road;
}
