/*
 * A capture is read once, front to back, through one small buffer; each direction has its own frame parser, because each is
 * its own stream. A direction whose frames break is said and no longer followed; the other one goes on.
 */
#include "ssh/wire/decode.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/wire/wire.h"

#define READ_BYTES ((size_t)64 << 10)
#define CHUNK_HEAD_BYTES 13
#define NUMBER_TEXT 40

static const char *const direction_words[] = {"read", "written"};

/* ---- one message ---- */

/* The fewest digits that give the same number back. */
static void format_real(double value, bool is_float, char out[NUMBER_TEXT])
{
    int most = is_float ? 9 : 17;
    for (int digits = 6; digits <= most; digits++) {
        snprintf(out, NUMBER_TEXT, "%.*g", digits, value);
        double back = strtod(out, NULL);
        if (isnan(value) || (is_float ? (float)back == (float)value : back == value))
            return;
    }
}

static void print_field(FILE *out, const struct wire_field *field, const char *payload)
{
    const void *at = payload + field->offset;
    char text[NUMBER_TEXT];
    fprintf(out, " %s=", field->name);
    switch (field->kind) {
    case WIRE_U8:
        fprintf(out, "%" PRIu8, *(const uint8_t *)at);
        break;
    case WIRE_U16:
        fprintf(out, "%" PRIu16, *(const uint16_t *)at);
        break;
    case WIRE_U32:
        fprintf(out, "%" PRIu32, *(const uint32_t *)at);
        break;
    case WIRE_U64:
        fprintf(out, "%" PRIu64, *(const uint64_t *)at);
        break;
    case WIRE_I32:
        fprintf(out, "%" PRId32, *(const int32_t *)at);
        break;
    case WIRE_F32:
        format_real((double)*(const float *)at, true, text);
        fputs(text, out);
        break;
    case WIRE_F64:
        format_real(*(const double *)at, false, text);
        fputs(text, out);
        break;
    case WIRE_STRING:
        fprintf(out, "\"%s\"", (const char *)at);
        break;
    case WIRE_TAIL:
        fprintf(out, "%" PRIu32 " bytes", ((const struct wire_bytes *)at)->bytes);
        break;
    }
}

static void print_time(FILE *out, uint64_t time_ns, const char *mark)
{
    fprintf(out, "%" PRIu64 ".%06" PRIu64 " %s ", time_ns / CLOCK_SECOND, time_ns % CLOCK_SECOND / 1000, mark);
}

void decode_print(FILE *out, uint64_t time_ns, int direction, const struct frame_header *header, const uint8_t *payload,
                  size_t bytes)
{
    const struct wire_message *message = wire_find(header->type);
    struct why why = {0};
    print_time(out, time_ns, direction ? ">" : "<");
    fprintf(out, "%-7s step=%" PRIu64 " micro_batch=%" PRIu32 " %s", wire_lane_name(header->lane), header->step,
            header->micro_batch, message ? message->name : "unknown");
    if (!message) {
        fprintf(out, " type=%u %zu bytes\n", header->type, bytes);
        return;
    }
    char *fields = mem_new(message->struct_bytes);
    if (wire_decode(header->type, payload, bytes, fields, &why) == 0)
        for (size_t i = 0; i < message->field_count; i++)
            print_field(out, &message->fields[i], fields);
    else
        fprintf(out, " is not valid: %s", why.text);
    fputc('\n', out);
    mem_free(fields);
}

/* ---- a capture ---- */

struct decoder {
    FILE *file, *out;
    const char *path;
    uint64_t offset;    /* of the next byte of the file */
    uint64_t first_ns;  /* times are told since the first chunk */
    bool begun;
    struct stream {
        struct decoder *decoder;
        struct frame_parser *parser;
        int direction;
        uint64_t now_ns;
        bool broken;
    } streams[2];
    uint8_t bytes[READ_BYTES];
};

struct chunk {
    uint64_t time_ns;
    uint8_t direction;
    uint32_t bytes;
};

static int print_message(const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg, struct why *why)
{
    struct stream *stream = arg;
    (void)why;
    decode_print(stream->decoder->out, stream->now_ns, stream->direction, header, payload, bytes);
    return 0;
}

