/*
 * Any bytes as a stream, fed in pieces whose lengths the first bytes give. The messages that come out must not depend on the
 * pieces, memory must follow the bytes that came, and an error must be final.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/wire/frame.h"
#include "ssh/wire/wire.h"

#define SPLITS 4

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

struct result {
    uint64_t hash;
    int messages, err;
};

static int note(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    struct result *result = arg;
    const struct wire_message *message = wire_find(header->type);
    uint8_t head[FRAME_HEADER_BYTES];
    if (!message || header->lane != message->lane || bytes != header->message_bytes || bytes > message->max_bytes)
        abort();
    frame_encode(header, head);
    result->hash = hash_add(hash_add(result->hash, head, sizeof head), payload, bytes);
    result->messages++;
    void *fields = mem_new(message->struct_bytes);
    int err = wire_decode(header->type, payload, bytes, fields, why);
    mem_free(fields);
    return err;
}

static struct result run(const uint8_t *bytes, size_t count, const uint8_t *splits)
{
    struct result result = {.hash = HASH_START};
    struct frame_parser *parser = frame_parser_new(0, note, &result);
    struct why why = {0}, again = {0};
    size_t fed = 0;
    for (int turn = 0; fed < count && !result.err; turn++) {
        size_t piece = splits ? 1 + splits[turn % SPLITS] : count, left = count - fed;
        piece = piece < left ? piece : left;
        uint8_t *exact = mem_copy(bytes + fed, piece);
        result.err = frame_parser_feed(parser, exact, piece, &why);
        mem_free(exact);
        fed += piece;
        if (frame_parser_held(parser) > LANE_COUNT * (size_t)4096 + 2 * fed)
            abort();
    }
    if (result.err) {
        int err = frame_parser_feed(parser, bytes, count, &again);
        if (!why.text[0] || err != result.err || strcmp(why.text, again.text) != 0 || frame_parser_held(parser))
            abort();
    }
    frame_parser_free(parser);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count < SPLITS)
        return 0;
    struct result whole = run(bytes + SPLITS, count - SPLITS, NULL), pieces = run(bytes + SPLITS, count - SPLITS, bytes);
    if (whole.hash != pieces.hash || whole.messages != pieces.messages || whole.err != pieces.err)
        abort();
    return 0;
}
