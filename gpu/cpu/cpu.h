/*
 * The CPU backend: the device, and the entries of its op table by file. What each op means is said in gpu/math/ops.h.
 *
 *   cpu.c     the device: memory, threads, scratch, the table      vector.c              plain arrays and AdamW
 *   gemm.c    matrix products, by oneDNN or panels.c               layer.c               norm, rope, …
 *   panels.c  our own products: amx_panels.c, avx512_panels.c      attention.c, amx.c    attention
 *   kernels_*.c  the inner loops, once per instruction set         mask.c, pack.c        boundaries
 *
 * A device belongs to one thread at a time (the worker's compute thread).
 */
#ifndef KEDGE_CPU_CPU_H
#define KEDGE_CPU_CPU_H

#include "gpu/cpu/kernels.h"
#include "gpu/math/ops.h"

struct device {
    int threads;
    const struct kernels *kernels;
    char description[120];
    void *scratch; /* of one op call; grows to the largest that was asked for */
    size_t scratch_bytes;
    float *angles; /* cosine[positions][half], then sine, of the frequencies of the last rope call */
    float *frequency;
    int64_t angle_positions, angle_half;
    struct products *products; /* product.c; NULL before the first */
};

/* For tests: devices opened from now on use this instruction set ("base", "avx2", "onednn": avx512 whose matrix products
 * are all oneDNN's, "avx512", "amx"; NULL = the best). ERR_ABSENT
 * when this machine does not have it. Exported by kedge-cpu.so. */
int cpu_use_isa(const char *isa);

/* For tests: what `cpu_scratch` has come to. Exported. */
size_t cpu_scratch_held(const struct device *device);

/* Memory for the running op, 64-byte aligned, not zeroed; the next call may move it. */
void *cpu_scratch(struct device *device, size_t bytes);
/* How many threads are worth starting for this many elements: 1 or all (in between, libgomp would end and create threads).
 */
int cpu_threads_for(const struct device *device, int64_t elements);

/* gemm.c */
const char *gemm_version(char *out, size_t size); /* "oneDNN 2.6.3" */
void gemm_matmul(struct device *device, float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k,
                 int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate);
void gemm_half(struct device *device, float *c, const uint16_t *a, const uint16_t *b, int64_t m, int64_t n, int64_t k,
               int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate);
void gemm_words(struct device *device, float *c, const float *a, const uint16_t *b, int64_t m, int64_t n, int64_t k,
                int64_t lda, int64_t ldb, int64_t ldc, bool transpose_a, bool transpose_b, bool accumulate);
const char *gemm_half_is_slow(const struct device *device);

/* product.c */
struct product_shape {
    int64_t m, n, k, lda, ldb, ldc, transpose_a, transpose_b, half, accumulate; /* no holes: shapes are compared as bytes */
};

/* c (+)= op(a)·op(b), both fp32 or both bf16; false where this oneDNN has no primitive for it. */
bool product_make(struct device *device, float *c, const void *a, const void *b, const struct product_shape *shape);
void product_close(struct device *device);

/* panels.c, where there are kernels for them: each operand in bf16 (half) or fp32, not a in bf16 and b in fp32 */
void panels_product(struct device *device, float *c, const void *a, const void *b, const struct product_shape *shape, bool half_a,
                    bool half_b, bool accumulate);

/* vector.c */
void vector_halve(struct device *device, uint16_t *to, const float *from, int64_t count);
void vector_widen(struct device *device, float *to, const uint16_t *from, int64_t count);
void vector_fill(struct device *device, float *x, float value, int64_t count);
void vector_add(struct device *device, float *y, const float *x, int64_t count);
void vector_scale(struct device *device, float *x, float factor, int64_t count);
void vector_add_rows(struct device *device, float *y, const float *x, int64_t rows, int64_t width);
void vector_sum_rows(struct device *device, float *sum, const float *x, int64_t rows, int64_t width);
double vector_sum_squares(struct device *device, const float *x, int64_t count);
bool vector_all_finite(struct device *device, const float *x, int64_t count);
void vector_column_mean(struct device *device, float *mean, const float *x, int64_t rows, int64_t width);
void vector_adamw(struct device *device, float *parameter, float *gradient, float *m, float *v, int64_t count,
                  const struct adamw *settings);
void vector_adamw_half(struct device *device, float *parameter, float *gradient, uint16_t *m, uint16_t *v, int64_t count,
                       const struct adamw *settings, uint32_t seed);
void vector_adamw_byte(struct device *device, float *parameter, float *gradient, uint8_t *m, uint8_t *v, uint8_t *m_base,
                       uint8_t *v_base, int64_t count, const struct adamw *settings, uint32_t seed);

/* layer.c */
void layer_rmsnorm_forward(struct device *device, float *y, float *inverse, const float *x, const float *gain, int64_t rows,
                           int64_t width, float epsilon);
