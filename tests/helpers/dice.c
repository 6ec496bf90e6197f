#include "tests/helpers/dice.h"

uint64_t dice_u64(struct dice *dice)
{
    uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t dice_below(struct dice *dice, uint64_t limit)
{
    return limit ? dice_u64(dice) % limit : 0;
}

void dice_bytes(struct dice *dice, void *out, size_t count)
{
    unsigned char *byte = out;
    for (size_t i = 0; i < count; i++)
        byte[i] = (unsigned char)dice_u64(dice);
}
