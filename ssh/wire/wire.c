/* The two loops that read the table of messages (messages.c): nobody writes an encoder or a decoder by hand. */
#include "ssh/wire/wire.h"

#include <stdio.h>
#include <string.h>

#include "ssh/base/text.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields are copied as they lie in memory: little-endian hosts");

/* ---- encode ---- */

/* Bytes of a number on the wire and in the struct; 0 for text and tails. */
static const uint8_t number_bytes[] = {
    [WIRE_U8] = 1, [WIRE_U16] = 2, [WIRE_U32] = 4, [WIRE_U64] = 8, [WIRE_I32] = 4, [WIRE_F32] = 4, [WIRE_F64] = 8,
    [WIRE_STRING] = 0, [WIRE_TAIL] = 0,
};

static bool in_range(const struct wire_field *field, const void *number)
{
    uint64_t value = 0;
    if (field->least == 0 && field->most == 0)
        return true;
    memcpy(&value, number, number_bytes[field->kind]);
    return value >= field->least && value <= field->most;
}

static size_t text_length(const struct wire_message *message, const struct wire_field *field, const char *text)
{
    const char *end = memchr(text, 0, field->size);
    if (!end)
        BUG("%s.%s is not terminated within its %zu bytes", message->name, field->name, field->size);
    return (size_t)(end - text);
}

static size_t encoded_bytes(const struct wire_message *message, const char *payload)
{
    size_t sum = 0;
    for (size_t i = 0; i < message->field_count; i++) {
        const struct wire_field *field = &message->fields[i];
        const void *at = payload + field->offset;
        if (field->kind == WIRE_STRING) {
            sum += 2 + text_length(message, field, at);
        } else if (field->kind == WIRE_TAIL) {
            const struct wire_bytes *tail = at;
            BUG_IF(tail->bytes && !tail->data);
            sum += 4 + (size_t)tail->bytes;
        } else {
            if (!in_range(field, at))
                BUG("%s.%s is outside of %u..%u", message->name, field->name, field->least, field->most);
            sum += number_bytes[field->kind];
        }
    }
    return sum;
}

/* What decode would refuse (a control character, half a UTF-8 character where snprintf cut the text) goes out as '?': a
 * stranger's text that we pass on must not make the peer close the road. */
static uint8_t *put_text(uint8_t *out, const char *text, size_t length)
{
    uint16_t count = (uint16_t)length;
    memcpy(out, &count, 2);
    out += 2;
    while (length) {
        size_t bytes = text_character(text, length), used = bytes ? bytes : 1;
        if (bytes)
            memcpy(out, text, bytes);
        else
            *out = '?';
        out += used;
        text += used;
        length -= used;
    }
    return out;
}

static uint8_t *put_tail(uint8_t *out, const struct wire_bytes *tail)
{
    memcpy(out, &tail->bytes, 4);
    if (tail->bytes)
        memcpy(out + 4, tail->data, tail->bytes);
    return out + 4 + tail->bytes;
}

int wire_encode(uint16_t type, const void *payload, struct buf *out, struct why *why)
{
    const struct wire_message *message = wire_find(type);
    if (!message)
        BUG("message type %u has no row in the table", type);
    size_t bytes = encoded_bytes(message, payload);
    if (bytes > message->max_bytes)
        return why_set(why, ERR_FULL, "%s of %zu bytes is over its maximum of %u", message->name, bytes, message->max_bytes);
    uint8_t *at = buf_reserve(out, bytes);
    if (!at)
        return why_set(why, ERR_FULL, "no room for a %s of %zu bytes", message->name, bytes);
    for (size_t i = 0; i < message->field_count; i++) {
        const struct wire_field *field = &message->fields[i];
        const char *from = (const char *)payload + field->offset;
        if (field->kind == WIRE_STRING) {
            at = put_text(at, from, text_length(message, field, from));
        } else if (field->kind == WIRE_TAIL) {
            at = put_tail(at, (const struct wire_bytes *)(const void *)from);
        } else {
            memcpy(at, from, number_bytes[field->kind]);
            at += number_bytes[field->kind];
        }
    }
    buf_commit(out, bytes);
    return 0;
}

/* ---- decode ---- */

struct reader { /* the rest of a payload */
    const struct wire_message *message;
    const uint8_t *at;
    size_t left;
};

static int refuse(const struct reader *reader, const struct wire_field *field, const char *what, struct why *why)
{
    return why_set(why, ERR_INVALID, "%s: field %s %s", reader->message->name, field->name, what);
}

static bool take(struct reader *reader, void *out, size_t count)
{
    if (reader->left < count)
        return false;
    memcpy(out, reader->at, count);
    reader->at += count;
    reader->left -= count;
    return true;
}

static int get_number(struct reader *reader, const struct wire_field *field, char *out, struct why *why)
{
    char text[80];
    if (!take(reader, out, number_bytes[field->kind]))
        return refuse(reader, field, "is cut off", why);
    if (in_range(field, out))
        return 0;
    uint64_t value = 0;
    memcpy(&value, out, number_bytes[field->kind]);
    snprintf(text, sizeof text, "is %llu, outside of %u..%u", (unsigned long long)value, field->least, field->most);
    return refuse(reader, field, text, why);
}

