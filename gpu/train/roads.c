/*
 * See roads.h. An `end` is one link with what we know about it: the road of a side, or a stranger whose ROAD has not come
 * yet (kedged tells both neighbours at the same time, so the dialler may be faster than our own word from kedged).
 */
#include "gpu/train/roads.h"

#include <inttypes.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

#define SIDES MAIL_ROADS /* MAIL_CONTROL is none of ours and stays empty */
#define ENDS_MOST (MAIL_ROADS + 8)

_Static_assert((int)MAIL_REPLICAS == PROFILE_MAX_REPLICAS && (int)MAIL_PROCESSES == PROFILE_MAX_STAGES, "a side for everybody");
#define STRANGER (-1)
#define PAUSE_FIRST_NS (50 * CLOCK_MS)

struct end {
    struct roads *roads; /* NULL: not in use */
    struct link *link;
    int side; /* enum mail_road or STRANGER */
    bool up;
    struct loop_timer *patience; /* of a stranger */
};

struct side {
    struct roads *roads;
    struct wire_road road; /* peer "" = none expected */
    struct end *end;
    bool up, lost;
    struct loop_timer *redial, *deadline;
    uint64_t pause_ns;
    uint64_t evaluation_bytes, dense_bytes;
    char reason[WIRE_TEXT]; /* of the newest failed attempt */
};

struct roads {
    struct loop *loop;
    struct roads_settings settings;
    struct roads_callbacks callbacks;
    void *arg;
    struct pace uplink;
    struct end ends[ENDS_MOST];
    struct side sides[SIDES];
    bool closing;
};

static void check_closed(struct roads *roads)
{
    for (int i = 0; i < ENDS_MOST; i++)
        if (roads->ends[i].roads)
            return;
    if (roads->closing)
        roads->callbacks.closed(roads->arg); /* may free us */
}

static void lose(struct side *side, int err, const char *reason)
{
    if (side->lost || side->roads->closing)
        return;
    side->lost = true;
    side->up = false;
    loop_timer_unset(side->redial);
    loop_timer_unset(side->deadline);
    side->roads->callbacks.lost((enum mail_road)(side - side->roads->sides), side->road.peer, err, reason, side->roads->arg);
}

/* Between a stage and the anchor: may be lost and come back. */
static bool comes_back(const struct side *side)
{
    return side - side->roads->sides >= MAIL_ANCHOR;
}

static void end_clear(struct end *end)
{
    loop_timer_free(end->patience);
    link_free(end->link);
    *end = (struct end){0};
}

/* ---- what a link says ---- */

static struct side *side_of_peer(struct roads *roads, const char *name)
{
    for (int i = 0; i < SIDES; i++)
        if (roads->sides[i].road.peer[0] && strcmp(roads->sides[i].road.peer, name) == 0)
            return &roads->sides[i];
    return NULL;
}

static int check_peer(const struct roads *roads, const struct wire_hello *peer, struct why *why)
{
    if (peer->role != ROLE_STAGE && peer->role != ROLE_ANCHOR)
        return why_set(why, ERR_REFUSED, "%s is a %s; data roads are for stages", peer->name, wire_role_name(peer->role));
    if (peer->profile_hash != roads->settings.hello.profile_hash)
        return why_set(why, ERR_REFUSED, "%s works by another profile (hash %016" PRIx64 ", here it is %016" PRIx64 ")",
                       peer->name, peer->profile_hash, roads->settings.hello.profile_hash);
    return 0;
}

static void adopt(struct side *side, struct end *end)
{
    end->side = (int)(side - side->roads->sides);
    side->end = end;
    side->up = true;
    side->pause_ns = PAUSE_FIRST_NS;
    loop_timer_unset(side->redial);
    loop_timer_unset(side->deadline);
    loop_timer_unset(end->patience);
    side->roads->callbacks.up((enum mail_road)end->side, side->roads->arg);
}

