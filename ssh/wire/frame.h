/*
 * Frames: how messages are cut, and the incremental parser.
 *
 * A message may be cut into several frames of the same lane so that a bulk message never holds the road; frames of
 * different lanes interleave, frames of one lane stay in order. Each frame repeats the message's header with its own
 * frame_bytes; FRAME_MORE says that the message goes on in the next frame of that lane.
 *
 * The parser collects one message per lane, within the maximum of its type (known from the first frame, before any memory is
 * taken), checks run id, lane, type and continuity, and never re-synchronises: after the first error it is dead.
 */
#ifndef KEDGE_WIRE_FRAME_H
#define KEDGE_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

#define FRAME_HEADER_BYTES 36
#define FRAME_MORE 1u

struct frame_header {
    uint32_t frame_bytes;   /* payload bytes of this frame, behind the header */
    uint32_t message_bytes; /* payload bytes of the whole message */
    uint16_t type;          /* enum wire_type */
    uint8_t lane;           /* enum wire_lane */
    uint8_t flags;          /* FRAME_MORE */
    uint64_t run_id;
    uint32_t incarnation;   /* of the sender */
    uint64_t step;          /* data lanes; 0 elsewhere */
    uint32_t micro_batch;   /* data lanes; key of a TELEM message */
};

void frame_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES]);
void frame_decode(const uint8_t in[FRAME_HEADER_BYTES], struct frame_header *header);

struct frame_parser;

/* `message` gets each complete message, with the header of its first frame and frame_bytes = message_bytes, flags = 0.
 * `payload` is only valid during the call. A non-zero return stops the parser with that error. It must not free the
 * parser. */
typedef int frame_message_cb(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                             struct why *why);

/* run_id 0 accepts any (`kedge decode`). Free: NULL is fine. */
struct frame_parser *frame_parser_new(uint64_t run_id, frame_message_cb *message, void *arg);
void frame_parser_free(struct frame_parser *parser);
/* Bytes as they come, in any split. 0, or a negative err with the reason; then every later call returns the same err. */
int frame_parser_feed(struct frame_parser *parser, const uint8_t *bytes, size_t count, struct why *why);
/* Where the next bytes would be kept, so that they can be read there and not be copied: NULL when the parser is not well inside
 * a large frame. What is read there (at most *room) is fed next, from there. */
uint8_t *frame_parser_reserve(struct frame_parser *parser, size_t *room);
/* Memory that messages hold now: it follows the bytes that came, within the types' maxima, one message per lane. */
size_t frame_parser_held(const struct frame_parser *parser);
/* What came on a lane so far: frames begun, and bytes with their headers. */
void frame_parser_count(const struct frame_parser *parser, int lane, uint64_t *frames, uint64_t *bytes);

#endif
