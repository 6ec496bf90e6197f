/*
 * The parser's life is a loop of three questions: is a header complete? is it allowed? how much of its payload is here?
 * A message that lies whole in the bytes that were fed is handed on from there; only what is spread over several feeds or
 * frames is collected, in one buffer per lane. A buffer grows with the bytes that really came, so that a header which
 * announces much and sends little costs little, and it is kept for the next message of the lane while it is not huge.
 */
#include "ssh/wire/frame.h"

#include <stdbool.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/wire/wire.h"

#define KEEP_BYTES ((size_t)8 << 20) /* a larger buffer is given back after its message */
#define FIRST_BYTES ((size_t)4096)
#define RESERVE_BYTES ((size_t)32 << 10) /* fewer are not worth a read of their own */

struct collection { /* the unfinished message of a lane */
    bool open;
    struct frame_header header; /* of its first frame */
    uint8_t *bytes;
    size_t used, capacity;
};

struct frame_parser {
    uint64_t run_id;
    frame_message_cb *message;
    void *arg;
    uint8_t header_bytes[FRAME_HEADER_BYTES];
    size_t header_used;         /* of the next header; FRAME_HEADER_BYTES: inside a payload */
    struct frame_header header;
    size_t payload_left;        /* of this frame */
    struct collection lanes[LANE_COUNT];
    uint64_t frames[LANE_COUNT], bytes[LANE_COUNT];
    int err; /* dead when not 0 */
    struct why why;
};

/* ---- the header ---- */

static uint8_t *put(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
    return out + bytes;
}

static uint64_t get(const uint8_t **in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)(*in)[i] << 8 * i;
    *in += bytes;
    return value;
}

void frame_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES])
{
    out = put(out, header->frame_bytes, 4);
    out = put(out, header->message_bytes, 4);
    out = put(out, header->type, 2);
    out = put(out, header->lane, 1);
    out = put(out, header->flags, 1);
    out = put(out, header->run_id, 8);
    out = put(out, header->incarnation, 4);
    out = put(out, header->step, 8);
    put(out, header->micro_batch, 4);
}

void frame_decode(const uint8_t in[FRAME_HEADER_BYTES], struct frame_header *header)
{
    header->frame_bytes = (uint32_t)get(&in, 4);
    header->message_bytes = (uint32_t)get(&in, 4);
    header->type = (uint16_t)get(&in, 2);
    header->lane = (uint8_t)get(&in, 1);
    header->flags = (uint8_t)get(&in, 1);
    header->run_id = get(&in, 8);
    header->incarnation = (uint32_t)get(&in, 4);
    header->step = get(&in, 8);
    header->micro_batch = (uint32_t)get(&in, 4);
}

/* ---- what is allowed ---- */

static int check_kind(const struct frame_parser *parser, struct why *why)
{
    const struct frame_header *header = &parser->header;
    const struct wire_message *message = wire_find(header->type);
    if (parser->run_id && header->run_id != parser->run_id)
        return why_set(why, ERR_INVALID, "a frame of another run came: run id %016llx, ours is %016llx",
                       (unsigned long long)header->run_id, (unsigned long long)parser->run_id);
    if (!message)
        return why_set(why, ERR_INVALID, "a frame of the unknown message type %u came", header->type);
    if (header->lane != message->lane)
        return why_set(why, ERR_INVALID, "a %s came on lane %u (%s), it belongs on lane %s", message->name, header->lane,
                       wire_lane_name(header->lane), wire_lane_name((int)message->lane));
    if (header->flags & ~FRAME_MORE)
        return why_set(why, ERR_INVALID, "a %s came with the unknown flags 0x%02x", message->name, header->flags);
    if (header->message_bytes > message->max_bytes)
        return why_set(why, ERR_INVALID, "a %s announces %u bytes, at most %u are allowed", message->name,
                       header->message_bytes, message->max_bytes);
    return 0;
}

/* The frames of a message repeat its header; only frame_bytes and FRAME_MORE are their own. */
static int check_continuity(const struct frame_header *first, const struct frame_header *header, struct why *why)
{
    const char *name = wire_find(first->type)->name;
    const struct { const char *what; bool same; } parts[] = {
        {"type", header->type == first->type},
        {"message length", header->message_bytes == first->message_bytes},
        {"run id", header->run_id == first->run_id},
        {"incarnation", header->incarnation == first->incarnation},
        {"step", header->step == first->step},
        {"micro-batch", header->micro_batch == first->micro_batch},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i].same)
            return why_set(why, ERR_INVALID, "the %s changed inside a %s on lane %s", parts[i].what, name,
                           wire_lane_name(first->lane));
    return 0;
}

static int check_length(const struct frame_header *header, size_t have, struct why *why)
{
    const char *name = wire_find(header->type)->name;
    size_t remaining = header->message_bytes - have;
    bool more = header->flags & FRAME_MORE;
    if (header->frame_bytes > remaining)
        return why_set(why, ERR_INVALID, "a frame of a %s has %u bytes, only %zu remain of the message", name,
                       header->frame_bytes, remaining);
    if (more && header->frame_bytes == remaining)
        return why_set(why, ERR_INVALID, "the frame that completes a %s says that more follows", name);
    if (!more && header->frame_bytes < remaining)
        return why_set(why, ERR_INVALID, "the last frame of a %s leaves %zu bytes of the message missing", name,
                       remaining - header->frame_bytes);
    if (more && header->frame_bytes == 0)
        return why_set(why, ERR_INVALID, "a frame of a %s is empty and says that more follows", name);
    return 0;
}

static int check_header(const struct frame_parser *parser, struct why *why)
{
    int err = check_kind(parser, why);
    if (err)
        return err;
    const struct collection *lane = &parser->lanes[parser->header.lane];
    if (lane->open)
        err = check_continuity(&lane->header, &parser->header, why);
    return err ? err : check_length(&parser->header, lane->open ? lane->used : 0, why);
}

