/*
 * Operands of products as the matrix unit wants them. A tile of the first operand holds 16 rows of 32 words; one of the second
 * holds 16 pairs along the depth of 16 rows: the same 32-bit words, turned. So a tile is made in the way that suits how the numbers
 * are stored and turned where that is not the way it is wanted.
 */
#include "gpu/cpu/amx.h"
#include "gpu/cpu/lines.h"

enum { AHEAD = 2 * AMX_DEPTH }; /* depth that is fetched before it is wanted: panels are too narrow for the processor to guess */

/* A tile while it is made: [word][16] registers. */
struct tile {
    __m512i lines[AMX_WORDS][AMX_TILE];
};

/* The nearest bf16 of 32 numbers, then of what is left of them. Of an infinity nothing is left but NaN. */
static inline void split(struct tile *tile, int line, __m512 low, __m512 high, int words)
{
    for (int w = 0; w < words; w++) {
        __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        tile->lines[w][line] = rounded;
        if (w + 1 < words) {
            low = _mm512_sub_ps(low, lines_widen(_mm512_castsi512_si256(rounded)));
            high = _mm512_sub_ps(high, lines_widen(_mm512_extracti64x4_epi64(rounded, 1)));
        }
    }
}

/* Lines are rows: 32 numbers along the depth. */
static inline void load_rows(struct tile *tile, const struct panel_operand *o, int64_t row, int64_t first, int64_t depth, int words)
{
    uint32_t mask = lines_mask(depth, AMX_DEPTH);
    for (int i = 0; i < AMX_TILE; i++) {
        uint32_t used = row + i < o->rows ? mask : 0;
        int64_t at = row + i < o->rows ? (row + i) * o->stride + first : 0;
        if (o->half) {
            _mm_prefetch((const char *)((const uint16_t *)o->x + at + AHEAD), _MM_HINT_T0);
            tile->lines[0][i] = _mm512_maskz_loadu_epi16(used, (const uint16_t *)o->x + at);
            continue;
        }
        const float *x = (const float *)o->x + at;
        _mm_prefetch((const char *)(x + AHEAD), _MM_HINT_T0);
        _mm_prefetch((const char *)(x + AHEAD + AMX_TILE), _MM_HINT_T0);
        __m512 low = _mm512_maskz_loadu_ps((__mmask16)used, x), high = _mm512_maskz_loadu_ps((__mmask16)(used >> 16), x + AMX_TILE);
        split(tile, i, low, high, words);
    }
}

/* Lines are pairs along the depth of 16 rows: two stored lines, woven. */
static inline void load_pairs(struct tile *tile, const struct panel_operand *o, int64_t row, int64_t first, int64_t depth, int words)
{
    const __m512i weave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19,
                                           3, 18, 2, 17, 1, 16, 0);
    __mmask16 mask = (__mmask16)lines_mask(o->rows - row, AMX_TILE);
    for (int i = 0; i < AMX_TILE; i++) {
        bool two = 2 * i + 1 < depth, one = 2 * i < depth;
        int64_t low_at = one ? (first + 2 * i) * o->stride + row : 0, high_at = two ? low_at + o->stride : 0;
        __mmask16 low_mask = one ? mask : 0, high_mask = two ? mask : 0;
        if (o->half) {
            const uint16_t *x = o->x;
            _mm_prefetch((const char *)(x + low_at + AHEAD * o->stride), _MM_HINT_T0);
            _mm_prefetch((const char *)(x + high_at + AHEAD * o->stride), _MM_HINT_T0);
            __m256i low = _mm256_maskz_loadu_epi16(low_mask, x + low_at), high = _mm256_maskz_loadu_epi16(high_mask, x + high_at);
            tile->lines[0][i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        } else {
            const float *x = o->x;
            _mm_prefetch((const char *)(x + low_at + AHEAD * o->stride), _MM_HINT_T0);
            _mm_prefetch((const char *)(x + high_at + AHEAD * o->stride), _MM_HINT_T0);
            split(tile, i, _mm512_maskz_loadu_ps(low_mask, x + low_at), _mm512_maskz_loadu_ps(high_mask, x + high_at), words);
        }
        for (int w = 0; w < words; w++)
            tile->lines[w][i] = _mm512_permutexvar_epi16(weave, tile->lines[w][i]);
    }
}

static inline __attribute__((always_inline)) void pack(uint16_t *to, const struct panel_operand *o, int64_t row, int64_t first,
                                                       int64_t depth, int words)
{
    struct tile tile;
    for (int64_t d = 0; d < depth; d += AMX_DEPTH, to += words * AMX_STEP)
        for (int half = 0; half < 2; half++) {
            if (o->depth_first)
                load_pairs(&tile, o, row + half * AMX_TILE, first + d, depth - d, words);
            else
                load_rows(&tile, o, row + half * AMX_TILE, first + d, depth - d, words);
            for (int w = 0; w < words; w++) {
                if (o->depth_first != o->second)
                    lines_turn(tile.lines[w]);
                for (int i = 0; i < AMX_TILE; i++)
                    _mm512_store_si512(to + (2 * w + half) * AMX_TILE * AMX_DEPTH + i * AMX_DEPTH, tile.lines[w][i]);
            }
        }
}

void amx_pack_panel(void *to, const struct panel_operand *operand, int64_t row, int64_t first, int64_t depth)
{
    if (operand->half)
        pack(to, operand, row, first, depth, 1);
    else
        pack(to, operand, row, first, depth, AMX_WORDS);
}
