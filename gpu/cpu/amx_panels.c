/*
 * Matrix products on the matrix unit. Operands in fp32 are split in three bf16 words each (amx_pack.c); of the nine products of
 * words the six are made that an fp32 can see: a3·b1, a2·b1, a2·b2, a1·b2, a1·b3, a1·b1. All sums are fp32. So an fp32 product costs
 * six times one of bf16 and is still more than twice as fast as the vector units could ever be.
 */
#include "gpu/cpu/amx.h"

/* ---- one tile of 32 × 32: sums in tiles 0–3, the first operand in 4 and 5, the second in 6 and 7 ---- */

static inline void load_first(const uint16_t *a)
{
    _tile_loadd(4, a, 64);
    _tile_loadd(5, a + AMX_TILE * AMX_DEPTH, 64);
}

static inline void load_second(const uint16_t *b)
{
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + AMX_TILE * AMX_DEPTH, 64);
}

static inline void multiply(void)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

enum { FIRST = 0, SECOND = AMX_STEP, THIRD = 2 * AMX_STEP }; /* where the words lie */

/* Of three words and one. Small products come first. */
static inline void multiply_left(const uint16_t *a, const uint16_t *b)
{
    load_second(b);
    load_first(a + THIRD);
    multiply();
    load_first(a + SECOND);
    multiply();
    load_first(a + FIRST);
    multiply();
}

/* Of three words each; every step changes one side only. */
static inline void multiply_both(const uint16_t *a, const uint16_t *b)
{
    load_second(b + FIRST);
    load_first(a + THIRD);
    multiply();
    load_first(a + SECOND);
    multiply();
    load_second(b + SECOND);
    multiply();
    load_first(a + FIRST);
    multiply();
    load_second(b + THIRD);
    multiply();
    load_second(b + FIRST);
    multiply();
}

/* Lines of a tile of c that will soon be wanted, `part` of `parts`. */
static inline void fetch(const float *c, int64_t c_stride, int64_t part, int64_t parts)
{
    for (int64_t r = part * PANEL_ROWS / parts; r < (part + 1) * PANEL_ROWS / parts; r++) {
        __builtin_prefetch(c + r * c_stride, 1, 3);
        __builtin_prefetch(c + r * c_stride + AMX_TILE, 1, 3);
    }
}

static void multiply_panels(float *c, const float *next, int64_t c_stride, const void *of_a, const void *of_b,
                            const struct panel_operand *first, const struct panel_operand *second, int64_t depth, bool accumulate)
{
    float *low = c + AMX_TILE * c_stride;
    const uint16_t *a = of_a, *b = of_b;
    int64_t steps = (depth + AMX_DEPTH - 1) / AMX_DEPTH;
    int a_words = amx_words(first), b_words = amx_words(second);
    amx_written();
    if (accumulate) {
        _tile_loadd(0, c, c_stride * 4);
        _tile_loadd(1, c + AMX_TILE, c_stride * 4);
        _tile_loadd(2, low, c_stride * 4);
        _tile_loadd(3, low + AMX_TILE, c_stride * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < steps; i++, a += a_words * AMX_STEP, b += b_words * AMX_STEP) {
        fetch(next, c_stride, i, steps);
        if (b_words == AMX_WORDS) {
            multiply_both(a, b);
        } else if (a_words == AMX_WORDS) {
            multiply_left(a, b);
        } else {
            load_first(a);
            load_second(b);
            multiply();
        }
    }
    _tile_stored(0, c, c_stride * 4);
    _tile_stored(1, c + AMX_TILE, c_stride * 4);
    _tile_stored(2, low, c_stride * 4);
    _tile_stored(3, low + AMX_TILE, c_stride * 4);
}

static void begin(void *before)
{
    amx_begin(before);
}

static void end(const void *before)
{
    amx_end(before);
}

_Static_assert(sizeof(struct amx_setting) == PANEL_SETTING, "room for what was set before");

const struct panel_kernels amx_panels = {
    .floats = true, .depth = 512, .shared_bytes = 8 << 20, .step_bytes = {AMX_WORDS * AMX_STEP * 2, AMX_STEP * 2},
    .pack = amx_pack_panel, .multiply = multiply_panels, .begin = begin, .end = end};
