/*
 * Attention whose products are of bf16, by the matrix unit of newer processors (AMX): the same blocks, masks and softmax as in
 * kernels_attention.c, and the same order of sums. Scores, probabilities' sums and what is added up stay fp32.
 *
 * The unit multiplies a[rows][depth] in bf16 by b, whose words lie in pairs along the depth: b[depth/2][columns] of two words each. So
 * that neither needs turning in the inner loop, keys, values and queries are laid out once per call: plain rows (a), rows turned (a), pairs
 * along the channels (b: turned), pairs along the tokens (b: two rows woven into each other). The output and the gradient of q are made
 * transposed, [channels][queries], and turned at the end of their block.
 */
#include <cpuid.h>
#include <float.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu/cpu/amx.h"
#include "gpu/cpu/kernels.h"
#include "gpu/cpu/kernels_soften.h"

enum {
    DEPTH = AMX_DEPTH,
    TILE = AMX_TILE,
    PAIRS = BLOCK / 2,
    PERMIT = 0x1023,     /* arch_prctl: may this process use … */
    TILE_DATA = 18,      /* … the registers of tiles? */
    AMX_BF16 = 1 << 22,  /* bit of cpuid 7, EDX: not every compiler's __builtin_cpu_supports knows its name */
};

bool amx_runs(void)
{
    unsigned a, b, c, d = 0;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    return d & AMX_BF16 && __builtin_cpu_supports("avx512bf16") && syscall(SYS_arch_prctl, PERMIT, TILE_DATA) == 0;
}

/* Tiles 0–3 are sums, 4 and 5 of a, 6 and 7 of b.
 * c[rows][columns] (+)= a · b; rows and columns are multiples of 32, and so is the depth. */
static void product(float *c, int64_t c_row, const uint16_t *a, int64_t a_row, const uint32_t *b, int64_t b_row, int64_t rows,
                    int64_t columns, int64_t depth, bool accumulate)
{
    amx_written();
    for (int64_t i = 0; i < rows; i += 2 * TILE)
        for (int64_t j = 0; j < columns; j += 2 * TILE) {
            float *to = c + i * c_row + j;
            if (accumulate) {
                _tile_loadd(0, to, c_row * 4);
                _tile_loadd(1, to + TILE, c_row * 4);
                _tile_loadd(2, to + TILE * c_row, c_row * 4);
                _tile_loadd(3, to + TILE * c_row + TILE, c_row * 4);
            } else {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            }
            for (int64_t k = 0; k < depth; k += DEPTH) {
                _tile_loadd(4, a + i * a_row + k, a_row * 2);
                _tile_loadd(5, a + (i + TILE) * a_row + k, a_row * 2);
                _tile_loadd(6, b + k / 2 * b_row + j, b_row * 4);
                _tile_loadd(7, b + k / 2 * b_row + j + TILE, b_row * 4);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            _tile_stored(0, to, c_row * 4);
            _tile_stored(1, to + TILE, c_row * 4);
            _tile_stored(2, to + TILE * c_row, c_row * 4);
            _tile_stored(3, to + TILE * c_row + TILE, c_row * 4);
        }
}

/* ---- layouts of one block; around what is used they are zero ---- */

typedef uint32_t pair __attribute__((may_alias));

/* to[BLOCK][padded] = from[rows][d] · factor */
static void load_rows(uint16_t *restrict to, const float *restrict from, int64_t stride, int64_t rows, int64_t d, int64_t padded,
                      float factor)
{
    memset(to, 0, (size_t)(BLOCK * padded) * sizeof *to);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < d; c++)
            to[r * padded + c] = math_to_half(from[r * stride + c] * factor);
}

/* to[padded/2][BLOCK]: pairs of channels of each token. */
static void turn_pairs(uint32_t *restrict to, const uint16_t *restrict rows, int64_t padded)
{
    const pair *from = (const pair *)rows;
    for (int64_t c0 = 0; c0 < padded / 2; c0 += 16)
        for (int64_t r0 = 0; r0 < BLOCK; r0 += 16)
            for (int64_t c = c0; c < c0 + 16; c++)
                for (int64_t r = r0; r < r0 + 16; r++)
                    to[c * BLOCK + r] = from[r * (padded / 2) + c];
}

