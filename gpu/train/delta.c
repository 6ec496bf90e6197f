/* See delta.h. */
#include "gpu/train/delta.h"

#include <inttypes.h>
#include <zstd.h>

#include "ssh/base/hash.h"

#define EXPONENTS 256
#define LEVEL 1 /* the planes are simple: a higher level costs ten times the time and wins a few per cent */

uint64_t delta_chunks(uint64_t words)
{
    return (words + WIRE_CHUNK_WORDS - 1) / WIRE_CHUNK_WORDS;
}

uint64_t delta_count(uint64_t words, uint64_t chunk)
{
    uint64_t left = words - chunk * WIRE_CHUNK_WORDS;
    BUG_IF(chunk >= delta_chunks(words));
    return left < WIRE_CHUNK_WORDS ? left : WIRE_CHUNK_WORDS;
}

size_t delta_bound(void)
{
    return ZSTD_compressBound(2 * WIRE_CHUNK_WORDS);
}

static unsigned exponent(uint16_t word)
{
    return word >> 7 & 0xff;
}

/* Small differences of either sign have small codes: 0, −1, 1, −2, 2, … */
static uint16_t fold(uint16_t difference)
{
    return (uint16_t)(difference << 1 ^ (difference & 0x8000 ? 0xffff : 0));
}

static uint16_t unfold(uint16_t code)
{
    return (uint16_t)(code >> 1 ^ (code & 1 ? 0xffff : 0));
}

/* Where the words of each exponent begin when those of the base are put in order of it. */
static void find_places(const uint16_t *base, uint64_t count, uint64_t *places)
{
    uint64_t begin = 0, sizes[EXPONENTS] = {0};
    for (uint64_t i = 0; base && i < count; i++)
        sizes[exponent(base[i])]++;
    for (int i = 0; i < EXPONENTS; i++) {
        places[i] = begin;
        begin += sizes[i];
    }
}

size_t delta_encode(const uint16_t *words, const uint16_t *base, uint64_t count, uint8_t *scratch, uint8_t *out)
{
    uint64_t places[EXPONENTS];
    find_places(base, count, places);
    for (uint64_t i = 0; i < count; i++) {
        uint16_t code = base ? fold((uint16_t)(words[i] - base[i])) : words[i];
        uint64_t at = base ? places[exponent(base[i])]++ : i;
        scratch[at] = (uint8_t)code;
        scratch[count + at] = (uint8_t)(code >> 8);
    }
    size_t bytes = ZSTD_compress(out, delta_bound(), scratch, 2 * count, LEVEL);
    if (ZSTD_isError(bytes))
        BUG("zstd: %s", ZSTD_getErrorName(bytes));
    return bytes;
}

int delta_decode(const uint8_t *in, size_t bytes, const uint16_t *base, uint64_t count, uint64_t hash, uint8_t *scratch,
                 uint16_t *words, struct why *why)
{
    size_t got = ZSTD_decompress(scratch, 2 * count, in, bytes);
    if (ZSTD_isError(got))
        return why_set(why, ERR_INVALID, "a chunk of %zu bytes cannot be unpacked: %s", bytes, ZSTD_getErrorName(got));
    if (got != 2 * count)
        return why_set(why, ERR_INVALID, "a chunk has %zu bytes and should have %" PRIu64, got, 2 * count);
    uint64_t places[EXPONENTS];
    find_places(base, count, places);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = base ? places[exponent(base[i])]++ : i;
        uint16_t code = (uint16_t)(scratch[at] | scratch[count + at] << 8);
        words[i] = base ? (uint16_t)(base[i] + unfold(code)) : code;
    }
    uint64_t made = hash_block(words, 2 * count);
    if (made != hash)
        return why_set(why, ERR_INVALID, "a chunk made words of hash %016" PRIx64 " in place of %016" PRIx64, made, hash);
    return 0;
}
