#include "ssh/base/hash.h"

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

uint64_t hash_random(void)
{
    uint64_t value = 0;
    while (value == 0)
        BUG_IF(getrandom(&value, sizeof value, 0) != sizeof value);
    return value;
}