static int on_up(struct link *link, const struct wire_hello *peer, void *arg, struct why *why)
{
    struct end *end = arg;
    struct roads *roads = end->roads;
    int err = check_peer(roads, peer, why);
    if (err)
        return err;
    struct side *side = end->side == STRANGER ? side_of_peer(roads, peer->name) : &roads->sides[end->side];
    if (side && end->side == STRANGER && side->road.life && link_peer_incarnation(link) > side->road.life)
        side = NULL; /* a newer life: kedged has not told us of it yet */
    if (side && strcmp(side->road.peer, peer->name) != 0)
        return why_set(why, ERR_REFUSED, "%s answers where %s should be", peer->name, side->road.peer);
    if (side && (peer->role == ROLE_ANCHOR) != (side == &roads->sides[MAIL_ANCHOR]))
        return why_set(why, ERR_REFUSED, "%s says that it is a %s", peer->name, wire_role_name(peer->role));
    if (side && (side->up || side->lost || (end->side == STRANGER && side->road.dial)))
        return why_set(why, ERR_REFUSED, "the road to %s is there already", peer->name);
    end->up = true;
    if (side)
        adopt(side, end);
    else
        loop_timer_set(end->patience, roads->settings.timeouts.greet_ns);
    return 0;
}

static void on_patience(void *arg)
{
    struct end *end = arg;
    link_close(end->link, ERR_REFUSED, "the scheduler did not announce this road", CLOCK_SECOND);
}

static int on_message(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                      struct why *why)
{
    struct end *end = arg;
    (void)link;
    if (end->side != STRANGER && end->roads->sides[end->side].lost)
        return 0; /* given up */
    if (end->side == STRANGER)
        return why_set(why, ERR_REFUSED, "a message came before the scheduler announced this road");
    return end->roads->callbacks.message((enum mail_road)end->side, header, payload, bytes, end->roads->arg, why);
}

static void on_down(struct link *link, int err, const char *reason, void *arg)
{
    struct end *end = arg;
    struct roads *roads = end->roads;
    struct side *side = end->side == STRANGER ? NULL : &roads->sides[end->side];
    bool stood = end->up;
    (void)link;
    end_clear(end);
    if (side && side->end == end) {
        side->end = NULL;
        side->up = false;
        if (stood && comes_back(side) && !roads->closing)
            roads->callbacks.lost((enum mail_road)(side - roads->sides), side->road.peer, err, reason, roads->arg);
        if (!comes_back(side) && (stood || err == ERR_REFUSED)) {
            lose(side, err, reason);
        } else if (!roads->closing && side->road.dial) {
            snprintf(side->reason, sizeof side->reason, "%s", reason);
            loop_timer_set(side->redial, side->pause_ns);
            side->pause_ns = side->pause_ns * 2 < roads->settings.timeouts.redial_ns ? side->pause_ns * 2
                                                                                     : roads->settings.timeouts.redial_ns;
        }
    }
    check_closed(roads);
}

static struct end *end_new(struct roads *roads, struct road *road, int side)
{
    static const struct link_callbacks callbacks = {.up = on_up, .message = on_message, .down = on_down};
    struct end *end = NULL;
    for (int i = 0; i < ENDS_MOST && !end; i++)
        end = roads->ends[i].roads ? NULL : &roads->ends[i];
    if (!end) {
        log_at(LOG_WARN, "roads", "a connection is dropped: %d wait already", ENDS_MOST);
        road_free(road);
        return NULL;
    }
    struct link_settings settings = {
        .run_id = roads->settings.run_id,
        .incarnation = roads->settings.incarnation,
        .hello = roads->settings.hello,
        .heartbeat_ns = roads->settings.timeouts.heartbeat_ns,
        .silent_ns = roads->settings.timeouts.silent_ns,
        .greet_ns = roads->settings.timeouts.greet_ns,
        .pace_bps = roads->settings.profile->link_rate_bps,
        .uplink = roads->settings.uplink_bps ? &roads->uplink : NULL,
        .queue_max_bytes = roads->settings.queue_bytes,
    };
    *end = (struct end){.roads = roads, .side = side};
    end->patience = loop_timer_new(roads->loop, on_patience, end);
    end->link = link_new(roads->loop, road, &settings, &callbacks, end);
    return end;
}