/* to[BLOCK/2][columns]: pairs of tokens of each channel. */
static void weave_pairs(uint32_t *restrict to, const uint16_t *restrict rows, int64_t columns)
{
    for (int64_t r = 0; r < PAIRS; r++)
        for (int64_t c = 0; c < columns; c++)
            to[r * columns + c] = rows[2 * r * columns + c] | (uint32_t)rows[(2 * r + 1) * columns + c] << 16;
}

/* to[padded][BLOCK] = rows turned */
static void turn_rows(uint16_t *restrict to, const uint16_t *restrict rows, int64_t padded)
{
    for (int64_t c0 = 0; c0 < padded; c0 += 16)
        for (int64_t r0 = 0; r0 < BLOCK; r0 += 16)
            for (int64_t c = c0; c < c0 + 16; c++)
                for (int64_t r = r0; r < r0 + 16; r++)
                    to[c * BLOCK + r] = rows[r * padded + c];
}

/* words[BLOCK][BLOCK] of a tile of fp32 */
static void halve_tile(uint16_t *restrict words, const float *restrict tile)
{
    for (int64_t i = 0; i < BLOCK * BLOCK; i += DEPTH) {
        __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(tile + i + TILE), _mm512_loadu_ps(tile + i));
        memcpy(words + i, &both, sizeof both);
    }
}

/* to[rows][d] with a stride, of from[padded][BLOCK] turned · factor of each row */
static void store_turned(float *restrict to, int64_t stride, const float *restrict from, const float *restrict factor, int64_t rows,
                         int64_t d)
{
    for (int64_t c0 = 0; c0 < d; c0 += 16)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = c0; c < d && c < c0 + 16; c++)
                to[r * stride + c] = from[c * BLOCK + r] * factor[r];
}

/* ---- scratch, cut from one piece ---- */

static void *cut(uint8_t **at, int64_t bytes)
{
    void *piece = *at;
    *at += (bytes + 63) / 64 * 64;
    return piece;
}

static int64_t padded_width(int64_t d)
{
    return (d + DEPTH - 1) / DEPTH * DEPTH;
}

/* What the larger of both kernels carves out for one thread. */
static int64_t scratch_bytes(const struct attention *a)
{
    int64_t padded = padded_width(a->d), blocks = (a->tokens + BLOCK - 1) / BLOCK, area = BLOCK * padded;
    return blocks * area * (3 * 2 + 2 * 4) + area * (2 * 2 + 4 * 2 + 4) + BLOCK * BLOCK * (2 * 4 + 2 * 2 + 2) + 4096;
}

/* ---- forward: all queries of the heads of one kv head ---- */

static void scale_columns(float *restrict x, const float *restrict factor, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < BLOCK; c++)
            x[r * BLOCK + c] *= factor[c];
}

struct forward_scratch {
    uint16_t *k, *v_turned, *rows; /* [blocks][BLOCK][padded], [blocks][padded][BLOCK], [BLOCK][padded] */
    uint32_t *q_pairs, *p_pairs;   /* [padded/2][BLOCK], [BLOCK/2][BLOCK] */
    uint16_t *p;                   /* [BLOCK][BLOCK] */
    float *s, *o;                  /* [BLOCK][BLOCK], [padded][BLOCK] */
};

static void forward_block(const struct attention *a, int64_t sequence, int64_t head, int64_t block, const struct forward_scratch *x)
{
    const int64_t d = a->d, padded = padded_width(d), first = sequence * a->tokens + block * BLOCK;
    const int64_t rows = rows_of_block(a->tokens, block), dense = a->heads * d;
    float maximum[BLOCK], sum[BLOCK], shrink[BLOCK];
    load_rows(x->rows, a->q + first * a->q_stride + head * d, a->q_stride, rows, d, padded, 1.0f / sqrtf((float)d));
    turn_pairs(x->q_pairs, x->rows, padded);
    memset(x->o, 0, (size_t)(BLOCK * padded) * sizeof *x->o);
    for (int i = 0; i < BLOCK; i++) {
        maximum[i] = -FLT_MAX;
        sum[i] = 0;
    }
    struct sight sight = sight_of(a, sequence, block, rows);
    for (int64_t other = sight.from; other <= block; other++) {
        bool diagonal = other == block;
        product(x->s, BLOCK, x->k + other * BLOCK * padded, padded, x->q_pairs, BLOCK, BLOCK, BLOCK, padded, false);
        if (diagonal)
            mask_future(x->s, -INFINITY);
        if (other < sight.open)
            mask_past(x->s, other * BLOCK, sight.starts, rows);
        soften(x->s, maximum, sum, shrink, false);
        halve_tile(x->p, x->s);
        weave_pairs(x->p_pairs, x->p, BLOCK);
        scale_columns(x->o, shrink, padded);
        product(x->o, BLOCK, x->v_turned + other * BLOCK * padded, BLOCK, x->p_pairs, BLOCK, padded, BLOCK, BLOCK, true);
    }
    float *log_sum = a->log_sum + (sequence * a->heads + head) * a->tokens + block * BLOCK;
    for (int64_t r = 0; r < rows; r++) {
        log_sum[r] = maximum[r] + logf(sum[r]);
        sum[r] = 1.0f / sum[r];
    }
    store_turned(a->o + first * dense + head * d, dense, x->o, sum, rows, d);
}

