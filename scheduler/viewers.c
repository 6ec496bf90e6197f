#include "scheduler/viewers.h"

#include <stdio.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

struct viewer {
    struct viewers *viewers;
    struct viewer *next;
    struct link *link;
    uint64_t seen;       /* version of the record */
    uint64_t from_event; /* events up to this one are not wanted */
    bool follows, closing;
};

struct viewers {
    struct loop *loop;
    struct record *record;
    struct link_settings settings;
    viewers_order_cb *order;
    void *arg;
    struct viewer *first;
    size_t count;
    bool ending;
    char reason[WIRE_TEXT]; /* of the end */
    uint64_t linger_ns, end_ns;
};

/* A kind of rows in the record. */
struct kind {
    enum wire_type type;
    size_t offset, count_offset, most; /* most: rows when there is no counter */
    size_t bytes_each, row;
};

#define ENTRY(entry) sizeof(struct entry), offsetof(struct entry, row)
#define ROWS(TYPE, array, counter, entry) \
    {TYPE, offsetof(struct record, array), offsetof(struct record, counter), 0, ENTRY(entry)}
#define RING(TYPE, array, size, entry) {TYPE, offsetof(struct record, array), 0, size, ENTRY(entry)}

static const struct kind kinds[] = {
    RING(WIRE_RUN_STATE, state, 1, record_state),
    ROWS(WIRE_PROCESS_ROW, processes, process_count, record_process),
    ROWS(WIRE_ROAD_ROW, roads, road_count, record_road),
    ROWS(WIRE_KNOB_ROW, knobs, knob_count, record_knob),
    ROWS(WIRE_HOST_ROW, hosts, host_count, record_host),
    ROWS(WIRE_SPECTRUM_ROW, spectra, spectrum_count, record_spectrum),
    RING(WIRE_ANCHOR_ROW, anchor, 1, record_anchor),
    RING(WIRE_METER_ROW, meters, MATRIX_CLASSES, record_meter),
    RING(WIRE_LEDGER_ROW, ledger, RECORD_LEDGER, record_ledger),
    RING(WIRE_EVENT_ROW, events, RECORD_EVENTS, record_event),
};

static void count_viewers(struct viewers *viewers, int change)
{
    viewers->count += (size_t)change;
    viewers->record->state.row.viewers = (uint32_t)viewers->count;
    record_touch(viewers->record, &viewers->record->state.version);
}

static void drop(struct viewer *viewer)
{
    struct viewers *viewers = viewer->viewers;
    struct viewer **at = &viewers->first;
    while (*at != viewer)
        at = &(*at)->next;
    *at = viewer->next;
    link_free(viewer->link);
    mem_free(viewer);
    count_viewers(viewers, -1);
}

/* ---- rows out ---- */

/* A road is worth a row when it carries activations, or when anything went over that lane. */
static bool is_wanted(const struct viewer *viewer, enum wire_type type, const void *row)
{
    const struct wire_road_row *road = row;
    const struct wire_event_row *event = row;
    const struct wire_ledger_row *ledger = row;
    const struct wire_anchor_row *anchor = row;
    const struct wire_meter *meter = row;
    if (type == WIRE_ANCHOR_ROW)
        return anchor->host[0] != '\0';
    if (type == WIRE_METER_ROW)
        return meter->step > 0;
    if (type == WIRE_ROAD_ROW)
        return road->lane == LANE_ACT || road->sent_bytes > 0;
    if (type == WIRE_EVENT_ROW)
        return event->id > viewer->from_event;
    return type != WIRE_LEDGER_ROW || ledger->id > 0;
}

/* Rings begin at their oldest row, so that ids arrive ascending. */
static size_t first_of(const struct record *record, enum wire_type type)
{
    if (type == WIRE_EVENT_ROW)
        return (size_t)((record->newest_event + 1) % RECORD_EVENTS);
    return type == WIRE_LEDGER_ROW ? (size_t)((record->newest_ledger + 1) % RECORD_LEDGER) : 0;
}

static int send_kind(struct viewer *viewer, const struct kind *kind)
{
    const struct record *record = viewer->viewers->record;
    size_t count = kind->most, first = first_of(record, kind->type);
    if (count == 0)
        memcpy(&count, (const char *)record + kind->count_offset, sizeof count);
    for (size_t i = 0; i < count; i++) {
        size_t slot = (first + i) % count;
        const char *entry = (const char *)record + kind->offset + slot * kind->bytes_each;
        uint64_t version;
        memcpy(&version, entry, sizeof version);
        if (version <= viewer->seen || !is_wanted(viewer, kind->type, entry + kind->row))
            continue;
        int err = link_send(viewer->link, kind->type, entry + kind->row, 0, (uint32_t)slot);
        if (err < 0)
            return err;
    }
    return 0;
}

/* All that is newer than what the viewer has seen. */
static int send_newer(struct viewer *viewer)
{
    uint64_t version = viewer->viewers->record->version;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int err = send_kind(viewer, &kinds[i]);
        if (err < 0)
            return err;
    }
    viewer->seen = version;
    return 0;
}

/* ---- messages in ---- */

