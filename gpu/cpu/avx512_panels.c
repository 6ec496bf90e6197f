/*
 * Matrix products in panels where there are vectors of 16 but no matrix unit. Panels are fp32, [depth][PANEL_ROWS], of operands in
 * bf16 too: Intel's AVX-512 BF16 multiplies half as much a cycle as fp32 does (85 against 173 GFLOP/s, measured on one core of a Xeon
 * whose AMX is hidden), so what products of bf16 save there is memory alone. Products of fp32 stay with oneDNN, which is up to a fifth
 * faster.
 */
#include "gpu/cpu/kernels.h"
#include "gpu/cpu/lines.h"

enum {
    LANES = 16,
    TILE_ROWS = 12, /* with two vectors each: 24 sums of 32 registers */
    AHEAD = 64,     /* numbers that are fetched before they are wanted */
};

static inline __m512 load(const struct panel_operand *o, int64_t at, __mmask16 used)
{
    if (o->half)
        return lines_widen(_mm256_maskz_loadu_epi16(used, (const uint16_t *)o->x + at));
    return _mm512_maskz_loadu_ps(used, (const float *)o->x + at);
}

static inline void fetch(const struct panel_operand *o, int64_t at)
{
    _mm_prefetch(o->half ? (const char *)((const uint16_t *)o->x + at) : (const char *)((const float *)o->x + at), _MM_HINT_T0);
}

/* Lines of the panel are lines of x. */
static inline void pack_depth_first(float *to, const struct panel_operand *o, int64_t row, int64_t first, int64_t depth)
{
    __mmask16 low = (__mmask16)lines_mask(o->rows - row, LANES), high = (__mmask16)lines_mask(o->rows - row - LANES, LANES);
    for (int64_t d = 0; d < depth; d++, to += PANEL_ROWS) {
        int64_t at = (first + d) * o->stride + row;
        fetch(o, at + LANES * o->stride);
        fetch(o, at + LANES * o->stride + LANES);
        _mm512_store_ps(to, load(o, at, low));
        _mm512_store_ps(to + LANES, high ? load(o, at + LANES, high) : _mm512_setzero_ps());
    }
}

/* Columns of the panel are lines of x. */
static inline void pack_rows_first(float *to, const struct panel_operand *o, int64_t row, int64_t first, int64_t depth)
{
    __m512i lines[LANES];
    for (int64_t d = 0; d < depth; d += LANES)
        for (int64_t r = 0; r < PANEL_ROWS; r += LANES) {
            __mmask16 used = (__mmask16)lines_mask(depth - d, LANES);
            for (int64_t i = 0; i < LANES; i++) {
                int64_t at = (row + r + i) * o->stride + first + d;
                bool there = row + r + i < o->rows;
                if (there)
                    fetch(o, at + AHEAD);
                lines[i] = there ? (__m512i)load(o, at, used) : _mm512_setzero_si512();
            }
            lines_turn(lines);
            for (int64_t i = 0; i < LANES; i++)
                _mm512_store_si512(to + (d + i) * PANEL_ROWS + r, lines[i]);
        }
}

static void pack(void *to, const struct panel_operand *operand, int64_t row, int64_t first, int64_t depth)
{
    if (operand->depth_first)
        pack_depth_first(to, operand, row, first, depth);
    else
        pack_rows_first(to, operand, row, first, depth);
}

/* c[rows][PANEL_ROWS], a and b [depth][PANEL_ROWS]; rows is a constant, so that all sums are in registers. */
static inline __attribute__((always_inline)) void multiply_rows(float *c, int64_t c_stride, const float *a, const float *b,
                                                                int64_t depth, bool accumulate, int rows)
{
    __m512 sum[TILE_ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        sum[i][0] = accumulate ? _mm512_loadu_ps(c + i * c_stride) : _mm512_setzero_ps();
        sum[i][1] = accumulate ? _mm512_loadu_ps(c + i * c_stride + LANES) : _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < depth; k++, a += PANEL_ROWS, b += PANEL_ROWS) {
        __m512 low = _mm512_load_ps(b), high = _mm512_load_ps(b + LANES);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            __m512 one = _mm512_set1_ps(a[i]);
            sum[i][0] = _mm512_fmadd_ps(one, low, sum[i][0]);
            sum[i][1] = _mm512_fmadd_ps(one, high, sum[i][1]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        _mm512_storeu_ps(c + i * c_stride, sum[i][0]);
        _mm512_storeu_ps(c + i * c_stride + LANES, sum[i][1]);
    }
}

static void multiply(float *c, const float *next, int64_t c_stride, const void *of_a, const void *b,
                     const struct panel_operand *first, const struct panel_operand *second, int64_t depth, bool accumulate)
{
    const float *a = of_a;
    (void)first;
    (void)second;
    for (int64_t r = 0; r < PANEL_ROWS; r++) {
        __builtin_prefetch(next + r * c_stride, 1, 3);
        __builtin_prefetch(next + r * c_stride + LANES, 1, 3);
    }
    multiply_rows(c, c_stride, a, b, depth, accumulate, TILE_ROWS);
    multiply_rows(c + TILE_ROWS * c_stride, c_stride, a + TILE_ROWS, b, depth, accumulate, TILE_ROWS);
    multiply_rows(c + 2 * TILE_ROWS * c_stride, c_stride, a + 2 * TILE_ROWS, b, depth, accumulate, PANEL_ROWS - 2 * TILE_ROWS);
}

static void nothing(void *before)
{
    (void)before;
}

static void nothing_back(const void *before)
{
    (void)before;
}

const struct panel_kernels avx512_panels = {
    .depth = 384, .shared_bytes = 1 << 20, .step_bytes = {PANEL_DEPTH * PANEL_ROWS * 4, PANEL_DEPTH * PANEL_ROWS * 4}, .pack = pack,
    .multiply = multiply, .begin = nothing, .end = nothing_back};
