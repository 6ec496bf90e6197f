#include "ssh/link/lane.h"

#include "ssh/base/mem.h"
#include "ssh/base/why.h"

struct lane_message {
    STAILQ_ENTRY(lane_message) entry;
    struct frame_header header;
    uint8_t *payload;
    size_t cut_bytes; /* of the payload, cut off already */
};

const int lane_order[LANE_COUNT] = {LANE_CONTROL, LANE_ACT, LANE_TELEM, LANE_SYNC, LANE_BULK};

void lanes_init(struct lanes *lanes, size_t queue_max_bytes)
{
    *lanes = (struct lanes){.queue_max_bytes = queue_max_bytes};
    for (int i = 0; i < LANE_COUNT; i++)
        STAILQ_INIT(&lanes->lane[i].queue);
}

static void lane_drop_first(struct lane *lane)
{
    struct lane_message *message = STAILQ_FIRST(&lane->queue);
    STAILQ_REMOVE_HEAD(&lane->queue, entry);
    lane->queued_messages--;
    lane->queued_bytes -= FRAME_HEADER_BYTES + message->header.message_bytes - message->cut_bytes;
    mem_free(message);
}

void lane_clear(struct lanes *lanes, int which)
{
    struct lane *lane = &lanes->lane[which];
    struct lane_message *message;
    while ((message = STAILQ_FIRST(&lane->queue))) {
        mem_free(message->payload);
        lane_drop_first(lane);
    }
}

void lanes_clear(struct lanes *lanes)
{
    for (int i = 0; i < LANE_COUNT; i++)
        lane_clear(lanes, i);
}

/* Latest wins: the waiting message of the same type and key, or NULL. One that is already being sent stays whole. */
static struct lane_message *lane_find_older(struct lane *lane, const struct frame_header *header)
{
    struct lane_message *message;
    STAILQ_FOREACH(message, &lane->queue, entry)
        if (message->header.type == header->type && message->header.micro_batch == header->micro_batch &&
            message->cut_bytes == 0)
            return message;
    return NULL;
}

int lane_put(struct lanes *lanes, const struct frame_header *header, uint8_t *payload)
{
    struct lane *lane = &lanes->lane[header->lane];
    struct lane_message *message = header->lane == LANE_TELEM ? lane_find_older(lane, header) : NULL;
    if (message) {
        lane->queued_bytes += header->message_bytes;
        lane->queued_bytes -= message->header.message_bytes;
        lane->dropped_messages++;
        mem_free(message->payload);
        message->header = *header;
        message->payload = payload;
        return 0;
    }
    uint64_t bytes = FRAME_HEADER_BYTES + (uint64_t)header->message_bytes;
    if (lane->queued_bytes && lane->queued_bytes + bytes > lanes->queue_max_bytes) {
        lane->was_full = true;
        mem_free(payload);
        return ERR_FULL;
    }
    message = mem_new(sizeof *message);
    message->header = *header;
    message->payload = payload;
    STAILQ_INSERT_TAIL(&lane->queue, message, entry);
    lane->queued_bytes += bytes;
    lane->queued_messages++;
    return 0;
}

bool lane_has(const struct lanes *lanes, int lane, uint16_t type)
{
    const struct lane_message *message;
    STAILQ_FOREACH(message, &lanes->lane[lane].queue, entry)
        if (message->header.type == type && message->cut_bytes == 0)
            return true;
    return false;
}

bool lanes_empty(const struct lanes *lanes)
{
    for (int i = 0; i < LANE_COUNT; i++)
        if (!STAILQ_EMPTY(&lanes->lane[i].queue))
            return false;
    return true;
}

bool lane_ready(const struct lanes *lanes, int lane)
{
    return !STAILQ_EMPTY(&lanes->lane[lane].queue) && !lanes->lane[lane].paused;
}

size_t lane_next_bytes(const struct lanes *lanes, int lane, size_t frame_max_bytes)
{
    const struct lane_message *message = STAILQ_FIRST(&lanes->lane[lane].queue);
    size_t bytes = FRAME_HEADER_BYTES + message->header.message_bytes - message->cut_bytes;
    return bytes < frame_max_bytes ? bytes : frame_max_bytes;
}

int lane_pick(const struct lanes *lanes, uint32_t allowed, size_t frame_max_bytes)
{
    if ((allowed & 1u << LANE_CONTROL) && lane_ready(lanes, LANE_CONTROL))
        return LANE_CONTROL;
    int first = -1;
    for (int i = LANE_COUNT - 1; i > 0; i--) {
        int lane = lane_order[i];
        if (!(allowed & 1u << lane) || !lane_ready(lanes, lane))
            continue;
        if (lanes->lane[lane].owed_bytes >= lane_next_bytes(lanes, lane, frame_max_bytes) * LANE_FLOOR)
            return lane;
        first = lane;
    }
    return first;
}

/* owed_bytes is kept LANE_FLOOR times too large, so that small frames count too. */
static void lane_account(struct lanes *lanes, int sender, size_t bytes, size_t frame_max_bytes)
{
    bool below = false;
    for (int i = 0; i < LANE_COUNT; i++) {
        struct lane *lane = &lanes->lane[lane_order[i]];
        uint64_t most = (uint64_t)2 * frame_max_bytes * LANE_FLOOR;
        if (lane_order[i] == sender) {
            below = true;
            uint64_t paid = (uint64_t)bytes * LANE_FLOOR;
            lane->owed_bytes = lane->owed_bytes > paid ? lane->owed_bytes - paid : 0;
        } else if (below && lane_ready(lanes, lane_order[i])) {
            lane->owed_bytes = lane->owed_bytes + bytes < most ? lane->owed_bytes + bytes : most;
        }
        if (STAILQ_EMPTY(&lane->queue))
            lane->owed_bytes = 0;
    }
}

void lane_cut(struct lanes *lanes, int which, size_t frame_max_bytes, struct lane_frame *frame)
{
    struct lane *lane = &lanes->lane[which];
    struct lane_message *message = STAILQ_FIRST(&lane->queue);
    size_t bytes = lane_next_bytes(lanes, which, frame_max_bytes), payload_bytes = bytes - FRAME_HEADER_BYTES;
    *frame = (struct lane_frame){.header = message->header};
    frame->payload = payload_bytes ? message->payload + message->cut_bytes : NULL;
    frame->header.frame_bytes = (uint32_t)payload_bytes;
    message->cut_bytes += payload_bytes;
    lane->queued_bytes -= payload_bytes;
    lane->sent_bytes += bytes;
    lane->sent_frames++;
    if (message->cut_bytes < message->header.message_bytes) {
        frame->header.flags = FRAME_MORE;
    } else {
        frame->owned = message->payload;
        lane->sent_messages++;
        lane_drop_first(lane);
    }
    lane_account(lanes, which, bytes, frame_max_bytes);
}

void lane_frame_clear(struct lane_frame *frame)
{
    mem_free(frame->owned);
    *frame = (struct lane_frame){0};
}

bool lane_drained(struct lanes *lanes, int which)
{
    struct lane *lane = &lanes->lane[which];
    if (!lane->was_full || lane->queued_bytes > lanes->queue_max_bytes / 2)
        return false;
    lane->was_full = false;
    return true;
}
