/*
 * The judge: every op of gpu/math/ops.h in fp64, written to be read, from the formulas and not from gpu/cpu. Backward
 * functions are the derivatives worked out by hand; tests/ops/gradients.c checks the backend's own against differences of
 * the forward ones here. Arguments are those of the op; what an op adds to (+=) is added to here too.
 */
#ifndef KEDGE_TESTS_REFERENCE_H
#define KEDGE_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/math/ops.h"

/* `sizes` gets Σ|a||b| of each element, what rounding errors are measured by; may be NULL. */
void reference_matmul(double *c, double *sizes, const double *a, const double *b, int64_t m, int64_t n, int64_t k,
                      int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate);
void reference_rmsnorm_forward(double *y, double *inverse, const double *x, const double *gain, int64_t rows, int64_t width,
                               double epsilon);
void reference_rmsnorm_backward(double *dx, double *dgain, const double *dy, const double *x, const double *gain,
                                int64_t rows, int64_t width, double epsilon);
void reference_rope(double *x, const float *frequency, int64_t sequences, int64_t tokens, int64_t heads, int64_t head_width,
                    int64_t stride, bool backward);
void reference_swiglu_forward(double *y, const double *gate_up, int64_t rows, int64_t width);
void reference_swiglu_backward(double *d_gate_up, const double *dy, const double *gate_up, int64_t rows, int64_t width);

struct reference_attention {
    int64_t sequences, tokens, heads, kv_heads, d, q_stride, kv_stride;
};
void reference_attention_forward(double *o, double *log_sum, const double *q, const double *k, const double *v,
                                 const struct reference_attention *shape);
void reference_attention_backward(double *dq, double *dk, double *dv, const double *d_o, const double *q, const double *k,
                                  const double *v, const struct reference_attention *shape);

/* Over the whole vocabulary at once. Returns Σ loss of target rows; maximum and sum as the chunked op leaves them. */
double reference_softmax(double *maximum, double *sum, const double *logits, const uint32_t *targets, int64_t rows,
                         int64_t columns);
void reference_softmax_backward(double *d_logits, const double *logits, const uint32_t *targets, int64_t rows,
                                int64_t columns, double scale);
void reference_adamw(double *parameter, const double *gradient, double *m, double *v, int64_t count,
                     const struct adamw *settings);

uint16_t reference_mask_channel(const struct mask_key *key, int64_t token, int64_t stratum, int64_t width, int64_t keep);
/* gain[r, i] of the rule: 0 one, 1 width of the stratum, 2 norm of the row's residual over the norm of what is kept. */
void reference_mask_gain(double *gain, const double *x, const double *reference, const uint16_t *channels, int64_t rows,
                         int64_t width, int64_t keep, int rule);
/* The whole map x → x̂ with the gains given. */
void reference_mask(double *out, const double *x, const double *reference, const double *gain, const uint16_t *channels,
                    int64_t rows, int64_t width, int64_t keep);

#endif
