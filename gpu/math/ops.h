/*
 * The op table: what a backend must be able to do. The CPU table (gpu/cpu) defines the meaning; CUDA must match it; a shadow table
 * can run both and name the first op that differs.
 *
 * All tensors are dense, row-major, fp32 unless said otherwise; sizes are in elements. Pointers are device pointers from `alloc`
 * (on the CPU plain memory). Unless an op says so, outputs must not alias inputs. `+=` means accumulates into the output.
 * Every op is deterministic: same inputs, same thread count, same machine → same bits (fixed reduction order, no atomics).
 * Every op but the matmuls gives the same bits for any number of threads.
 *
 * Tolerance is the largest ‖error‖ / ‖result‖ allowed against an fp64 reference (tests/helpers/reference.c), in units of eps = 2^-24:
 *
 *   matmul, half, words  2√k, and for each element 2√k · Σ|a||b|     add, scale, gather, scatter     1 (a gain adds 1)
 *   rmsnorm y            4 + √width                                  gather with rule 2              4 + √width
 *   rmsnorm dx, dgain    8 + 2√width, 8 + √rows                      embedding_backward              √rows
 *   rope                 4                                           softmax sum                     8 + √columns
 *   swiglu, both ways    8 (half: and 2^16)                          softmax gradient                8 + √columns, of scale·√rows
 *   attention, cached    8 + 4(√d + √tokens + S), S = max |q||k|/√d; log_sum: the same as an absolute error; half: 2^15 · (4 + S)
 *   adamw                8 for m and v (half, byte: one bit of what is kept), 8 · (|p| + learning rate) for p   column_mean, sum_rows 2, add_rows 1
 *   sum_squares, softmax_loss   in fp64: √n · 2^-52 beside the errors of their inputs
 *   mask_expect          √rank, where noise is not less than 2^-16 of a channel's variance
 *   levels_pack, levels_unpack   a value within 4 eps of the edge of a level may get either code; 4 for what is decoded
 *   mask_channels, mask_largest, mask_put, pack of FP32 and BF16, halve, widen, embedding_forward, copies   exact; int8 and int4 are off by half a code at most
 */
#ifndef KEDGE_MATH_OPS_H
#define KEDGE_MATH_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

struct device; /* a backend's state: threads, primitives, scratch */

/* How the mask codec chooses channels (gpu/math/mask.h): one of each stratum, by Philox. */
struct mask_key {
    uint64_t seed;
    uint64_t step;
    uint32_t micro_batch;
    uint32_t boundary;
};

struct adamw {
    float learning_rate, beta1, beta2, epsilon, weight_decay;
    float gradient_scale;     /* multiplies the gradient before anything else (clipping, 1/targets) */
    float correction1, correction2; /* 1 − beta1^t, 1 − beta2^t */
};

struct ops {
    const char *name; /* "cpu" */

    /* ---- device ---- */
    int (*open)(struct device **device, int threads, struct why *why); /* threads 0 = all cores */
    void (*close)(struct device *device);
    const char *(*describe)(const struct device *device); /* "cpu: avx2, 2 threads, oneDNN 2.6.3" */
    void *(*alloc)(struct device *device, size_t bytes);  /* 64-byte aligned, zeroed; NULL when there is no more */
    void (*free)(struct device *device, void *pointer);
    void (*copy_in)(struct device *device, void *to_device, const void *from_host, size_t bytes);
    void (*copy_out)(struct device *device, void *to_host, const void *from_device, size_t bytes);
    void (*finish)(struct device *device); /* all queued work is done */

    /* ---- matrix products ---- */
    /* c[m,n] (+)= op(a)[m,k] · op(b)[k,n]. transpose_a: a is stored [k,m]; transpose_b: b is stored [n,k].
     * lda, ldb, ldc are the row strides of the stored matrices. accumulate adds to c.
     * At the ends of the range: what is smaller than 2^-126 may count as 0, also as a part of a number or of a product, which is an error
     * of at most 2^-124 · (|a| + |b| + 1) for each a·b; beyond 2^128 − 2^119 a number may count as infinite; and what is not finite makes
     * infinity or NaN of every sum that it is in, of no other. */
    void (*matmul)(struct device *device, float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, int64_t lda,
                   int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate);
    /* The same of operands in bf16; sums are in fp32. */
    void (*matmul_half)(struct device *device, float *c, const uint16_t *a, const uint16_t *b, int64_t m, int64_t n, int64_t k,
                        int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate);
    /* The same of a in fp32 and b in bf16, which loses nothing: b is made fp32 in pieces. */
    void (*matmul_words)(struct device *device, float *c, const float *a, const uint16_t *b, int64_t m, int64_t n, int64_t k,
                         int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate);
    /* NULL where matmul_half is faster than matmul; else why it is not, as the end of a sentence. */
    const char *(*half_is_slow)(const struct device *device);
    void (*halve)(struct device *device, uint16_t *to, const float *from, int64_t count); /* to the nearest bf16, ties to even */
    void (*widen)(struct device *device, float *to, const uint16_t *from, int64_t count);

