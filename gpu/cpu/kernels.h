/*
 * The inner loops of the CPU backend. They know no threads and no device: each works on a range of rows or elements that the
 * caller (vector.c, layer.c, attention.c, mask.c, pack.c) chose. Every kernels_*.c is compiled once for each instruction set
 * and exports one table with that set's suffix; kernels_choose picks the tables that this machine can run.
 *
 * The arguments have the meaning that gpu/math/ops.h gives them. Rounding may differ between instruction sets, integers may
 * not.
 */
#ifndef KEDGE_CPU_KERNELS_H
#define KEDGE_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/math/ops.h"

struct vector_kernels {
    void (*halve)(uint16_t *to, const float *from, int64_t count);
    void (*widen)(float *to, const uint16_t *from, int64_t count);
    void (*fill)(float *x, float value, int64_t count);
    void (*add)(float *y, const float *x, int64_t count);
    void (*scale)(float *x, float factor, int64_t count);
    double (*sum_squares)(const float *x, int64_t count);
    bool (*all_finite)(const float *x, int64_t count);
    void (*add_wide)(double *sum, const float *x, int64_t count); /* sum += x */
    void (*adamw)(float *parameter, float *gradient, float *m, float *v, int64_t count, const struct adamw *settings);
    void (*adamw_half)(float *parameter, float *gradient, uint16_t *m, uint16_t *v, int64_t count,
                       const struct adamw *settings, uint32_t seed, uint32_t first);
    void (*adamw_byte)(float *parameter, float *gradient, uint8_t *m, uint8_t *v, uint8_t *m_base, uint8_t *v_base,
                       int64_t count, const struct adamw *settings, uint32_t seed, uint32_t first);
};

struct layer_kernels {
    void (*rmsnorm_forward)(float *y, float *inverse, const float *x, const float *gain, int64_t rows, int64_t width,
                            float epsilon);
    void (*rmsnorm_backward)(float *dx, float *dgain, const float *dy, const float *x, const float *gain,
                             const float *inverse, int64_t rows, int64_t width);
    /* One position: cosine and sine [head_width/2] are those of its angles. */
    void (*rope)(float *x, const float *cosine, const float *sine, int64_t heads, int64_t head_width, bool backward);
    void (*swiglu_forward)(float *y, const float *gate_up, int64_t rows, int64_t width);
    void (*swiglu_backward)(float *d_gate_up, float *y, const float *dy, const float *gate_up, int64_t rows, int64_t width);
    void (*swiglu_forward_half)(uint16_t *y, const uint16_t *gate_up, int64_t rows, int64_t width);
    void (*swiglu_backward_half)(uint16_t *d_gate_up, uint16_t *y, const float *dy, const uint16_t *gate_up, int64_t rows,
                                 int64_t width);
    void (*softmax_chunk)(float *maximum, float *sum, float *target_logit, const float *logits, const uint32_t *targets,
                          int64_t rows, int64_t columns, int64_t first);
    void (*softmax_backward_chunk)(float *logits, const float *maximum, const float *sum, const uint32_t *targets,
                                   int64_t rows, int64_t columns, int64_t first, float scale);
    void (*softmax_backward_half)(float *logits, const float *maximum, const float *sum, const uint32_t *targets, int64_t rows,
                                  int64_t columns, int64_t first, float scale);
    void (*softmax_whole)(float *maximum, float *sum, float *target_logit, float *logits, const uint32_t *targets, int64_t rows,
                          int64_t columns, float scale, bool half);
};

/* One call of attention, forward or backward. */
struct attention {
    float *o, *log_sum;  /* forward writes them */
    float *dq, *dk, *dv; /* backward writes them */
    const float *q, *k, *v, *d_o, *forward_o, *forward_log_sum;
    int64_t sequences, tokens, heads, kv_heads, d, q_stride, kv_stride;
    const int32_t *starts; /* [sequences, tokens] first key that a query sees; NULL: 0 */
};

enum {
    ATTENTION_BLOCK = 64, /* queries and keys of a tile */
    ATTENTION_PAD = 32,   /* head widths are padded to at most a multiple of this */
};

struct attention_kernels {
    /* One block of queries of one head. */
    void (*forward)(const struct attention *a, int64_t sequence, int64_t head, int64_t block, float *scratch);
    /* All queries of all heads that share one kv head. */
    void (*backward)(const struct attention *a, int64_t sequence, int64_t kv_head, float *scratch);
    /* One query that sees the first `keys` rows of k and v; scores[keys] is scratch. */
    void (*cached)(float *o, const float *q, const float *k, const float *v, int64_t keys, int64_t d, int64_t kv_stride,
                   float *scores);
};

/* Attention with products of bf16 (amx.c), in the same parts for both ways: all queries of all heads that share one kv head. */
struct attention_half_kernels {
    int64_t (*scratch_bytes)(const struct attention *a);
    void (*forward)(const struct attention *a, int64_t sequence, int64_t kv_head, void *scratch);
    void (*backward)(const struct attention *a, int64_t sequence, int64_t kv_head, void *scratch);
};

extern const struct attention_half_kernels amx_attention;
bool amx_runs(void);

/* ---- matrix products in panels (panels.c) ---- */

enum {
    PANEL_ROWS = 32,    /* of an operand that lie together */
    PANEL_DEPTH = 32,   /* packed panels are of multiples of this */
    PANEL_SETTING = 64, /* bytes of what begin keeps for end */
};