/* Up to `count` bytes; fewer only at the end of the file or after a failure. */
static size_t read_bytes(struct decoder *decoder, void *bytes, size_t count)
{
    size_t got = fread(bytes, 1, count, decoder->file);
    decoder->offset += got;
    return got;
}

static int check_magic(struct decoder *decoder, struct why *why)
{
    char head[sizeof DECODE_MAGIC - 1];
    size_t got = read_bytes(decoder, head, sizeof head);
    if (ferror(decoder->file))
        return why_errno(why, "cannot read %s", decoder->path);
    if (got != sizeof head || memcmp(head, DECODE_MAGIC, sizeof head) != 0)
        return why_set(why, ERR_INVALID, "%s is not a kedge capture (it does not begin with \"%.*s\")", decoder->path,
                       (int)sizeof head - 1, DECODE_MAGIC);
    return 0;
}

static void feed_stream(struct stream *stream, const uint8_t *bytes, size_t count, struct why *why)
{
    struct why reason = {0};
    if (stream->broken || frame_parser_feed(stream->parser, bytes, count, &reason) == 0)
        return;
    struct decoder *decoder = stream->decoder;
    stream->broken = true;
    print_time(decoder->out, stream->now_ns, stream->direction ? ">" : "<");
    fprintf(decoder->out, "the stream breaks here: %s\n", reason.text);
    why_set(why, ERR_INVALID, "%s: what was %s breaks before offset %" PRIu64 ": %s", decoder->path,
            direction_words[stream->direction], decoder->offset, reason.text);
}

static void say_torn(struct decoder *decoder, uint64_t missing)
{
    fprintf(decoder->out, "the capture is torn: its last chunk lacks %" PRIu64 " bytes\n", missing);
}

/* 1: another chunk may follow, 0: the end, negative: an error. */
static int decode_chunk(struct decoder *decoder, struct why *why)
{
    uint8_t head[CHUNK_HEAD_BYTES];
    struct chunk chunk;
    uint64_t at = decoder->offset;
    size_t got = read_bytes(decoder, head, sizeof head);
    if (got < sizeof head) {
        if (ferror(decoder->file))
            return why_errno(why, "cannot read %s", decoder->path);
        if (got)
            say_torn(decoder, sizeof head - got);
        return 0;
    }
    memcpy(&chunk.time_ns, head, 8);
    chunk.direction = head[8];
    memcpy(&chunk.bytes, head + 9, 4);
    if (chunk.direction > 1)
        return why_set(why, ERR_INVALID, "%s is damaged: the chunk at offset %" PRIu64 " has the direction %u",
                       decoder->path, at, chunk.direction);
    if (!decoder->begun)
        decoder->first_ns = chunk.time_ns;
    decoder->begun = true;
    struct stream *stream = &decoder->streams[chunk.direction];
    stream->now_ns = chunk.time_ns > decoder->first_ns ? chunk.time_ns - decoder->first_ns : 0;
    for (size_t left = chunk.bytes; left; left -= got) {
        got = read_bytes(decoder, decoder->bytes, left < READ_BYTES ? left : READ_BYTES);
        feed_stream(stream, decoder->bytes, got, why);
        if (got == 0) {
            if (ferror(decoder->file))
                return why_errno(why, "cannot read %s", decoder->path);
            say_torn(decoder, left);
            return 0;
        }
    }
    return 1;
}

int decode_file(const char *path, FILE *out, struct why *why)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return why_errno(why, "cannot open %s", path);
    struct decoder *decoder = mem_new(sizeof *decoder);
    struct why broken = {0};
    decoder->file = file;
    decoder->out = out;
    decoder->path = path;
    for (int i = 0; i < 2; i++) {
        decoder->streams[i] = (struct stream){.decoder = decoder, .direction = i};
        decoder->streams[i].parser = frame_parser_new(0, print_message, &decoder->streams[i]);
    }
    int err = check_magic(decoder, why);
    int more = 1;
    while (!err && more > 0)
        more = decode_chunk(decoder, &broken);
    if (!err && broken.err)
        err = why_set(why, broken.err, "%s", broken.text);
    if (!err && (fflush(out) != 0 || ferror(out)))
        err = why_errno(why, "cannot write what %s says", path);
    for (int i = 0; i < 2; i++)
        frame_parser_free(decoder->streams[i].parser);
    mem_free(decoder);
    fclose(file);
    return err;
}