/* ---- roads with their filters ---- */

/* From the wire up: the rehearsed slowness (once per road: the dialler's side has it), TLS, the capture of what was said. */
static struct road *dress(struct roads *roads, struct road *road, bool dialled, struct why *why)
{
    const struct profile *profile = roads->settings.profile;
    if (dialled && (profile->slow_rate_bps || profile->slow_delay_ns || profile->slow_jitter_ns)) {
        struct slow_settings slow = {.rate_bps = profile->slow_rate_bps,
                                     .delay_ns = profile->slow_delay_ns,
                                     .jitter_ns = profile->slow_jitter_ns,
                                     .seed = (uint64_t)profile->seed};
        road = road_slow(roads->loop, road, &slow);
    }
    if (roads->settings.credentials)
        road = road_tls(roads->loop, road, roads->settings.credentials, !dialled, why);
    return road;
}

static struct road *record(struct roads *roads, struct road *road, const char *peer, struct why *why)
{
    char path[sizeof roads->settings.folder + 2 * WIRE_NAME + 32];
    if (!road || !roads->settings.profile->record)
        return road;
    snprintf(path, sizeof path, "%s/capture", roads->settings.folder);
    int err = file_make_folders(path, 0700, why);
    snprintf(path, sizeof path, "%s/capture/%s-%s.capture", roads->settings.folder, roads->settings.hello.name, peer);
    if (err) {
        road_free(road);
        return NULL;
    }
    return road_record(roads->loop, road, path, why);
}

static void dial(void *arg)
{
    struct side *side = arg;
    struct roads *roads = side->roads;
    struct why why = {0};
    if (side->up || side->lost || side->end)
        return;
    struct road *road = road_tcp_dial(roads->loop, side->road.address, &why);
    if (road)
        road = dress(roads, road, true, &why);
    road = record(roads, road, side->road.peer, &why);
    if (road)
        side->end = end_new(roads, road, (int)(side - roads->sides));
    else if (comes_back(side))
        loop_timer_set(side->redial, roads->settings.timeouts.redial_ns);
    else
        lose(side, why.err, why.text);
}

static void on_deadline(void *arg)
{
    struct side *side = arg;
    char reason[WIRE_TEXT + 200];
    if (side->road.dial)
        snprintf(reason, sizeof reason, "no road to %s in time: %s", side->road.address,
                 side->reason[0] ? side->reason : "it does not answer");
    else
        snprintf(reason, sizeof reason, "%s did not dial in time", side->road.peer);
    struct end *end = side->end;
    if (end)
        end_clear(end);
    side->end = NULL;
    lose(side, ERR_TIMEOUT, reason);
}

/* Its peer is started again: the old road ends by itself. */
static void forget(struct side *side)
{
    struct end *end = side->end;
    side->end = NULL;
    side->up = side->lost = false;
    side->pause_ns = PAUSE_FIRST_NS;
    if (!end)
        return;
    end->side = STRANGER;
    end->up = false;
    link_close(end->link, 0, "this process has a newer life", CLOCK_SECOND);
}

