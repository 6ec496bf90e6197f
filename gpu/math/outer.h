/*
 * The outer step of DiLoCo on the common copy of the weights, and the merge of the result into the local ones. Element by element in
 * one order: the same inputs give the same bits on every replica. Host memory.
 */
#ifndef KEDGE_MATH_OUTER_H
#define KEDGE_MATH_OUTER_H

#include <stdint.h>

/* out = Σ share[i] · parts[i], in the order of the parts. */
void outer_mean(float *out, const float *const *parts, const float *shares, int count, int64_t elements);
/* SGD with Nesterov momentum; delta points downhill the wrong way, as a gradient does (common copy − local weights):
 * momentum ← μ·momentum + delta; common ← common − rate·(delta + μ·momentum). */
void outer_step(float *common, float *momentum, const float *delta, int64_t count, float rate, float momentum_share);
/* local ← α·local + (1 − α)·common */
void outer_merge(float *local, const float *common, int64_t count, float alpha);

#endif
