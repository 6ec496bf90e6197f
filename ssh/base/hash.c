#include "ssh/base/hash.h"

#include <string.h>
#include <sys/random.h>

#include "ssh/base/why.h"

uint64_t hash_add(uint64_t state, const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++)
        state = (state ^ byte[i]) * UINT64_C(0x100000001b3);
    return state;
}

uint64_t hash_finish(uint64_t state)
{
    state ^= state >> 30;
    state *= UINT64_C(0xbf58476d1ce4e5b9);
    state ^= state >> 27;
    state *= UINT64_C(0x94d049bb133111eb);
    return state ^ state >> 31;
}

uint64_t hash_bytes(const void *bytes, size_t count)
{
    return hash_finish(hash_add(HASH_START, bytes, count));
}

static uint64_t round_of(uint64_t lane, uint64_t word)
{
    lane += word * UINT64_C(0xc2b2ae3d27d4eb4f);
    return (lane << 31 | lane >> 33) * UINT64_C(0x9e3779b185ebca87);
}

uint64_t hash_block(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t lanes[4] = {1, 2, 3, 4}, words[4];
    for (size_t left = count; left >= sizeof words; left -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (int i = 0; i < 4; i++)
            lanes[i] = round_of(lanes[i], words[i]);
    }
    uint64_t hash = hash_add(HASH_START, at, count % sizeof words);
    for (int i = 0; i < 4; i++)
        hash = round_of(hash, lanes[i]);
    return hash_finish(round_of(hash, count));
}

uint64_t hash_random(void)
{
    uint64_t value = 0;
    while (value == 0)
        BUG_IF(getrandom(&value, sizeof value, 0) != sizeof value);
    return value;
}
