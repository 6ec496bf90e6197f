/*
 * Fresh weights: a pure function of (seed, tensor name, element index), so that any split in stages, on any machine, starts
 * from the same model, bit for bit. Only integers and one rounding are used: no logarithm that differs between C libraries.
 * A value is the sum of the eight 16-bit halves of one Philox block, centred and scaled: normal to within what an
 * initialisation can notice (kurtosis 2.85, ends at ±4.9 deviations).
 */
#ifndef KEDGE_MODEL_FRESH_H
#define KEDGE_MODEL_FRESH_H

#include <stdint.h>

/* Elements [first, first + count) of the named tensor, with the given standard deviation. */
void fresh_normal(uint64_t seed, const char *name, uint64_t first, int64_t count, float deviation, float *out);

#endif
