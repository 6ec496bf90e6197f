/*
 * The matrix unit of newer processors (AMX) with all tiles whole: 16 rows of 64 bytes. For files that are compiled for it: amx.c
 * (attention), amx_pack.c and amx_panels.c (matrix products).
 */
#ifndef KEDGE_CPU_AMX_H
#define KEDGE_CPU_AMX_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/cpu/kernels.h"

enum {
    AMX_DEPTH = 32, /* bf16 of a tile's row */
    AMX_TILE = 16,  /* rows of a tile, and fp32 of its row */
};

struct amx_setting {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* What was set before is oneDNN's business and comes back. The setting is constant because compilers believe that only its first
 * bytes are read and leave out what would be stored in the rest of a variable. */
static inline void amx_begin(struct amx_setting *before)
{
    static const struct amx_setting whole = {.palette = 1,
                                             .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                             .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_storeconfig(before);
    _tile_loadconfig(&whole);
}

/* Before tiles are loaded from memory that was written otherwise: compilers do not know that loads read it. */
static inline void amx_written(void)
{
    __asm__ volatile("" ::: "memory");
}

static inline void amx_end(const struct amx_setting *before)
{
    _tile_loadconfig(before);
}

/* ---- operands of products, laid out for the unit (amx_pack.c) ---- */

enum {
    AMX_WORDS = 3,                     /* bf16 that stand for one fp32 */
    AMX_STEP = PANEL_ROWS * AMX_DEPTH, /* bf16 of a panel for one tile's depth and one word */
};
_Static_assert((int)PANEL_ROWS == 2 * AMX_TILE && (int)PANEL_DEPTH == AMX_DEPTH, "a panel is two tiles");

/* An fp32 in three words is x = x1 + x2 + x3, each the nearest bf16 to what the ones before it leave: exact, but for what is smaller
 * than bf16's smallest normal number. */
static inline int amx_words(const struct panel_operand *operand)
{
    return operand->half ? 1 : AMX_WORDS;
}

/* to[⌈depth/32⌉][words][2 tiles]; the second operand's numbers lie in pairs along the depth. Zero where there is no row or depth. */
void amx_pack_panel(void *to, const struct panel_operand *operand, int64_t row, int64_t first, int64_t depth);

#endif
