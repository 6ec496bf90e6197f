/* Repeatable chance for tests (splitmix64). The seed is the test's own, so that a failure comes back. */
#ifndef KEDGE_TESTS_DICE_H
#define KEDGE_TESTS_DICE_H

#include <stddef.h>
#include <stdint.h>

struct dice {
    uint64_t state; /* begin with any number */
};

uint64_t dice_u64(struct dice *dice);
uint64_t dice_below(struct dice *dice, uint64_t limit); /* 0 … limit − 1; limit 0 gives 0 */
void dice_bytes(struct dice *dice, void *out, size_t count);

#endif
