/*
 * Causal attention in tiles of 64 keys × 64 queries; nothing of size tokens × tokens exists.
 *
 * Tiles hold the transposed scores, s[key][query]: then the softmax over keys runs down columns, so that its maximum, sum
 * and rescaling are plain vector operations over the 64 queries and no lane is ever added to another one. Of a block of
 * queries only q (and d_o in backward) is transposed, once; keys and values are copied as they are. Copies are padded with
 * zeros to whole tiles: padded keys come after every query and are masked as future, padded queries are never stored and add
 * zero to dk and dv.
 *
 * Where queries do not see all keys before them (starts), tiles that no query of the block sees are left out, and in the others what
 * is not seen is masked like the future. A maximum begins at the lowest finite number, since a query may see nothing of its first
 * tiles.
 *
 * Forward keeps the running maximum m and sum l of each query (online softmax) and stores log_sum = m + ln l; backward makes
 * the same probabilities again as exp(s − log_sum). Sums run over key blocks, heads and query blocks in ascending order.
 */
#include "gpu/cpu/kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "gpu/cpu/kernels_soften.h"

_Static_assert(BLOCK % TILE_ROWS == 0 && BLOCK % TILE_COLUMNS == 0, "tiles fill a block");
_Static_assert(ATTENTION_PAD % TILE_COLUMNS == 0, "tiles fill a padded head");