static int get_text(struct reader *reader, const struct wire_field *field, char *out, struct why *why)
{
    uint16_t length;
    char text[80];
    if (!take(reader, &length, 2))
        return refuse(reader, field, "is cut off", why);
    if (length >= field->size) {
        snprintf(text, sizeof text, "has %u bytes of text, %zu are allowed", length, field->size - 1);
        return refuse(reader, field, text, why);
    }
    if (length > reader->left)
        return refuse(reader, field, "is cut off", why);
    if (!text_is_harmless((const char *)reader->at, length))
        return refuse(reader, field, "has a control character or is not UTF-8", why);
    take(reader, out, length);
    memset(out + length, 0, field->size - length);
    return 0;
}

static int get_tail(struct reader *reader, const struct wire_field *field, char *out, struct why *why)
{
    struct wire_bytes *tail = (struct wire_bytes *)(void *)out;
    if (!take(reader, &tail->bytes, 4) || tail->bytes > reader->left)
        return refuse(reader, field, "is cut off", why);
    tail->data = reader->at;
    reader->at += tail->bytes;
    reader->left -= tail->bytes;
    return 0;
}

int wire_decode(uint16_t type, const uint8_t *bytes, size_t count, void *payload, struct why *why)
{
    static int (*const get[])(struct reader *, const struct wire_field *, char *, struct why *) = {
        [WIRE_U8] = get_number,  [WIRE_U16] = get_number, [WIRE_U32] = get_number,
        [WIRE_U64] = get_number, [WIRE_I32] = get_number, [WIRE_F32] = get_number,
        [WIRE_F64] = get_number, [WIRE_STRING] = get_text, [WIRE_TAIL] = get_tail,
    };
    struct reader reader = {.message = wire_find(type), .at = bytes, .left = count};
    if (!reader.message)
        return why_set(why, ERR_INVALID, "message type %u is unknown", type);
    if (count > reader.message->max_bytes)
        return why_set(why, ERR_INVALID, "%s of %zu bytes is over its maximum of %u", reader.message->name, count,
                       reader.message->max_bytes);
    memset(payload, 0, reader.message->struct_bytes);
    for (size_t i = 0; i < reader.message->field_count; i++) {
        const struct wire_field *field = &reader.message->fields[i];
        int err = get[field->kind](&reader, field, (char *)payload + field->offset, why);
        if (err)
            return err;
    }
    if (reader.left)
        return why_set(why, ERR_INVALID, "%s: %zu bytes are left over", reader.message->name, reader.left);
    return 0;
}

/* ---- names ---- */

static const char *name_of(const char *const *names, size_t count, int index)
{
    return index >= 0 && (size_t)index < count && names[index] ? names[index] : "unknown";
}

const char *wire_lane_name(int lane)
{
    static const char *const names[] = {
        [LANE_CONTROL] = "control", [LANE_ACT] = "act", [LANE_SYNC] = "sync", [LANE_BULK] = "bulk", [LANE_TELEM] = "telem",
    };
    return name_of(names, sizeof names / sizeof *names, lane);
}

const char *wire_role_name(int role)
{
    static const char *const names[] = {
        [ROLE_CONSOLE] = "console", [ROLE_SCHEDULER] = "scheduler", [ROLE_AGENT] = "agent", [ROLE_STAGE] = "stage",
        [ROLE_ANCHOR] = "anchor",
    };
    return name_of(names, sizeof names / sizeof *names, role);
}

const char *wire_phase_name(int phase)
{
    static const char *const names[] = {
        [PHASE_FORMING] = "forming", [PHASE_TRAINING] = "training", [PHASE_HOLDING] = "holding",
        [PHASE_FINISHED] = "finished", [PHASE_STOPPING] = "stopping", [PHASE_STOPPED] = "stopped",
    };
    return name_of(names, sizeof names / sizeof *names, phase);
}

static const char part_letters[] = ".dcpsagtr";
_Static_assert(sizeof part_letters == PART_COUNT + 1, "a letter for every part of a step");

char wire_part_letter(int part)
{
    return part >= 0 && part < PART_COUNT ? part_letters[part] : '.';
}

int wire_part_of_letter(char letter)
{
    const char *at = letter ? strchr(part_letters, letter) : NULL;
    return at ? (int)(at - part_letters) : PART_REST;
}

const char *wire_wait_name(int cause)
{
    static const char *const names[] = {
        [WAIT_NONE] = "none", [WAIT_ACT] = "act", [WAIT_GRAD] = "grad", [WAIT_STAMP] = "stamp", [WAIT_SEND] = "send",
        [WAIT_DATA] = "data",
        [WAIT_SYNC] = "sync",
    };
    return name_of(names, sizeof names / sizeof *names, cause);
}