/* One side of a product, seen as [rows, depth]. */
struct panel_operand {
    const void *x;
    int64_t stride, rows;
    bool half;        /* x is bf16, else fp32 */
    bool depth_first; /* x is stored [depth, rows], else [rows, depth] */
    bool second;      /* it is the right side */
};

struct panel_kernels {
    bool floats;           /* products of fp32 are theirs too: faster than oneDNN's */
    int64_t depth;         /* that is best added up before c is touched */
    int64_t shared_bytes;  /* most of packed panels that all threads share; at least one of each side's */
    int64_t step_bytes[2]; /* of a packed panel for PANEL_DEPTH of it, of fp32 and of bf16 */
    /* The panel that begins at `row`, from depth `first` on; zero where there is no row. */
    void (*pack)(void *to, const struct panel_operand *operand, int64_t row, int64_t first, int64_t depth);
    /* c[PANEL_ROWS, PANEL_ROWS] (+)= a · b of packed panels; the tile at `next` comes next. */
    void (*multiply)(float *c, const float *next, int64_t c_stride, const void *a, const void *b, const struct panel_operand *first,
                     const struct panel_operand *second, int64_t depth, bool accumulate);
    /* Around them, on each thread. */
    void (*begin)(void *before);
    void (*end)(const void *before);
};

extern const struct panel_kernels amx_panels, avx512_panels;

enum { MASK_PAD = 8 }; /* draw blocks are padded to a multiple of this */

/* Strata of a width, worked out once per call; see gpu/math/mask.h. Stratum 4·block + word is at [word · padded + block];
 * the padding is 0. */
struct mask_strata {
    uint32_t key[2], counter[4]; /* counter 2 and 3 are set */
    const uint64_t *first, *width;
    int64_t keep, padded;
};

struct mask_kernels {
    void (*largest)(uint16_t *channels, const float *x, int64_t rows, int64_t width, int64_t keep, uint32_t *scratch);
    void (*channels)(uint16_t *channels, const struct mask_strata *strata, uint32_t first_token, int64_t rows);
    void (*gather)(float *values, float *row_gain, const float *x, const float *reference, const uint16_t *channels,
                   const float *stratum_gain, int64_t rows, int64_t width, int64_t keep);
    void (*scatter)(float *x, const float *values, const float *reference, const uint16_t *channels, int64_t rows,
                    int64_t width, int64_t keep);
    void (*scatter_gradient)(float *dx, const float *values, const float *row_gain, const uint16_t *channels,
                             const float *stratum_gain, int64_t rows, int64_t width, int64_t keep);
};

enum { EXPECT_PAD = 16 }; /* systems are padded to a multiple of this */

/* What is known of a row beside its mask: factors [width, rank], noise [width]; see mask_expect in gpu/math/ops.h. */
struct mask_law {
    const float *factors, *noise;
    int64_t rank;
};

struct expect_kernels {
    /* scratch: m·n + n² + 2·n, n the smaller of rank and keep, padded, and m the other */
    void (*rows)(float *z, const float *values, const uint16_t *channels, const struct mask_law *law, int64_t rows, int64_t keep,
                 double *scratch);
};

struct pack_kernels {
    void (*pack[4])(uint8_t *packed, const float *values, int64_t rows, int64_t columns); /* by enum number_format */
    void (*unpack[4])(float *values, const uint8_t *packed, int64_t rows, int64_t columns);
};

struct levels_kernels {
    void (*pack)(uint8_t *packed, const float *z, const float *deviation, const uint8_t *bits, int64_t rows, int64_t columns,
                 size_t row_bytes);
    void (*unpack)(float *z, const uint8_t *packed, const float *deviation, const uint8_t *bits, int64_t rows, int64_t columns,
                   size_t row_bytes);
};

extern const struct vector_kernels vector_kernels_base, vector_kernels_avx2, vector_kernels_avx512;
extern const struct layer_kernels layer_kernels_base, layer_kernels_avx2, layer_kernels_avx512;
extern const struct attention_kernels attention_kernels_base, attention_kernels_avx2, attention_kernels_avx512;
extern const struct mask_kernels mask_kernels_base, mask_kernels_avx2, mask_kernels_avx512;
extern const struct expect_kernels expect_kernels_base, expect_kernels_avx2, expect_kernels_avx512;
extern const struct pack_kernels pack_kernels_base, pack_kernels_avx2, pack_kernels_avx512;
extern const struct levels_kernels levels_kernels_base, levels_kernels_avx2, levels_kernels_avx512;

struct kernels {
    const char *isa; /* "base", "avx2", "onednn", "avx512", "amx" */
    const struct vector_kernels *vector;
    const struct layer_kernels *layer;
    const struct attention_kernels *attention;
    const struct mask_kernels *mask;
    const struct expect_kernels *expect;
    const struct pack_kernels *pack;
    const struct levels_kernels *levels;
    const struct panel_kernels *panels; /* of large products; NULL: oneDNN makes all of them */
    bool amx;                           /* there is a matrix unit: amx*.c */
};

/* The best set that this machine runs, or the named one; NULL when it cannot run that one. */
const struct kernels *kernels_choose(const char *isa);

/* In a kernels_*.c: the suffixed name of its table. */
#ifdef KERNEL_ISA
#define KERNEL_JOIN_(name, isa) name##_##isa
#define KERNEL_JOIN(name, isa) KERNEL_JOIN_(name, isa)
#define KERNEL_TABLE(name) KERNEL_JOIN(name, KERNEL_ISA)
#endif

#endif