    /* ---- elementwise and reductions ---- */
    void (*fill)(struct device *device, float *x, float value, int64_t count);
    void (*add)(struct device *device, float *y, const float *x, int64_t count);            /* y += x */
    void (*scale)(struct device *device, float *x, float factor, int64_t count);            /* x *= factor */
    void (*add_rows)(struct device *device, float *y, const float *x, int64_t rows, int64_t width); /* y[r,:] += x[:] */
    void (*sum_rows)(struct device *device, float *sum, const float *x, int64_t rows, int64_t width); /* sum[:] += Σ_r x[r,:] */
    double (*sum_squares)(struct device *device, const float *x, int64_t count);            /* in fp64, fixed order */
    bool (*all_finite)(struct device *device, const float *x, int64_t count);

    /* ---- transformer parts ---- */
    /* y[r,h] = x·inverse[r]·gain[h], inverse[r] = 1/√(mean_h x² + epsilon). */
    void (*rmsnorm_forward)(struct device *device, float *y, float *inverse, const float *x, const float *gain, int64_t rows,
                            int64_t width, float epsilon);
    /* dx[r,h] += …, dgain[h] += Σ_r dy·x·inverse; dgain NULL: it is not wanted. */
    void (*rmsnorm_backward)(struct device *device, float *dx, float *dgain, const float *dy, const float *x, const float *gain,
                             const float *inverse, int64_t rows, int64_t width);
    /* In place on x[sequences·tokens, heads, head_width] with row stride `stride`: halves convention (rotate_half), position =
     * first + row mod tokens, angle = position · frequency[i], i < head_width/2. backward = true turns the other way (its own transpose).
     * `frequency` is host memory. */
    void (*rope)(struct device *device, float *x, const float *frequency, int64_t sequences, int64_t tokens, int64_t first,
                 int64_t heads, int64_t head_width, int64_t stride, bool backward);
    /* Grouped-query causal attention without a tokens×tokens tensor: q[s,t,heads,d], k,v[s,t,kv_heads,d] with row strides (elements
     * between consecutive positions), o[s,t,heads·d] dense, log_sum[s,heads,t] kept for backward. scale = 1/√d.
     * starts[s,t] (host memory, rising within a sequence, ≤ t): the first position that query t sees; NULL = 0 for all.
     * half: products may be of numbers rounded to bf16, where that is faster. */
    void (*attention_forward)(struct device *device, float *o, float *log_sum, const float *q, const float *k, const float *v,
                              int64_t sequences, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t q_stride,
                              int64_t kv_stride, const int32_t *starts, bool half);
    /* One sequence whose keys and values lie in a cache: query i of `tokens`, at position first + i, sees the keys and values of
     * positions 0 … first + i. No log sums: there is no backward. */
    void (*attention_cached)(struct device *device, float *o, const float *q, const float *k, const float *v, int64_t tokens,
                             int64_t first, int64_t heads, int64_t kv_heads, int64_t d, int64_t q_stride, int64_t kv_stride);
    /* dq, dk, dv are overwritten, with the strides of q and k/v. */
    void (*attention_backward)(struct device *device, float *dq, float *dk, float *dv, const float *d_o, const float *o,
                               const float *log_sum, const float *q, const float *k, const float *v, int64_t sequences,
                               int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t q_stride, int64_t kv_stride,
                               const int32_t *starts, bool half);
    /* y[r,f] = silu(gate)·up, where gate_up[r, 2f] holds gate in its first f columns and up in the rest. */
    void (*swiglu_forward)(struct device *device, float *y, const float *gate_up, int64_t rows, int64_t width);
    /* y is made again, for the gradient of what it goes into. d_gate_up may be gate_up, and y dy. */
    void (*swiglu_backward)(struct device *device, float *d_gate_up, float *y, const float *dy, const float *gate_up, int64_t rows,
                            int64_t width);
    /* The same of gate_up in bf16, and so is what they write; sums and products are fp32 in between. */
    void (*swiglu_forward_half)(struct device *device, uint16_t *y, const uint16_t *gate_up, int64_t rows, int64_t width);
    void (*swiglu_backward_half)(struct device *device, uint16_t *d_gate_up, uint16_t *y, const float *dy, const uint16_t *gate_up,
                                 int64_t rows, int64_t width);
    /* y[r,:] = table[id[r],:]; ids are host memory, checked by the caller. */
    void (*embedding_forward)(struct device *device, float *y, const float *table, const uint32_t *ids, int64_t rows,
                              int64_t width);
    void (*embedding_backward)(struct device *device, float *dtable, const float *dy, const uint32_t *ids, int64_t rows,
                               int64_t width); /* dtable[id] += dy */
    /* Cross entropy over a vocabulary that is walked in chunks of columns. First pass, per chunk of logits[rows, columns] that
     * begins at vocabulary entry `first`: running maximum[r], running sum[r] of exp(logit − maximum), target_logit[r] when the target
     * lies in the chunk. Start with maximum = −INFINITY, sum = 0. targets are host memory; UINT32_MAX = not a target. */
    void (*softmax_chunk)(struct device *device, float *maximum, float *sum, float *target_logit, const float *logits,
                          const uint32_t *targets, int64_t rows, int64_t columns, int64_t first);
    /* Second pass, in place: logits ← (softmax − onehot)·scale; rows that are not targets become 0. */
    void (*softmax_backward_chunk)(struct device *device, float *logits, const float *maximum, const float *sum,
                                   const uint32_t *targets, int64_t rows, int64_t columns, int64_t first, float scale);
    /* The same, rounded to bf16: a row's words lie at the beginning of where its logits were, 2·columns words from row to row. */
    void (*softmax_backward_half)(struct device *device, float *logits, const float *maximum, const float *sum,
                                  const uint32_t *targets, int64_t rows, int64_t columns, int64_t first, float scale);
    /* Both passes in one, of a vocabulary that is one chunk: maximum, sum and target_logit are written, and logits become the
     * gradient; with `half` rounded to bf16, as softmax_backward_half leaves it. */
    void (*softmax_whole)(struct device *device, float *maximum, float *sum, float *target_logit, float *logits,
                          const uint32_t *targets, int64_t rows, int64_t columns, float scale, bool half);
    /* Σ over target rows of (maximum + log sum − target_logit), in fp64. */
    double (*softmax_loss)(struct device *device, const float *maximum, const float *sum, const float *target_logit,
                           const uint32_t *targets, int64_t rows);
    /* AdamW with decoupled decay: g = gradient·gradient_scale; m, v moments; p −= lr·(decay·p + (m/c1)/(√(v/c2)+ε)).
     * The gradient is used up: it becomes 0. */
    void (*adamw)(struct device *device, float *parameter, float *gradient, float *m, float *v, int64_t count,
                  const struct adamw *settings);
    /* The same with moments in bf16. They are rounded up or down with the chance that keeps the mean, by a hash of (seed, index):
     * a change that is smaller than their last bit is not lost for ever. The parameter gets the moments as they were before
     * rounding. */
    void (*adamw_half)(struct device *device, float *parameter, float *gradient, uint16_t *m, uint16_t *v, int64_t count,
                       const struct adamw *settings, uint32_t seed);
    /* The same with moments in 8 bits: four or five of exponent, three of mantissa, and the sign of m. Exponents count down from that of
     * the largest of 64 values, whose lowest is in a byte of m_base and v_base [⌈count/64⌉]: m is kept within 2^-16 of its largest, v
     * within 2^-32, and what of v is smaller stays there, since a v of 0 would make a step without bounds. */
    void (*adamw_byte)(struct device *device, float *parameter, float *gradient, uint8_t *m, uint8_t *v, uint8_t *m_base,
                       uint8_t *v_base, int64_t count, const struct adamw *settings, uint32_t seed);

