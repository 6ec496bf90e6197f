/*
 * What crosses a cut, a second time (gpu/math/codec.h has it first; tests/unit/plan_matches_model.c compares them): bytes
 * of a token in each
 * direction, bytes of a boundary's statistics.
 */
#include <math.h>

#include "scheduler/plan.h"

#define SCALE 2       /* bytes of a token's scale in few-bit codes */
#define MOST_BITS 8   /* of a coefficient */

static int64_t least(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

static int64_t rank_of(const struct profile *p)
{
    return p->rank < 1 ? p->hidden : least(p->rank, p->hidden);
}

/* In that direction. MMSE decoding has them of activations alone. */
static bool has_directions(const struct profile *p, bool backward)
{
    return profile_has_directions(p) && !(backward && p->codec == CODEC_MASK);
}

/* Errors of one way by what the other says: codec_weighs. */
static bool weighs(const struct profile *p)
{
    return p->codec == CODEC_ENTROPY;
}

/* What a reference is made of. */
static uint64_t features_of(const struct profile *p)
{
    if (p->reference == REFERENCE_TOKENS)
        return (uint64_t)(p->context * rank_of(p) + 1);
    return p->reference == REFERENCE_MEAN;
}

/* Rows of all channels beside the reference: directions; with MMSE decoding what variance they leave; projections where they are others. */
static int64_t lines_of(const struct profile *p, bool backward)
{
    int64_t projections = weighs(p) ? rank_of(p) : 0;
    return has_directions(p, backward) ? rank_of(p) + projections + (p->codec == CODEC_MASK) : 0;
}

bool plan_calibrates(const struct profile *p)
{
    if (profile_anchor_measures(p) && plan_state_bytes(p, false))
        return true;
    return profile_has_directions(p) || (p->codec != CODEC_DENSE && p->reference == REFERENCE_TOKENS);
}

int64_t plan_keep(const struct profile *p)
{
    int64_t dense = p->codec == CODEC_MASK ? p->hidden : 4 * p->hidden,
        fewest = 2 * (p->codec == CODEC_TOPK || p->codec == CODEC_HYBRID ? 4 : SCALE + 1);
    if (p->codec == CODEC_DENSE)
        return 0;
    int64_t keep = (int64_t)floor((1 - p->mask_rate) * (double)dense + 0.5);
    if (p->codec == CODEC_MASK)
        return keep < 1 ? 1 : least(keep, dense);
    if (keep < fewest)
        keep = fewest;
    return keep >= dense ? 0 : keep;
}

static int64_t budget_of(const struct profile *p, int64_t keep, bool backward)
{
    int64_t forward = (int64_t)floor((double)keep * p->forward_share + 0.5), budget = backward ? keep - forward : forward;
    return budget > SCALE + 1 ? budget : SCALE + 1;
}

static uint64_t hybrid_bytes(const struct profile *p, int64_t budget)
{
    int64_t half = (budget - SCALE) / 2 < 1 ? 1 : (budget - SCALE) / 2, coded = SCALE + least(half,
                                                                                              rank_of(p) * MOST_BITS / 8);
    uint64_t values = 0;
    for (int64_t count = 1; count <= p->hidden && plan_row_bytes(p->values, count) <= (uint64_t)(budget - coded); count++)
        values = plan_row_bytes(p->values, count);
    return (uint64_t)coded + values;
}

static uint64_t coded_bytes(const struct profile *p, int64_t bytes)
{
    int64_t codes = bytes - SCALE, rank = rank_of(p);
    if (p->codec == CODEC_ENTROPY)
        return (uint64_t)bytes;
    if (p->codec == CODEC_HYBRID)
        return hybrid_bytes(p, bytes);
    if (p->codec == CODEC_PRINCIPAL)
        return (uint64_t)(SCALE + (least(8 * codes / p->bits, rank) * p->bits + 7) / 8);
    return (uint64_t)(SCALE + least(codes, rank * MOST_BITS / 8));
}

static uint64_t topk_bytes(const struct profile *p, int64_t keep, bool backward)
{
    uint64_t bits = 1, values = 0, indices = 0;
    while ((INT64_C(1) << bits) < p->hidden)
        bits++;
    for (int64_t count = 1; count <= p->hidden; count++) {
        uint64_t v = plan_row_bytes(p->values, count), i = ((uint64_t)count * bits + 7) / 8;
        if (count > 1 && 2 * v + i > (uint64_t)keep)
            break;
        values = v;
        indices = i;
    }
    return values + (backward ? 0 : indices);
}

uint64_t plan_token_bytes(const struct profile *p, bool backward)
{
    int64_t keep = plan_keep(p);
    if (!keep || p->codec == CODEC_MASK)
        return plan_row_bytes(p->values, keep ? keep : p->hidden);
    return p->codec == CODEC_TOPK ? topk_bytes(p, keep, backward) : coded_bytes(p, budget_of(p, keep, backward));
}

uint64_t plan_made_bytes(const struct profile *p, bool backward)
{
    int64_t rank = rank_of(p), features = backward || p->codec == CODEC_DENSE ? 0 : (int64_t)features_of(p);
    int64_t directions = has_directions(p, backward) ? 4 * rank + 2 * lines_of(p, backward) * p->hidden : 0;
    int64_t rows = features > 1 ? features - 1 : 0, one = features > 0; /* codec_weights_bytes */
    return (uint64_t)(2 * one * p->hidden + (rows ? 2 * p->hidden + rows * (2 + p->hidden) : 0) + directions);
}

uint64_t plan_state_bytes(const struct profile *p, bool backward)
{
    return plan_made_bytes(p, backward) - (weighs(p) ? 2 * (uint64_t)(rank_of(p) * p->hidden) : 0);
}

/* ---- on disk ---- */

uint64_t plan_saved_boundary(const struct profile *p, bool backward)
{
    uint64_t hidden = (uint64_t)p->hidden, rank = (uint64_t)rank_of(p), features = backward ? 0 : features_of(p);
    bool has = has_directions(p, backward);
    uint64_t directions = has ? rank + (uint64_t)lines_of(p, backward) * hidden : 0, products = has ? hidden * hidden : 0;
    if (plan_state_bytes(p, backward) == 0)
        return 0;
    uint64_t version = 8 + 4 * (directions + features * hidden);
    return 2 * version + 8 + 8 * (1 + features * features + features * hidden + products);
}

uint64_t plan_saved_waiting(const struct profile *p)
{
    uint64_t forward = plan_made_bytes(p, false), backward = plan_made_bytes(p, true);
    uint64_t entries = plan_calibrates(p) ? (uint64_t)(p->late / p->refresh + 2) : 2;
    return 2 * (8 + entries * (24 + (forward > backward ? forward : backward)));
}

/* ---- memory ---- */

static uint64_t kind_memory(const struct profile *p, uint64_t rows, uint64_t slots)
{
    uint64_t cells = rows * (uint64_t)p->hidden, coefficients = 4 * rows * (uint64_t)rank_of(p);
    switch (p->codec) {
    case CODEC_MASK: /* values, gains of slots, channels */
        return 4 * cells + 4 * slots * rows + 2 * cells + (profile_has_directions(p) ? coefficients : 0);
    case CODEC_TOPK: /* values, channels of slots */
        return 4 * cells + 2 * slots * cells;
    case CODEC_HYBRID: /* what is left, values, channels */
        return coefficients + 4 * cells + 4 * cells + 2 * cells;
    case CODEC_ENTROPY: /* on the device and on the host */
        return 2 * coefficients;
    default:
        return profile_has_directions(p) ? coefficients : 0;
    }
}

/* Two versions, and the moments of a new one. */
static uint64_t state_memory(const struct profile *p, bool backward)
{
    uint64_t hidden = (uint64_t)p->hidden, rank = (uint64_t)rank_of(p), vectors = (uint64_t)lines_of(p, backward) * hidden;
    uint64_t tokens = p->reference == REFERENCE_TOKENS ? (uint64_t)p->context * rank : 0;
    uint64_t features = features_of(p);
    bool has = has_directions(p, backward);
    uint64_t products = has ? hidden * hidden : 0, dealt = has ? 5 * rank : 0;
    if (plan_state_bytes(p, backward) == 0)
        return 0;
    if (backward)
        return 8 * vectors + dealt + 4 * products;
    return 8 * (features * hidden + vectors) + dealt + 4 * (tokens * tokens + tokens * hidden + tokens + hidden + products);
}

bool plan_is_one_way(const struct profile *p, int before)
{
    return before <= p->frozen;
}

/* Of fp64 numbers, while so many eigenvectors are looked for (statistics_eigen_numbers). */
static uint64_t eigen_numbers(uint64_t n, uint64_t count)
{
    uint64_t block = count + count / 4 + 8;
    return 2 * block > n ? 2 * n * n : 2 * block * n + block * block + block * count + 2 * block * block;
}

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* fp64 numbers that are summed: of a reference, and products of directions. */
struct sums {
    uint64_t reference, products;
};

static struct sums sums_of(const struct profile *p, bool backward)
{
    uint64_t n = backward ? 0 : features_of(p), hidden = (uint64_t)p->hidden;
    return (struct sums){n * n + n * hidden, has_directions(p, backward) ? hidden * hidden : 0};
}

uint64_t plan_measured_memory(const struct profile *p, bool backward)
{
    struct sums sums = sums_of(p, backward);
    return plan_state_bytes(p, backward) ? 8 * (sums.reference + sums.products) : 0;
}

uint64_t plan_solving_memory(const struct profile *p, bool backward)
{
    bool with_reference = !backward || weighs(p);
    uint64_t hidden = (uint64_t)p->hidden, rank = (uint64_t)rank_of(p), n = with_reference ? features_of(p) : 0;
    uint64_t products = sums_of(p, backward).products, numbers = n * n + n * hidden;
    uint64_t directions = rank * hidden + eigen_numbers(hidden, rank), weight = weighs(p) ? products : 0;
    if (weighs(p))
        directions = products + 2 * rank * hidden + larger(products, eigen_numbers(hidden, rank));
    if (products)
        numbers = products + larger(weight + larger(numbers, 2 * n * hidden), directions);
    return plan_state_bytes(p, backward) ? 8 * numbers + 4 * n * hidden + plan_made_bytes(p, backward) : 0;
}

static uint64_t owner_memory(const struct profile *p, bool backward, bool one_way)
{
    if (one_way && backward)
        return 0;
    return plan_measured_memory(p, backward) + (weighs(p) && !one_way ? plan_measured_memory(p, !backward) : 0) +
           plan_solving_memory(p, backward);
}

static bool looks_at_tokens(const struct profile *p)
{
    return p->reference == REFERENCE_TOKENS && p->codec != CODEC_DENSE;
}

uint64_t plan_cut_memory(const struct profile *p, int slots, bool one_way)
{
    uint64_t rows = (uint64_t)p->micro_batch * (uint64_t)p->sequence, hidden = (uint64_t)p->hidden, scratch = 0;
    bool tokens = looks_at_tokens(p);
    if (profile_has_directions(p) || tokens || (p->codec == CODEC_TOPK && p->reference == REFERENCE_MEAN))
        scratch = 4 * rows * hidden + (tokens ? 4 * (uint64_t)p->context * rows * (uint64_t)rank_of(p) : 0);
    return kind_memory(p, rows, (uint64_t)slots) + state_memory(p, false) + (one_way ? 0 : state_memory(p, true)) + scratch;
}

uint64_t plan_table_memory(const struct profile *p)
{
    return looks_at_tokens(p) && p->stages > 1 ? 4 * ((uint64_t)p->vocabulary + 1) * (uint64_t)rank_of(p) : 0;
}

uint64_t plan_boundary_memory(const struct profile *p, const struct plan_stage *stage)
{
    uint64_t sum = plan_table_memory(p);
    if (stage->stage > 0) {
        bool one_way = plan_is_one_way(p, stage->first_layer);
        sum += plan_cut_memory(p, stage->in_flight, one_way) + owner_memory(p, true, one_way);
    }
    if (stage->stage + 1 < p->stages) {
        bool one_way = plan_is_one_way(p, stage->first_layer + stage->layers);
        sum += plan_cut_memory(p, stage->in_flight, one_way) + owner_memory(p, false, one_way);
    }
    return sum;
}
