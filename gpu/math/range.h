/*
 * An adaptive binary range coder (Martin, Range encoding: an algorithm for removing redundancy from a digitised message,
 * 1979; with carries resolved as they come, as LZMA does): a bit costs about −log₂ of the chance that its context gave it.
 * A context keeps two chances of a zero, one that follows quickly and one slowly, and uses their mean.
 *
 * Integers only, so both ends stay in step on any machine. Writing past `room` counts on without writing; reading past the
 * end gives zeros, so trailing zeros need not travel.
 */
#ifndef KEDGE_MATH_RANGE_H
#define KEDGE_MATH_RANGE_H

#include <stddef.h>
#include <stdint.h>

enum { RANGE_QUICK = 5, RANGE_SLOW = 7 };

struct range_chance {
    uint16_t quick, slow; /* of a zero, of 65536 */
};

static inline uint32_t range_of(const struct range_chance *chance)
{
    return ((uint32_t)chance->quick + chance->slow) >> 2; /* of 32768; never 0, never all */
}

static inline void range_learn(struct range_chance *chance, int bit)
{
    if (bit) {
        chance->quick = (uint16_t)(chance->quick - (chance->quick >> RANGE_QUICK));
        chance->slow = (uint16_t)(chance->slow - (chance->slow >> RANGE_SLOW));
    } else {
        chance->quick = (uint16_t)(chance->quick + ((65535 - chance->quick) >> RANGE_QUICK));
        chance->slow = (uint16_t)(chance->slow + ((65535 - chance->slow) >> RANGE_SLOW));
    }
}

/* ---- writing ---- */

struct range_writer {
    uint8_t *out;
    size_t room, at; /* at: what it takes so far, be there room or not */
    uint64_t low;
    uint32_t range;
    uint8_t held;        /* the last byte, which a carry may still change, */
    uint64_t held_count; /* and the 255s behind it, counting it */
};

static inline void range_start(struct range_writer *writer, uint8_t *out, size_t room)
{
    *writer = (struct range_writer){.out = out, .room = room, .range = UINT32_MAX, .held_count = 1};
}

static inline void range_shift(struct range_writer *writer)
{
    uint8_t carry = (uint8_t)(writer->low >> 32);
    if (carry || (uint32_t)writer->low < 0xFF000000u) {
        for (uint8_t byte = writer->held; writer->held_count; writer->held_count--, byte = 0xFF) {
            if (writer->at < writer->room)
                writer->out[writer->at] = (uint8_t)(byte + carry);
            writer->at++;
        }
        writer->held = (uint8_t)(writer->low >> 24);
    }
    writer->held_count++;
    writer->low = (writer->low & 0x00FFFFFFu) << 8;
}

static inline void range_put(struct range_writer *writer, struct range_chance *chance, int bit)
{
    uint32_t bound = (writer->range >> 15) * range_of(chance);
    writer->low += bit ? bound : 0;
    writer->range = bit ? writer->range - bound : bound;
    range_learn(chance, bit);
    while (writer->range < 1u << 24) {
        writer->range <<= 8;
        range_shift(writer);
    }
}

/* `count` ≤ 31 bits of even chance, high bit first. */
static inline void range_put_bits(struct range_writer *writer, uint32_t bits, int count)
{
    while (count-- > 0) {
        writer->range >>= 1;
        writer->low += bits >> count & 1 ? writer->range : 0;
        while (writer->range < 1u << 24) {
            writer->range <<= 8;
            range_shift(writer);
        }
    }
}

/* Bytes that it took; more than `room`: it did not fit. */
static inline size_t range_end(struct range_writer *writer)
{
    for (int i = 0; i < 5; i++)
        range_shift(writer);
    while (writer->at && writer->at <= writer->room && !writer->out[writer->at - 1])
        writer->at--;
    return writer->at;
}

/* ---- reading ---- */

struct range_reader {
    const uint8_t *at, *end;
    uint32_t range, code;
};

static inline uint32_t range_next(struct range_reader *reader)
{
    return reader->code << 8 | (reader->at < reader->end ? *reader->at++ : 0u);
}

static inline void range_open(struct range_reader *reader, const uint8_t *bytes, size_t count)
{
    *reader = (struct range_reader){.at = bytes, .end = bytes + count, .range = UINT32_MAX};
    for (int i = 0; i < 5; i++)
        reader->code = range_next(reader);
}

static inline void range_refill(struct range_reader *reader)
{
    while (reader->range < 1u << 24) {
        reader->range <<= 8;
        reader->code = range_next(reader);
    }
}

static inline int range_get(struct range_reader *reader, struct range_chance *chance)
{
    uint32_t bound = (reader->range >> 15) * range_of(chance);
    int bit = reader->code >= bound;
    reader->code -= bit ? bound : 0;
    reader->range = bit ? reader->range - bound : bound;
    range_learn(chance, bit);
    range_refill(reader);
    return bit;
}

static inline uint32_t range_get_bits(struct range_reader *reader, int count)
{
    uint32_t bits = 0;
    while (count-- > 0) {
        reader->range >>= 1;
        int bit = reader->code >= reader->range;
        reader->code -= bit ? reader->range : 0;
        bits = bits << 1 | (uint32_t)bit;
        range_refill(reader);
    }
    return bits;
}

#endif