void roads_expect(struct roads *roads, const struct wire_road *road)
{
    static const uint8_t sides[] = {[ROAD_UPSTREAM] = MAIL_UPSTREAM,
                                    [ROAD_DOWNSTREAM] = MAIL_DOWNSTREAM,
                                    [ROAD_SIBLING] = MAIL_SIBLINGS,
                                    [ROAD_ANCHOR] = MAIL_ANCHOR,
                                    [ROAD_STAGE] = MAIL_STAGES};
    BUG_IF((road->side == ROAD_SIBLING && road->replica >= MAIL_REPLICAS) ||
           (road->side == ROAD_STAGE && road->index >= MAIL_PROCESSES));
    int nth = road->side == ROAD_SIBLING ? road->replica : road->side == ROAD_STAGE ? road->index : 0;
    struct side *side = &roads->sides[sides[road->side] + nth];
    if (road->side == ROAD_SIBLING && road->life > side->road.life)
        forget(side);
    if (side->up || side->lost || roads->closing)
        return;
    side->road = *road;
    if (!comes_back(side))
        /* Before the scheduler's own deadline: only this end knows which address, and why not. */
        loop_timer_set(side->deadline, roads->settings.timeouts.form_ns - roads->settings.timeouts.grace_ns);
    if (road->dial) {
        loop_timer_set(side->redial, 0);
        return;
    }
    for (int i = 0; i < ENDS_MOST; i++) {
        struct end *end = &roads->ends[i];
        if (end->roads && end->up && end->side == STRANGER && strcmp(link_peer(end->link)->name, road->peer) == 0 &&
            (!road->life || link_peer_incarnation(end->link) == road->life)) {
            adopt(side, end);
            return;
        }
    }
}

void roads_incoming(struct roads *roads, struct road *road, const char *from)
{
    struct why why = {0};
    (void)from;
    if (roads->closing) {
        road_free(road);
        return;
    }
    road = dress(roads, road, false, &why);
    road = record(roads, road, "in", &why);
    if (road)
        end_new(roads, road, STRANGER);
    else
        log_at(LOG_WARN, "roads", "a connection cannot be taken: %s", why.text);
}

void roads_drop(struct roads *roads, enum mail_road index, uint32_t life, const char *reason)
{
    struct side *side = &roads->sides[index];
    if (side->road.life > life)
        return; /* a newer one has come since */
    side->lost = true;
    side->up = false;
    loop_timer_unset(side->redial);
    loop_timer_unset(side->deadline);
    if (side->end)
        link_close(side->end->link, 0, reason, CLOCK_SECOND);
}

/* ---- sending and measuring ---- */

int roads_send(struct roads *roads, const struct letter *letter)
{
    struct side *side = &roads->sides[letter->road];
    if (!side->up) {
        mem_free(letter->payload);
        return ERR_GONE;
    }
    side->dense_bytes += letter->dense_bytes;
    side->evaluation_bytes += letter->evaluation ? letter->bytes + FRAME_HEADER_BYTES : 0;
    return link_send_encoded(side->end->link, (enum wire_type)letter->type, letter->payload, letter->bytes, letter->step,
                             letter->micro_batch);
}

bool roads_stand(const struct roads *roads, enum mail_road side)
{
    return roads->sides[side].up;
}

static uint64_t least_known(uint64_t one, uint64_t other)
{
    return one == 0 ? other : other == 0 ? one : one < other ? one : other;
}

static uint64_t capacity(const struct roads *roads, const struct side *side)
{
    uint64_t limit = least_known(roads->settings.profile->link_rate_bps, roads->settings.uplink_bps);
    return least_known(limit, link_rate_bps(side->end->link));
}

void roads_measure(const struct roads *roads, struct mail_roads *measured)
{
    *measured = (struct mail_roads){0};
    for (int i = 0; i < SIDES; i++) {
        const struct side *side = &roads->sides[i];
        struct link_counters counters;
        if (!side->up)
            continue;
        link_get_counters(side->end->link, LANE_ACT, &counters);
        if (i <= MAIL_DOWNSTREAM)
            measured->unsent[i] = counters.queued_messages;
        if (i == MAIL_DOWNSTREAM) {
            measured->delay_ns = link_rtt_ns(side->end->link) / 2;
            measured->rate_bps = capacity(roads, side);
        }
    }
}