static int64_t padded_width(int64_t d)
{
    return (d + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS;
}

/* to[BLOCK][padded] = from[rows][d] · factor, zeros around. */
static void load_block(float *restrict to, const float *restrict from, int64_t stride, int64_t rows, int64_t d,
                       int64_t padded, float factor)
{
    for (int64_t r = 0; r < BLOCK; r++, to += padded) {
        int64_t used = r < rows ? d : 0;
        for (int64_t c = 0; c < used; c++)
            to[c] = from[r * stride + c] * factor;
        for (int64_t c = used; c < padded; c++)
            to[c] = 0;
    }
}

/* to[d][BLOCK] = from[BLOCK][padded] turned, as 8 × 8 patches so that neither side jumps far. */
static void turn_block(float *restrict to, const float *restrict from, int64_t d, int64_t padded)
{
    for (int64_t c0 = 0; c0 < d; c0 += 8) {
        int64_t columns = d - c0 < 8 ? d - c0 : 8;
        for (int64_t r0 = 0; r0 < BLOCK; r0 += 8)
            for (int64_t c = c0; c < c0 + columns; c++)
                for (int64_t r = r0; r < r0 + 8; r++)
                    to[c * BLOCK + r] = from[r * padded + c];
    }
}

static void scale_rows(float *x, const float *factor, int64_t padded)
{
    for (int64_t r = 0; r < BLOCK; r++, x += padded)
        for (int64_t c = 0; c < padded; c++)
            x[c] *= factor[r];
}

static void forward(const struct attention *a, int64_t sequence, int64_t head, int64_t block, float *scratch)
{
    const int64_t d = a->d, padded = padded_width(d), area = BLOCK * padded, first = sequence * a->tokens;
    const int64_t kv_head = head / (a->heads / a->kv_heads), rows = rows_of_block(a->tokens, block);
    float *q = scratch, *turned = q + area, *k = turned + area, *v = k + area, *o = v + area, *s = o + area;
    float *maximum = s + BLOCK * BLOCK, *sum = maximum + BLOCK, *shrink = sum + BLOCK;
    load_block(q, a->q + (first + block * BLOCK) * a->q_stride + head * d, a->q_stride, rows, d, padded,
               1.0f / sqrtf((float)d));
    turn_block(turned, q, d, padded);
    memset(o, 0, (size_t)area * sizeof *o);
    for (int i = 0; i < BLOCK; i++) {
        maximum[i] = -FLT_MAX;
        sum[i] = 0;
    }
    struct sight sight = sight_of(a, sequence, block, rows);
    for (int64_t other = sight.from; other <= block; other++) {
        int64_t keys = rows_of_block(a->tokens, other), offset = (first + other * BLOCK) * a->kv_stride + kv_head * d;
        load_block(k, a->k + offset, a->kv_stride, keys, d, padded, 1);
        load_block(v, a->v + offset, a->kv_stride, keys, d, padded, 1);
        bool diagonal = other == block;
        tile_product(s, BLOCK, k, padded, 1, turned, BLOCK, BLOCK, BLOCK, d, false, diagonal ? TILE_UPPER : TILE_WHOLE);
        if (diagonal)
            mask_future(s, -INFINITY);
        if (other < sight.open)
            mask_past(s, other * BLOCK, sight.starts, rows);
        soften(s, maximum, sum, shrink, diagonal);
        scale_rows(o, shrink, padded);
        tile_product(o, padded, s, 1, BLOCK, v, padded, BLOCK, padded, BLOCK, true, diagonal ? TILE_DEPTH_TO : TILE_WHOLE);
    }
    float *out = a->o + ((first + block * BLOCK) * a->heads + head) * d;
    float *log_sum = a->log_sum + (sequence * a->heads + head) * a->tokens + block * BLOCK;
    for (int64_t r = 0; r < rows; r++) {
        float inverse = 1.0f / sum[r];
        for (int64_t c = 0; c < d; c++)
            out[r * a->heads * d + c] = o[r * padded + c] * inverse;
        log_sum[r] = maximum[r] + logf(sum[r]);
    }
}

/* What backward keeps of one block of queries; q is scaled by 1/√d. */
struct query_block {
    float *q, *q_turned, *d_o, *d_o_turned, *dq; /* [BLOCK][padded], turned ones [d][BLOCK] */
    float *log_sum, *along;                      /* along[i] = Σ d_o·o: what the softmax takes back */
    int64_t rows;
};

static void load_queries(const struct attention *a, int64_t sequence, int64_t head, int64_t block, int64_t padded,
                         struct query_block *to)
{
    const int64_t d = a->d, first = sequence * a->tokens + block * BLOCK, dense = a->heads * d;
    const float *d_o = a->d_o + first * dense + head * d, *o = a->forward_o + first * dense + head * d;
    const float *log_sum = a->forward_log_sum + (sequence * a->heads + head) * a->tokens + block * BLOCK;
    to->rows = rows_of_block(a->tokens, block);
    load_block(to->q, a->q + first * a->q_stride + head * d, a->q_stride, to->rows, d, padded, 1.0f / sqrtf((float)d));
    load_block(to->d_o, d_o, dense, to->rows, d, padded, 1);
    turn_block(to->q_turned, to->q, d, padded);
    turn_block(to->d_o_turned, to->d_o, d, padded);
    memset(to->dq, 0, (size_t)(BLOCK * padded) * sizeof *to->dq);
    for (int64_t r = 0; r < BLOCK; r++) {
        float sum = 0;
        int64_t used = r < to->rows ? d : 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < used; c++)
            sum += d_o[r * dense + c] * o[r * dense + c];
        to->along[r] = sum;
        to->log_sum[r] = r < to->rows ? log_sum[r] : 0;
    }
}

static void add_rows(float *restrict to, int64_t stride, const float *restrict from, int64_t rows, int64_t d, int64_t padded)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < d; c++)
            to[r * stride + c] += from[r * padded + c];
}

/* to[rows][d] += aᵀ · b, a [BLOCK][BLOCK]: where it lies, when whole vectors fit there. */
static void add_product(float *to, int64_t stride, const float *a, const float *b, float *scratch, int64_t rows, int64_t d,
                        int64_t padded, enum tile_part part)
{
    if (rows == BLOCK && d == padded && stride % TILE_LANES == 0 && (uintptr_t)to % sizeof(tile_vector) == 0) {
        tile_product(to, stride, a, BLOCK, 1, b, padded, BLOCK, padded, BLOCK, true, part);
        return;
    }
    tile_product(scratch, padded, a, BLOCK, 1, b, padded, BLOCK, padded, BLOCK, false, part);
    add_rows(to, stride, scratch, rows, d, padded);
}