    /* ---- what crosses a boundary (gpu/math/codec.h composes these) ---- */
    /* channels[r, keep]: for row r of the micro-batch (token index = first_row + r), stratum i = channels
     * [⌊i·width/keep⌋, ⌊(i+1)·width/keep⌋), one of them by multiply-high of one 32-bit Philox draw. Host or device order is the
     * same. Exact. */
    void (*mask_channels)(struct device *device, uint16_t *channels, const struct mask_key *key, int64_t rows, int64_t width,
                          int64_t keep, int64_t first_row);
    /* channels[r, keep], rising: those of row r with the largest |x|; of equal ones the first. NaN counts as larger than all. Exact. */
    void (*mask_largest)(struct device *device, uint16_t *channels, const float *x, int64_t rows, int64_t width, int64_t keep);
    /* values[r,i] = (x[r, c] − reference[c]) · gain, c = channels[r,i]; reference NULL = 0. gain_rule: 0 = 1, 1 = width of the stratum
     * (unbiased), 2 = match the norm of the row's residual (1 where the kept values are all 0); row_gain[r] (rule 2) is written. */
    void (*mask_gather)(struct device *device, float *values, float *row_gain, const float *x, const float *reference,
                        const uint16_t *channels, int64_t rows, int64_t width, int64_t keep, int gain_rule);
    /* x[r,:] = reference (NULL = 0), x[r, c] += values[r,i]. */
    void (*mask_scatter)(struct device *device, float *x, const float *values, const float *reference, const uint16_t *channels,
                         int64_t rows, int64_t width, int64_t keep);
    /* Backward of gather∘scatter, the gain being held constant: the gradient values that come back, times the same gain, at the same
     * channels; 0 elsewhere. */
    void (*mask_scatter_gradient)(struct device *device, float *dx, const float *values, const float *row_gain,
                                  const uint16_t *channels, int64_t rows, int64_t width, int64_t keep, int gain_rule);
    /* z[rows, rank] that is expected where x = F·z + e had the values at the channels, z and e being independent, of mean 0, z of
     * variance 1 and e of variance noise[c] > 0: z = F_kᵀ·(F_k·F_kᵀ + N_k)⁻¹·values, with the rows of F[width, rank] and noise[width]
     * that were kept. Solved in fp64. A row with a value that is not finite is not finite. */
    void (*mask_expect)(struct device *device, float *z, const float *values, const uint16_t *channels, const float *factors,
                        const float *noise, int64_t rows, int64_t rank, int64_t width, int64_t keep);
    /* x[r, c] = values[r,i], c = channels[r,i]. */
    void (*mask_put)(struct device *device, float *x, const float *values, const uint16_t *channels, int64_t rows, int64_t width,
                     int64_t keep);
    /* Column means, fp64 accumulation, fixed order. */
    void (*column_mean)(struct device *device, float *mean, const float *x, int64_t rows, int64_t width);
    /* Number formats on the wire, little-endian. values[rows, columns] → bytes, and back. bf16 is rounded to nearest even.
     * int8 and int4 carry one scale per row (bf16, 2 bytes, before the row's codes): the smallest bf16 ≥ max|v|/127 or /7, so
     * that nothing clips; code = v/scale rounded to nearest even; int4 packs two codes a byte, low nibble first, a row padded to a
     * whole byte. A row with a non-finite value gets the scale NaN and decodes to NaN. `packed` is host memory of any alignment. */
    void (*pack)(struct device *device, uint8_t *packed, const float *values, int64_t rows, int64_t columns, int format);
    void (*unpack)(struct device *device, float *values, const uint8_t *packed, int64_t rows, int64_t columns, int format);
    /* Few-bit codes of z[rows, columns] (gpu/math/levels.h): column i has the deviation[i] and bits[i] ≥ 1, both in device memory;
     * row_bytes = 2 + ⌈Σ bits/8⌉. `packed` is host memory of any alignment. */
    void (*levels_pack)(struct device *device, uint8_t *packed, const float *z, const float *deviation, const uint8_t *bits,
                        int64_t rows, int64_t columns, size_t row_bytes);
    void (*levels_unpack)(struct device *device, float *z, const uint8_t *packed, const float *deviation, const uint8_t *bits,
                          int64_t rows, int64_t columns, size_t row_bytes);
};

enum { ADAMW_BLOCK = 64 }; /* values that share a base in adamw_byte */

enum number_format { FORMAT_FP32, FORMAT_BF16, FORMAT_INT8, FORMAT_INT4 }; /* same order as enum boundary_values */

/* Bytes of one packed row. */
size_t ops_packed_row_bytes(int format, int64_t columns);

/* A backend is a shared object beside the program (kedge-cpu.so, kedge-cuda.so) that exports `ops_table`. */
#define OPS_SYMBOL "kedge_ops_v1"
/* Load a backend by name ("cpu") from `folder`; the handle stays for the life of the process. Sets OMP_WAIT_POLICY where it is not
 * set, so no other thread may be changing the environment. */
const struct ops *ops_load(const char *folder, const char *name, struct why *why);

#endif
