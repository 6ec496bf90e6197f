#include "gpu/train/ship.h"

#include "gpu/train/bases.h"
#include "gpu/train/delta.h"
#include "gpu/train/follow.h"
#include "gpu/train/shape.h"
#include "gpu/train/snap.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

#define QUEUED_MOST                                                                                                         \
    ((uint64_t)2 << 20) /* bytes that wait for the road: what is granted but not sent can still be taken back */
#define LOOK_NS (20 * CLOCK_MS)

/* ---- where what is sent comes from: words of snapshots, or rounds ---- */

static bool has_source(const struct worker *worker)
{
    return worker->snap || worker->follow;
}

static uint64_t newest(const struct worker *worker)
{
    return worker->snap ? snap_version(worker->snap) : worker->follow ? follow_newest(worker->follow) : 0;
}

static uint64_t full_bytes(const struct worker *worker)
{
    return worker->snap ? snap_full_bytes(worker->snap) : worker->follow ? follow_full_bytes(worker->follow) : 0;
}

static bool next(struct worker *worker, struct snap_piece *piece)
{
    return worker->snap ? snap_next(worker->snap, piece) : follow_next(worker->follow, piece);
}

/* Of the version's chunks those that have left; what waits in the road's queue has not. */
static double share_left(const struct worker *worker)
{
    const struct ship *ship = &worker->ship;
    double queued = (double)roads_queued_bytes(worker->roads, MAIL_ANCHOR, LANE_BULK), sent = (double)ship->sent_bytes;
    return ship->of && queued < sent ? (double)ship->chunks / (double)ship->of * (1 - queued / sent) : 0;
}

static void tell(struct worker *worker, enum snapshot_mark kind, uint64_t version)
{
    const struct ship *ship = &worker->ship;
    struct wire_mark mark = {.mark = (uint8_t)kind,
                             .version = version,
                             .bytes = ship->sent_bytes,
                             .total = full_bytes(worker),
                             .value = share_left(worker)};
    control_send(worker->control, WIRE_MARK, &mark);
}

/* Send what is ready, as far as it is granted and the road takes it. */
static void pump(void *arg)
{
    struct worker *worker = arg;
    struct ship *ship = &worker->ship;
    struct snap_piece piece;
    while (has_source(worker) && roads_stand(worker->roads, MAIL_ANCHOR)) {
        bool granted = ship->grant.version == newest(worker) && ship->sent_bytes < ship->grant.bytes;
        if (!granted)
            return;
        if (roads_queued_bytes(worker->roads, MAIL_ANCHOR, LANE_BULK) > QUEUED_MOST) {
            loop_timer_set(ship->look, LOOK_NS);
            return;
        }
        if (!next(worker, &piece))
            return;
        ship->sent_bytes += piece.bytes + FRAME_HEADER_BYTES;
        ship->chunks = piece.chunks;
        ship->of = piece.of;
        struct letter letter = {.type = (uint16_t)piece.type,
                                .road = MAIL_ANCHOR,
                                .step = piece.version,
                                .payload = piece.payload,
                                .bytes = piece.bytes};
        BUG_IF(roads_send(worker->roads, &letter) == ERR_FULL); /* ship_queue_bytes */
    }
}

/* What of both boundaries comes from the anchor. */
static int parts_of(const struct compute_settings *settings, struct bases_part parts[BASES_PARTS])
{
    const struct wire_assign *assign = &settings->assign;
    int count = 0;
    for (int side = 0; side < 2; side++)
        for (int way = CODEC_FORWARD; way <= CODEC_BACKWARD; way++) {
            struct bases_part *part = &parts[count];
            bool there = side ? assign->stage + 1 < assign->stages : assign->stage > 0;
            compute_boundary(settings, side, &part->settings);
            part->way = (enum codec_way)way;
            count += there && profile_anchor_measures(&settings->profile) && codec_has_state(&part->settings, part->way);
        }
    return count;
}