/* ---- collecting ---- */

struct frame_parser *frame_parser_new(uint64_t run_id, frame_message_cb *message, void *arg)
{
    struct frame_parser *parser = mem_new(sizeof *parser);
    parser->run_id = run_id;
    parser->message = message;
    parser->arg = arg;
    return parser;
}

static void drop_collections(struct frame_parser *parser)
{
    for (int i = 0; i < LANE_COUNT; i++) {
        mem_free(parser->lanes[i].bytes);
        parser->lanes[i] = (struct collection){0};
    }
}

void frame_parser_free(struct frame_parser *parser)
{
    if (!parser)
        return;
    drop_collections(parser);
    mem_free(parser);
}

static void make_room(struct collection *lane, size_t need)
{
    if (need <= lane->capacity)
        return;
    size_t capacity = lane->capacity ? lane->capacity : FIRST_BYTES;
    while (capacity < need)
        capacity *= 2;
    if (capacity > lane->header.message_bytes)
        capacity = lane->header.message_bytes;
    lane->bytes = mem_grow(lane->bytes, capacity, 1);
    lane->capacity = capacity;
}

static void collect(struct collection *lane, const uint8_t *bytes, size_t count)
{
    make_room(lane, lane->used + count);
    if (count && bytes != lane->bytes + lane->used) /* they may have been read in place */
        memcpy(lane->bytes + lane->used, bytes, count);
    lane->used += count;
}

uint8_t *frame_parser_reserve(struct frame_parser *parser, size_t *room)
{
    struct collection *lane = &parser->lanes[parser->header.lane];
    if (parser->err || parser->header_used < FRAME_HEADER_BYTES || parser->payload_left < RESERVE_BYTES || lane->used == 0)
        return NULL;
    make_room(lane, lane->used + RESERVE_BYTES);
    *room = lane->capacity - lane->used < parser->payload_left ? lane->capacity - lane->used : parser->payload_left;
    return lane->bytes + lane->used;
}

static int deliver(struct frame_parser *parser, const struct frame_header *first, const uint8_t *bytes, struct why *why)
{
    struct frame_header header = *first;
    header.frame_bytes = header.message_bytes;
    header.flags = 0;
    return parser->message(&header, bytes, header.message_bytes, parser->arg, why);
}

/* All bytes of the message are here: the collection is closed before the callback, and its memory lives through it. */
static int finish(struct frame_parser *parser, struct collection *lane, struct why *why)
{
    lane->open = false;
    lane->used = 0;
    int err = deliver(parser, &lane->header, lane->bytes, why);
    if (lane->capacity > KEEP_BYTES) {
        mem_free(lane->bytes);
        lane->bytes = NULL;
        lane->capacity = 0;
    }
    return err;
}

static size_t feed_header(struct frame_parser *parser, const uint8_t *bytes, size_t count, int *err, struct why *why)
{
    size_t take = FRAME_HEADER_BYTES - parser->header_used;
    if (take > count)
        take = count;
    memcpy(parser->header_bytes + parser->header_used, bytes, take);
    parser->header_used += take;
    if (parser->header_used < FRAME_HEADER_BYTES)
        return take;
    frame_decode(parser->header_bytes, &parser->header);
    *err = check_header(parser, why);
    if (*err)
        return take;
    struct collection *lane = &parser->lanes[parser->header.lane];
    parser->payload_left = parser->header.frame_bytes;
    parser->frames[parser->header.lane]++;
    parser->bytes[parser->header.lane] += FRAME_HEADER_BYTES;
    if (!lane->open) {
        lane->open = true;
        lane->used = 0;
        lane->header = parser->header;
    }
    return take;
}

static size_t feed_payload(struct frame_parser *parser, const uint8_t *bytes, size_t count, int *err, struct why *why)
{
    struct collection *lane = &parser->lanes[parser->header.lane];
    size_t take = parser->payload_left < count ? parser->payload_left : count;
    bool whole = lane->used == 0 && take == lane->header.message_bytes;
    parser->payload_left -= take;
    parser->bytes[parser->header.lane] += take;
    if (parser->payload_left == 0)
        parser->header_used = 0;
    if (whole) {
        lane->open = false;
        *err = deliver(parser, &lane->header, bytes, why);
        return take;
    }
    collect(lane, bytes, take);
    if (lane->used == lane->header.message_bytes)
        *err = finish(parser, lane, why);
    return take;
}

int frame_parser_feed(struct frame_parser *parser, const uint8_t *bytes, size_t count, struct why *why)
{
    if (parser->err)
        return why_set(why, parser->err, "%s", parser->why.text);
    int err = 0;
    while (!err) {
        bool in_header = parser->header_used < FRAME_HEADER_BYTES;
        if (count == 0 && (in_header || parser->payload_left))
            return 0;
        size_t used = in_header ? feed_header(parser, bytes, count, &err, &parser->why)
                                : feed_payload(parser, bytes, count, &err, &parser->why);
        bytes += used;
        count -= used;
    }
    if (!parser->why.err)
        why_set(&parser->why, err, "the receiver of a message refused it");
    parser->err = err;
    drop_collections(parser);
    return why_set(why, err, "%s", parser->why.text);
}

size_t frame_parser_held(const struct frame_parser *parser)
{
    size_t sum = 0;
    for (int i = 0; i < LANE_COUNT; i++)
        sum += parser->lanes[i].capacity;
    return sum;
}

void frame_parser_count(const struct frame_parser *parser, int lane, uint64_t *frames, uint64_t *bytes)
{
    *frames = parser->frames[lane];
    *bytes = parser->bytes[lane];
}
