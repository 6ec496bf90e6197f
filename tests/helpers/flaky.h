/*
 * A filter for tests: takes and gives as little as it likes. Reads and writes are cut at random lengths, or answered
 * ERR_AGAIN though more could be done; `ready` still comes, as a road promises.
 */
#ifndef KEDGE_TESTS_FLAKY_H
#define KEDGE_TESTS_FLAKY_H

#include <stdint.h>

#include "ssh/link/road.h"

struct road *road_flaky(struct loop *loop, struct road *below, uint64_t seed);

/* The worst of them: every single call is refused once, and then moves one byte or two. */
struct road *road_stingy(struct loop *loop, struct road *below, uint64_t seed);

/* A repeatable stream of numbers, below `below`. */
uint64_t flaky_random(uint64_t *state, uint64_t below);

#endif