void layer_rmsnorm_backward(struct device *device, float *dx, float *dgain, const float *dy, const float *x,
                            const float *gain, const float *inverse, int64_t rows, int64_t width);
void layer_rope(struct device *device, float *x, const float *frequency, int64_t sequences, int64_t tokens, int64_t first,
                int64_t heads, int64_t head_width, int64_t stride, bool backward);
void layer_swiglu_forward(struct device *device, float *y, const float *gate_up, int64_t rows, int64_t width);
void layer_swiglu_backward(struct device *device, float *d_gate_up, float *y, const float *dy, const float *gate_up, int64_t rows,
                           int64_t width);
void layer_swiglu_forward_half(struct device *device, uint16_t *y, const uint16_t *gate_up, int64_t rows, int64_t width);
void layer_swiglu_backward_half(struct device *device, uint16_t *d_gate_up, uint16_t *y, const float *dy, const uint16_t *gate_up,
                                int64_t rows, int64_t width);
void layer_embedding_forward(struct device *device, float *y, const float *table, const uint32_t *ids, int64_t rows,
                             int64_t width);
void layer_embedding_backward(struct device *device, float *dtable, const float *dy, const uint32_t *ids, int64_t rows,
                              int64_t width);
void layer_softmax_chunk(struct device *device, float *maximum, float *sum, float *target_logit, const float *logits,
                         const uint32_t *targets, int64_t rows, int64_t columns, int64_t first);
void layer_softmax_backward_chunk(struct device *device, float *logits, const float *maximum, const float *sum,
                                  const uint32_t *targets, int64_t rows, int64_t columns, int64_t first, float scale);
void layer_softmax_backward_half(struct device *device, float *logits, const float *maximum, const float *sum,
                                 const uint32_t *targets, int64_t rows, int64_t columns, int64_t first, float scale);
void layer_softmax_whole(struct device *device, float *maximum, float *sum, float *target_logit, float *logits,
                         const uint32_t *targets, int64_t rows, int64_t columns, float scale, bool half);
double layer_softmax_loss(struct device *device, const float *maximum, const float *sum, const float *target_logit,
                          const uint32_t *targets, int64_t rows);

/* attention.c */
void attention_forward(struct device *device, float *o, float *log_sum, const float *q, const float *k, const float *v,
                       int64_t sequences, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t q_stride,
                       int64_t kv_stride, const int32_t *starts, bool half);
void attention_backward(struct device *device, float *dq, float *dk, float *dv, const float *d_o, const float *o,
                        const float *log_sum, const float *q, const float *k, const float *v, int64_t sequences,
                        int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t q_stride, int64_t kv_stride,
                        const int32_t *starts, bool half);

void attention_cached(struct device *device, float *o, const float *q, const float *k, const float *v, int64_t tokens,
                      int64_t first, int64_t heads, int64_t kv_heads, int64_t d, int64_t q_stride, int64_t kv_stride);

/* mask.c */
void mask_channels(struct device *device, uint16_t *channels, const struct mask_key *key, int64_t rows, int64_t width,
                   int64_t keep, int64_t first_row);
void mask_largest(struct device *device, uint16_t *channels, const float *x, int64_t rows, int64_t width, int64_t keep);
void mask_gather(struct device *device, float *values, float *row_gain, const float *x, const float *reference,
                 const uint16_t *channels, int64_t rows, int64_t width, int64_t keep, int gain_rule);
void mask_scatter(struct device *device, float *x, const float *values, const float *reference, const uint16_t *channels,
                  int64_t rows, int64_t width, int64_t keep);
void mask_scatter_gradient(struct device *device, float *dx, const float *values, const float *row_gain,
                           const uint16_t *channels, int64_t rows, int64_t width, int64_t keep, int gain_rule);
void mask_expect(struct device *device, float *z, const float *values, const uint16_t *channels, const float *factors,
                 const float *noise, int64_t rows, int64_t rank, int64_t width, int64_t keep);
void mask_put(struct device *device, float *x, const float *values, const uint16_t *channels, int64_t rows, int64_t width,
              int64_t keep);

/* pack.c */
void pack_encode(struct device *device, uint8_t *packed, const float *values, int64_t rows, int64_t columns, int format);
void pack_decode(struct device *device, float *values, const uint8_t *packed, int64_t rows, int64_t columns, int format);
void pack_levels(struct device *device, uint8_t *packed, const float *z, const float *deviation, const uint8_t *bits,
                 int64_t rows, int64_t columns, size_t row_bytes);
void pack_levels_back(struct device *device, float *z, const uint8_t *packed, const float *deviation, const uint8_t *bits,
                      int64_t rows, int64_t columns, size_t row_bytes);

#endif