static void forward(const struct attention *a, int64_t sequence, int64_t kv_head, void *scratch)
{
    const int64_t d = a->d, padded = padded_width(d), area = BLOCK * padded, group = a->heads / a->kv_heads;
    const int64_t blocks = (a->tokens + BLOCK - 1) / BLOCK;
    uint8_t *at = scratch;
    struct forward_scratch x = {.k = cut(&at, blocks * area * 2), .v_turned = cut(&at, blocks * area * 2), .rows = cut(&at, area * 2),
                                .q_pairs = cut(&at, area * 2), .p_pairs = cut(&at, BLOCK * BLOCK * 2), .p = cut(&at, BLOCK * BLOCK * 2),
                                .s = cut(&at, BLOCK * BLOCK * 4), .o = cut(&at, area * 4)};
    struct amx_setting before;
    amx_begin(&before);
    for (int64_t block = 0; block < blocks; block++) {
        int64_t offset = (sequence * a->tokens + block * BLOCK) * a->kv_stride + kv_head * d, rows = rows_of_block(a->tokens, block);
        load_rows(x.k + block * area, a->k + offset, a->kv_stride, rows, d, padded, 1);
        load_rows(x.rows, a->v + offset, a->kv_stride, rows, d, padded, 1);
        turn_rows(x.v_turned + block * area, x.rows, padded);
    }
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t block = 0; block < blocks; block++)
            forward_block(a, sequence, head, block, &x);
    amx_end(&before);
}

/* ---- backward: the same ---- */

struct backward_scratch {
    uint16_t *k, *k_turned, *v;              /* of all blocks */
    float *dk, *dv;                          /* [blocks][BLOCK][padded] */
    uint16_t *rows;                          /* [BLOCK][padded] */
    uint32_t *q_turned, *q_woven, *d_o_turned, *d_o_woven; /* pairs of a block of queries */
    float *dq;                               /* [padded][BLOCK] */
    float *s, *ds;                           /* [BLOCK][BLOCK] */
    uint16_t *p, *dp;                        /* the same in bf16 */
    uint32_t *dp_pairs;                      /* [BLOCK/2][BLOCK] */
};

/* along[i] = Σ d_o·o: what the softmax takes back. */
static void load_queries(const struct attention *a, int64_t sequence, int64_t head, int64_t block, const struct backward_scratch *x,
                         float log_sum[BLOCK], float along[BLOCK])
{
    const int64_t d = a->d, padded = padded_width(d), first = sequence * a->tokens + block * BLOCK, dense = a->heads * d;
    const int64_t rows = rows_of_block(a->tokens, block);
    const float *d_o = a->d_o + first * dense + head * d, *o = a->forward_o + first * dense + head * d;
    const float *sums = a->forward_log_sum + (sequence * a->heads + head) * a->tokens + block * BLOCK;
    load_rows(x->rows, a->q + first * a->q_stride + head * d, a->q_stride, rows, d, padded, 1.0f / sqrtf((float)d));
    turn_pairs(x->q_turned, x->rows, padded);
    weave_pairs(x->q_woven, x->rows, padded);
    load_rows(x->rows, d_o, dense, rows, d, padded, 1);
    turn_pairs(x->d_o_turned, x->rows, padded);
    weave_pairs(x->d_o_woven, x->rows, padded);
    memset(x->dq, 0, (size_t)(BLOCK * padded) * sizeof *x->dq);
    for (int64_t r = 0; r < BLOCK; r++) {
        float sum = 0;
        int64_t used = r < rows ? d : 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < used; c++)
            sum += d_o[r * dense + c] * o[r * dense + c];
        along[r] = sum;
        log_sum[r] = r < rows ? sums[r] : 0;
    }
}