int ship_open(struct worker *worker, struct compute_settings *settings, struct why *why)
{
    const struct profile *profile = &worker->profile;
    struct stage_shape shape = compute_shape(settings);
    if (!profile->anchor_host[0])
        return 0;
    struct bases_part parts[BASES_PARTS + 1];
    int count = parts_of(settings, parts);
    bool corrects = profile_corrects(profile) && profile->anchor_filter != ANCHOR_SHRINK;
    worker->ship.look = loop_timer_new(worker->loop, pump, worker);
    if (corrects || count)
        settings->bases = worker->bases = bases_new(&shape, corrects ? profile_anchor_rank(profile) : -1, parts, count);
    int err = 0;
    if (profile->anchor_follow)
        worker->follow = follow_new(worker->loop, &shape, (int)profile->sync_fragments, pump, worker);
    else if (shape_sends_snapshots(profile, worker->assign.replica))
        err = snap_new(worker->loop, &shape, pump, worker, &worker->snap, why);
    settings->snap = worker->snap;
    settings->follow = worker->follow;
    return err;
}

/* What may lie in the road's queue: a piece is put there while it holds no more than QUEUED_MOST. */
size_t ship_queue_bytes(const struct worker *worker)
{
    size_t piece = wire_find(worker->follow ? WIRE_FOLLOW : WIRE_CHUNK)->max_bytes;
    return has_source(worker) ? (size_t)QUEUED_MOST + FRAME_HEADER_BYTES + piece : 0;
}

void ship_free(struct worker *worker)
{
    loop_timer_free(worker->ship.look);
    snap_free(worker->snap);
    follow_free(worker->follow);
    bases_free(worker->bases);
}

void ship_road(struct worker *worker, bool stands)
{
    if (worker->snap)
        snap_road(worker->snap, stands);
    if (worker->follow)
        follow_road(worker->follow, stands);
    if (!stands)
        tell(worker, MARK_AWAY, 0);
}

void ship_grant(struct worker *worker, const struct wire_grant *grant)
{
    struct ship *ship = &worker->ship;
    if (grant->version != ship->grant.version)
        ship->sent_bytes = ship->chunks = ship->of = 0;
    ship->grant = *grant;
    roads_set_pace(worker->roads, MAIL_ANCHOR, grant->rate_bps);
    pump(worker);
    ship_report(worker); /* the next one is dealt by it */
}

void ship_report(struct worker *worker)
{
    uint64_t version = newest(worker);
    if (version && worker->ship.grant.version == version)
        tell(worker, MARK_SHIPPED, version);
}

int ship_message(struct worker *worker, const struct frame_header *header, const uint8_t *payload, size_t bytes,
                 struct why *why)
{
    union {
        struct wire_held held;
        struct wire_want want;
        struct wire_basis basis;
        struct wire_statistics statistics;
    } decoded;
    bool found = header->type == WIRE_BASIS || header->type == WIRE_STATISTICS;
    if (header->type != WIRE_HELD && header->type != WIRE_WANT && (!found || !worker->bases))
        return why_set(why, ERR_INVALID, "a %s has no place on the road from the anchor", wire_find(header->type)->name);
    int err = wire_decode(header->type, payload, bytes, &decoded, why);
    if (err)
        return err;
    if (found) {
        bool basis = header->type == WIRE_BASIS;
        err = basis ? bases_put(worker->bases, &decoded.basis, why) : bases_put_statistics(worker->bases, &decoded.statistics, why);
        if (err == 1)
            tell(worker, MARK_DIRECTIONS, basis ? decoded.basis.version : decoded.statistics.version);
        return err < 0 ? err : 0;
    }
    if (worker->follow && header->type == WIRE_WANT)
        return follow_want(worker->follow, &decoded.want, why);
    if (!worker->snap)
        return why_set(why, ERR_INVALID, "the anchor speaks of snapshots to replica %u", worker->assign.replica);
    if (header->type == WIRE_WANT)
        return snap_want(worker->snap, &decoded.want, why);
    snap_held(worker->snap, &decoded.held);
    return 0;
}