void roads_act_bytes(const struct roads *roads, uint64_t *sent, uint64_t *received)
{
    *sent = *received = 0;
    for (int i = 0; i < SIDES; i++) {
        struct link_counters counters;
        if (!roads->sides[i].up)
            continue;
        link_get_counters(roads->sides[i].end->link, LANE_ACT, &counters);
        *sent += counters.sent_bytes;
        *received += counters.received_bytes;
    }
}

bool roads_sample(const struct roads *roads, enum mail_road index, enum wire_lane lane, struct wire_road_sample *sample)
{
    const struct side *side = &roads->sides[index];
    struct link_counters counters;
    if (!side->up)
        return false;
    link_get_counters(side->end->link, lane, &counters);
    if (counters.sent_messages == 0 && counters.received_messages == 0 && counters.queued_messages == 0)
        return false;
    *sample = (struct wire_road_sample){
        .lane = (uint8_t)lane,
        .sent_bytes = counters.sent_bytes,
        .received_bytes = counters.received_bytes,
        .sent_frames = counters.sent_frames,
        .received_frames = counters.received_frames,
        .queued_bytes = counters.queued_bytes,
        .hold_reasons = counters.hold_reasons,
        .rtt_ns = link_rtt_ns(side->end->link),
        .capacity_bps = capacity(roads, side),
        .evaluation_bytes = lane == LANE_ACT ? side->evaluation_bytes : 0,
        .dense_bytes = lane == LANE_ACT ? side->dense_bytes : 0,
    };
    memcpy(sample->peer, side->road.peer, sizeof sample->peer);
    return true;
}

uint64_t roads_queued_bytes(const struct roads *roads, enum mail_road index, enum wire_lane lane)
{
    struct link_counters counters = {0};
    if (roads->sides[index].up)
        link_get_counters(roads->sides[index].end->link, lane, &counters);
    return counters.queued_bytes;
}

void roads_set_pace(struct roads *roads, enum mail_road index, uint64_t bits_per_second)
{
    uint64_t pace_bps = least_known(roads->settings.profile->link_rate_bps, bits_per_second);
    if (roads->sides[index].up)
        link_set_pace(roads->sides[index].end->link, pace_bps);
}

/* ---- life ---- */

struct roads *roads_new(struct loop *loop, const struct roads_settings *settings, const struct roads_callbacks *callbacks,
                        void *arg)
{
    struct roads *roads = mem_new(sizeof *roads);
    roads->loop = loop;
    roads->settings = *settings;
    roads->callbacks = *callbacks;
    roads->arg = arg;
    pace_init(&roads->uplink, settings->uplink_bps, clock_now_ns());
    for (int i = 0; i < SIDES; i++) {
        roads->sides[i].roads = roads;
        roads->sides[i].pause_ns = PAUSE_FIRST_NS;
        roads->sides[i].redial = loop_timer_new(loop, dial, &roads->sides[i]);
        roads->sides[i].deadline = loop_timer_new(loop, on_deadline, &roads->sides[i]);
    }
    return roads;
}

void roads_free(struct roads *roads)
{
    if (!roads)
        return;
    for (int i = 0; i < ENDS_MOST; i++)
        if (roads->ends[i].roads)
            end_clear(&roads->ends[i]);
    for (int i = 0; i < SIDES; i++) {
        loop_timer_free(roads->sides[i].redial);
        loop_timer_free(roads->sides[i].deadline);
    }
    mem_free(roads);
}

void roads_close(struct roads *roads, const char *reason, uint64_t linger_ns)
{
    roads->closing = true;
    for (int i = 0; i < SIDES; i++) {
        loop_timer_unset(roads->sides[i].redial);
        loop_timer_unset(roads->sides[i].deadline);
    }
    for (int i = 0; i < ENDS_MOST; i++)
        if (roads->ends[i].roads)
            link_close(roads->ends[i].link, 0, reason, linger_ns);
    check_closed(roads);
}