static void backward(const struct attention *a, int64_t sequence, int64_t kv_head, float *scratch)
{
    const int64_t d = a->d, padded = padded_width(d), area = BLOCK * padded, group = a->heads / a->kv_heads;
    const int64_t first = sequence * a->tokens, blocks = (a->tokens + BLOCK - 1) / BLOCK;
    struct query_block at = {.q = scratch,
                             .q_turned = scratch + area,
                             .d_o = scratch + 2 * area,
                             .d_o_turned = scratch + 3 * area,
                             .dq = scratch + 4 * area};
    float *k = scratch + 5 * area, *v = k + area, *sums = v + area, *s = sums + area, *ds = s + BLOCK * BLOCK;
    at.log_sum = ds + BLOCK * BLOCK;
    at.along = at.log_sum + BLOCK;
    for (int64_t r = 0; r < a->tokens; r++)
        for (int64_t c = 0; c < d; c++)
            a->dk[(first + r) * a->kv_stride + kv_head * d + c] = a->dv[(first + r) * a->kv_stride + kv_head * d + c] = 0;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t block = 0; block < blocks; block++) {
            load_queries(a, sequence, head, block, padded, &at);
            struct sight sight = sight_of(a, sequence, block, at.rows);
            for (int64_t other = sight.from; other <= block; other++) {
                int64_t keys = rows_of_block(a->tokens, other),
                        offset = (first + other * BLOCK) * a->kv_stride + kv_head * d;
                load_block(k, a->k + offset, a->kv_stride, keys, d, padded, 1);
                load_block(v, a->v + offset, a->kv_stride, keys, d, padded, 1);
                bool diagonal = other == block;
                enum tile_part upper = diagonal ? TILE_UPPER : TILE_WHOLE, to = diagonal ? TILE_DEPTH_TO : TILE_WHOLE;
                enum tile_part from = diagonal ? TILE_DEPTH_FROM : TILE_WHOLE;
                tile_product(s, BLOCK, k, padded, 1, at.q_turned, BLOCK, BLOCK, BLOCK, d, false, upper);
                tile_product(ds, BLOCK, v, padded, 1, at.d_o_turned, BLOCK, BLOCK, BLOCK, d, false, upper);
                if (diagonal)
                    mask_future(s, -INFINITY);
                if (other < sight.open)
                    mask_past(s, other * BLOCK, sight.starts, at.rows);
                soften_backward(s, ds, at.log_sum, at.along, diagonal);
                add_product(a->dv + offset, a->kv_stride, s, at.d_o, sums, keys, d, padded, from);
                add_product(a->dk + offset, a->kv_stride, ds, at.q, sums, keys, d, padded, from);
                tile_product(at.dq, padded, ds, 1, BLOCK, k, padded, BLOCK, padded, BLOCK, true, to);
            }
            float *dq = a->dq + (first + block * BLOCK) * a->q_stride + head * d, factor = 1.0f / sqrtf((float)d);
            for (int64_t r = 0; r < at.rows; r++)
                for (int64_t c = 0; c < d; c++)
                    dq[r * a->q_stride + c] = at.dq[r * padded + c] * factor;
        }
}

static void cached(float *restrict o, const float *restrict q, const float *restrict k, const float *restrict v,
                   int64_t keys, int64_t d, int64_t kv_stride, float *restrict scores)
{
    float maximum = -INFINITY, sum = 0, factor = 1.0f / sqrtf((float)d);
    for (int64_t j = 0; j < keys; j++) {
        float product = 0;
#pragma omp simd reduction(+ : product)
        for (int64_t c = 0; c < d; c++)
            product += q[c] * k[j * kv_stride + c];
        scores[j] = product * factor;
        maximum = scores[j] > maximum ? scores[j] : maximum;
    }
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = math_exp(scores[j] - maximum);
        sum += scores[j];
    }
    for (int64_t c = 0; c < d; c++)
        o[c] = 0;
    for (int64_t j = 0; j < keys; j++) {
        float weight = scores[j] / sum;
        for (int64_t c = 0; c < d; c++)
            o[c] += weight * v[j * kv_stride + c];
    }
}

const struct attention_kernels KERNEL_TABLE(attention_kernels) = {
    .forward = forward, .backward = backward, .cached = cached};
