#include "ssh/link/in.h"

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define IN_READ_BYTES (128 * 1024)

void in_init(struct in *in, uint64_t run_id, frame_message_cb *message, void *arg)
{
    *in = (struct in){.parser = frame_parser_new(run_id, message, arg), .bytes = mem_new(IN_READ_BYTES)};
}

void in_clear(struct in *in)
{
    frame_parser_free(in->parser);
    mem_free(in->bytes);
    *in = (struct in){0};
}

static enum in_state in_read_into(struct in *in, struct road *road, uint8_t *bytes, size_t room, size_t *count, int *err,
                                  struct why *why)
{
    ssize_t read = road_read(road, bytes, room, why);
    if (read == ERR_AGAIN)
        return IN_EMPTY;
    if (read < 0) {
        *err = (int)read;
        return IN_ENDED;
    }
    in->heard_ns = clock_now_ns();
    *count = (size_t)read;
    return IN_MORE;
}

enum in_state in_read(struct in *in, struct road *road, size_t *count, int *err, struct why *why)
{
    size_t room = IN_READ_BYTES;
    uint8_t *bytes = frame_parser_reserve(in->parser, &room);
    if (!bytes)
        bytes = in->bytes;
    enum in_state state = in_read_into(in, road, bytes, room, count, err, why);
    if (state != IN_MORE)
        return state;
    *err = frame_parser_feed(in->parser, bytes, *count, why);
    return *err ? IN_REFUSED : IN_MORE;
}

enum in_state in_drop(struct in *in, struct road *road, size_t *count, int *err, struct why *why)
{
    return in_read_into(in, road, in->bytes, IN_READ_BYTES, count, err, why);
}