static int on_watch(struct viewer *viewer, const void *payload, struct why *why)
{
    const struct wire_watch *watch = payload;
    struct wire_state_end end = {.newest_event = viewer->viewers->record->newest_event};
    viewer->follows = watch->follow;
    viewer->from_event = watch->from_event;
    viewer->seen = 0;
    if (send_newer(viewer) < 0 || link_send(viewer->link, WIRE_STATE_END, &end, 0, 0) < 0)
        return why_set(why, ERR_FULL, "the console does not take what it asked for");
    return 0;
}

static int on_order(struct viewer *viewer, const void *payload, struct why *why)
{
    struct wire_reply reply = {.request = 0};
    viewer->viewers->order(payload, &reply, viewer->viewers->arg);
    if (link_send(viewer->link, WIRE_REPLY, &reply, 0, 0) < 0)
        return why_set(why, ERR_FULL, "the console does not take the reply to its order");
    return 0;
}

static int on_message(struct link *link, const struct frame_header *header, const uint8_t *bytes, size_t count, void *arg,
                      struct why *why)
{
    struct viewer *viewer = arg;
    union {
        struct wire_watch watch;
        struct wire_order order;
    } payload;
    (void)link;
    if (header->type != WIRE_WATCH && header->type != WIRE_ORDER) {
        const struct wire_message *message = wire_find(header->type);
        return why_set(why, ERR_INVALID, "a console may not say %s to kedged", message ? message->name : "that");
    }
    int err = wire_decode(header->type, bytes, count, &payload, why);
    if (err < 0)
        return err;
    return header->type == WIRE_WATCH ? on_watch(viewer, &payload, why) : on_order(viewer, &payload, why);
}

static int on_up(struct link *link, const struct wire_hello *peer, void *arg, struct why *why)
{
    (void)arg;
    if (peer->role != ROLE_CONSOLE)
        return why_set(why, ERR_REFUSED, "this socket is for consoles; '%s' is a %s and dials the control address",
                       peer->name, wire_role_name(peer->role));
    log_at(LOG_INFO, "viewer", "%s pid %u looks at the run: %s", peer->program, peer->pid, link_describe(link));
    return 0;
}

static void on_down(struct link *link, int err, const char *reason, void *arg)
{
    (void)link, (void)err, (void)reason; /* the link has logged it */
    drop(arg);
}

/* ---- life ---- */

struct viewers *viewers_new(struct loop *loop, struct record *record, const struct link_settings *settings,
                            viewers_order_cb *order, void *arg)
{
    struct viewers *viewers = mem_new(sizeof *viewers);
    viewers->loop = loop;
    viewers->record = record;
    viewers->settings = *settings;
    viewers->order = order;
    viewers->arg = arg;
    viewers->record->state.row.viewers = 0;
    return viewers;
}

void viewers_free(struct viewers *viewers)
{
    if (!viewers)
        return;
    while (viewers->first)
        drop(viewers->first);
    mem_free(viewers);
}

void viewers_add(struct viewers *viewers, struct road *road)
{
    static const struct link_callbacks callbacks = {.up = on_up, .message = on_message, .down = on_down};
    if (viewers->ending || viewers->count >= VIEWERS_MAX) {
        log_at(LOG_WARN, "viewer", "a console is not taken: %s", viewers->ending ? "the run ends" : "there are too many");
        road_free(road);
        return;
    }
    struct viewer *viewer = mem_new(sizeof *viewer);
    viewer->viewers = viewers;
    viewer->next = viewers->first;
    viewers->first = viewer;
    count_viewers(viewers, 1);
    viewer->link = link_new(viewers->loop, road, &viewers->settings, &callbacks, viewer);
}

/* A closing link sends what is on CONTROL, and the last state is on TELEM: it goes first. */
static void say_goodbye(struct viewer *viewer)
{
    struct link_counters telemetry;
    link_get_counters(viewer->link, LANE_TELEM, &telemetry);
    if (telemetry.queued_messages > 0 && link_is_up(viewer->link) && clock_now_ns() < viewer->viewers->end_ns)
        return;
    viewer->closing = true;
    link_close(viewer->link, 0, viewer->viewers->reason, viewer->viewers->linger_ns);
}

void viewers_tick(struct viewers *viewers)
{
    struct viewer *next;
    for (struct viewer *viewer = viewers->first; viewer; viewer = next) {
        next = viewer->next;
        if (viewer->closing)
            continue;
        if (viewer->follows && link_is_up(viewer->link) && send_newer(viewer) < 0) {
            log_at(LOG_WARN, "viewer", "%s does not read what it watches: dropped", link_describe(viewer->link));
            drop(viewer);
        } else if (viewers->ending) {
            say_goodbye(viewer);
        }
    }
}

size_t viewers_count(const struct viewers *viewers)
{
    return viewers->count;
}

void viewers_end(struct viewers *viewers, const char *reason, uint64_t linger_ns)
{
    viewers->ending = true;
    record_text(viewers->reason, sizeof viewers->reason, "%s", reason);
    viewers->linger_ns = linger_ns;
    viewers->end_ns = clock_now_ns() + linger_ns;
    viewers_tick(viewers);
}