static void backward_block(const struct attention *a, int64_t sequence, int64_t head, int64_t block, const struct backward_scratch *x)
{
    const int64_t d = a->d, padded = padded_width(d), area = BLOCK * padded, first = sequence * a->tokens + block * BLOCK;
    const int64_t rows = rows_of_block(a->tokens, block);
    float log_sum[BLOCK], along[BLOCK], factor[BLOCK];
    load_queries(a, sequence, head, block, x, log_sum, along);
    struct sight sight = sight_of(a, sequence, block, rows);
    for (int64_t other = sight.from; other <= block; other++) {
        bool diagonal = other == block;
        product(x->s, BLOCK, x->k + other * area, padded, x->q_turned, BLOCK, BLOCK, BLOCK, padded, false);
        product(x->ds, BLOCK, x->v + other * area, padded, x->d_o_turned, BLOCK, BLOCK, BLOCK, padded, false);
        if (diagonal)
            mask_future(x->s, -INFINITY);
        if (other < sight.open)
            mask_past(x->s, other * BLOCK, sight.starts, rows);
        soften_backward(x->s, x->ds, log_sum, along, false);
        halve_tile(x->p, x->s);
        halve_tile(x->dp, x->ds);
        weave_pairs(x->dp_pairs, x->dp, BLOCK);
        product(x->dv + other * area, padded, x->p, BLOCK, x->d_o_woven, padded, BLOCK, padded, BLOCK, true);
        product(x->dk + other * area, padded, x->dp, BLOCK, x->q_woven, padded, BLOCK, padded, BLOCK, true);
        product(x->dq, BLOCK, x->k_turned + other * area, BLOCK, x->dp_pairs, BLOCK, padded, BLOCK, BLOCK, true);
    }
    for (int i = 0; i < BLOCK; i++)
        factor[i] = 1.0f / sqrtf((float)d);
    store_turned(a->dq + first * a->q_stride + head * d, a->q_stride, x->dq, factor, rows, d);
}

static void backward(const struct attention *a, int64_t sequence, int64_t kv_head, void *scratch)
{
    const int64_t d = a->d, padded = padded_width(d), area = BLOCK * padded, group = a->heads / a->kv_heads;
    const int64_t blocks = (a->tokens + BLOCK - 1) / BLOCK, tile = BLOCK * BLOCK;
    uint8_t *at = scratch;
    struct backward_scratch x = {
        .k = cut(&at, blocks * area * 2), .k_turned = cut(&at, blocks * area * 2), .v = cut(&at, blocks * area * 2),
        .dk = cut(&at, blocks * area * 4), .dv = cut(&at, blocks * area * 4), .rows = cut(&at, area * 2),
        .q_turned = cut(&at, area * 2), .q_woven = cut(&at, area * 2), .d_o_turned = cut(&at, area * 2),
        .d_o_woven = cut(&at, area * 2), .dq = cut(&at, area * 4), .s = cut(&at, tile * 4), .ds = cut(&at, tile * 4),
        .p = cut(&at, tile * 2), .dp = cut(&at, tile * 2), .dp_pairs = cut(&at, tile * 2)};
    struct amx_setting before;
    amx_begin(&before);
    memset(x.dk, 0, (size_t)(blocks * area) * sizeof *x.dk);
    memset(x.dv, 0, (size_t)(blocks * area) * sizeof *x.dv);
    for (int64_t block = 0; block < blocks; block++) {
        int64_t offset = (sequence * a->tokens + block * BLOCK) * a->kv_stride + kv_head * d, rows = rows_of_block(a->tokens, block);
        load_rows(x.k + block * area, a->k + offset, a->kv_stride, rows, d, padded, 1);
        turn_rows(x.k_turned + block * area, x.k + block * area, padded);
        load_rows(x.v + block * area, a->v + offset, a->kv_stride, rows, d, padded, 1);
    }
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t block = 0; block < blocks; block++)
            backward_block(a, sequence, head, block, &x);
    for (int64_t r = 0; r < a->tokens; r++) {
        int64_t to = (sequence * a->tokens + r) * a->kv_stride + kv_head * d;
        memcpy(a->dk + to, x.dk + r * padded, (size_t)d * sizeof *x.dk);
        memcpy(a->dv + to, x.dv + r * padded, (size_t)d * sizeof *x.dv);
    }
    amx_end(&before);
}

const struct attention_half_kernels amx_attention = {.scratch_bytes = scratch_bytes, .forward = forward, .backward = backward};
