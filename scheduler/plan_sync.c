/* What siblings exchange, and what it costs to keep: arithmetic on the profile, by the formulas of gpu/train (a test compares them). */
#include "scheduler/plan.h"
#include "ssh/wire/frame.h"
#include "ssh/wire/wire.h"

struct matrix {
    uint64_t rows, columns;
    bool table; /* embedding or head */
};

struct sum {
    const struct profile *profile;
    uint64_t bytes, memory, scratch;
    int only;       /* this fragment; −1 = all */
    uint64_t state; /* what one that joins copies of it */
    uint64_t longer; /* in one round, more than the mean that `bytes` is */
    uint64_t bound;  /* of one exchange */
    uint64_t largest; /* numbers of a tensor */
};

enum { EVERY_FRAGMENT = -1 };

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

static uint64_t value_bytes(int payload, uint64_t rows, uint64_t columns)
{
    uint64_t rest = columns % 64;
    switch (payload) {
    case SEND_FP32:
        return 4 * rows * columns;
    case SEND_INT8:
        return rows * (2 + columns);
    case SEND_INT4:
        return rows * (2 + (columns + 1) / 2);
    case SEND_E3M0:
        return rows * (columns / 64 * 34 + (rest ? 2 + (rest + 1) / 2 : 0));
    default:
        return 2 * rows * columns;
    }
}

/* PowerSGD sends bf16 factors where that is less than all: one a round in turn, or both. */
static void add_low_rank(struct sum *sum, uint64_t rows, uint64_t columns, uint64_t rank)
{
    bool two_sided = sum->profile->sync_power == POWER_TWO_SIDED;
    uint64_t side = larger(rows, columns) * rank, sends = two_sided ? rank * (rows + columns) : side;
    if (rank > rows || rank > columns || sends >= rows * columns) {
        sum->bytes += 2 * rows * columns;
        sum->bound += 2 * rows * columns;
        return;
    }
    sum->bound += 2 * side;
    sum->bytes += two_sided ? 2 * sends : rank * (rows + columns);
    sum->longer += two_sided ? 0 : 2 * side - rank * (rows + columns);
    sum->memory += 4 * (2 * rows * columns + 2 * side + rows * rank) + 8 * side;
    sum->state += 16 + 4 * larger(rows, columns) * rank; /* rounds, rank, basis */
    sum->scratch = larger(sum->scratch, side);
}

static void add_matrix(struct sum *sum, const struct matrix *matrix)
{
    const struct profile *p = sum->profile;
    uint64_t rows = matrix->rows, columns = matrix->columns, all = rows * columns;
    int payload = p->sync_payload, table = matrix->table ? p->sync_table : TABLE_PAYLOAD;
    uint64_t plain = 0; /* what is not of low rank sends the same in every exchange */
    sum->largest = larger(sum->largest, all);
    sum->memory += 8 * all;
    sum->state += 8 * all;
    sum->scratch = larger(sum->scratch, all);
    if (columns == 1 && !p->lora_rank) /* a vector */
        plain = value_bytes(payload == SEND_FP32 ? SEND_FP32 : SEND_BF16, rows, 1);
    else if (table == TABLE_LOW_RANK)
        add_low_rank(sum, rows, columns, (uint64_t)p->sync_table_rank);
    else if (table == TABLE_PAYLOAD && payload == SEND_POWERSGD)
        add_low_rank(sum, rows, columns, (uint64_t)p->sync_rank);
    else if (table == TABLE_TOUCHED)
        plain = value_bytes(SEND_INT8, rows, columns) + (rows + 7) / 8; /* at most */
    else
        plain = value_bytes(table == TABLE_BF16 ? SEND_BF16 : table == TABLE_INT8 ? SEND_INT8 : payload, rows, columns);
    sum->bytes += plain;
    sum->bound += plain;
    if (table == TABLE_TOUCHED)
        sum->memory += 8 * all;
}

static int64_t fragment_of(const struct profile *p, int64_t layer, int64_t layers)
{
    return p->sync_pattern == PATTERN_SEQUENTIAL ? layer * p->sync_fragments / layers : layer % p->sync_fragments;
}

static void add_stage(struct sum *sum, const struct plan_stage *stage)
{
    const struct profile *p = sum->profile;
    uint64_t hidden = (uint64_t)p->hidden, head = (uint64_t)profile_head_width(p);
    uint64_t query = head * (uint64_t)p->heads, key = head * (uint64_t)p->kv_heads;
    const struct matrix layer_norms[] = {{hidden, 1, false}, {hidden, 1, false}};
    const struct matrix biases[] = {{query, 1, false}, {key, 1, false}, {key, 1, false}};
    const struct matrix norms[] = {{head, 1, false}, {head, 1, false}};
    const struct matrix table = {(uint64_t)p->vocabulary, hidden, true}, norm = {hidden, 1, false};
    bool rest = sum->only == EVERY_FRAGMENT || sum->only == p->sync_fragments - 1; /* what belongs to no layer */
    bool first = stage->stage == 0 && rest, last = stage->stage == p->stages - 1 && rest, all = !p->lora_rank;
    struct plan_matrix of_layer[PLAN_MATRICES];
    int matrices = plan_matrices(p, of_layer);
    for (int layer = 0; layer < stage->layers; layer++) {
        if (sum->only != EVERY_FRAGMENT && fragment_of(p, layer, stage->layers) != sum->only)
            continue;
        for (int i = 0; i < matrices; i++)
            add_matrix(sum, &(struct matrix){of_layer[i].rows, of_layer[i].columns, false});
        for (size_t i = 0; i < sizeof layer_norms / sizeof *layer_norms && all; i++)
            add_matrix(sum, &layer_norms[i]);
        for (size_t i = 0; i < sizeof biases / sizeof *biases && all && p->qkv_bias; i++)
            add_matrix(sum, &biases[i]);
        for (size_t i = 0; i < sizeof norms / sizeof *norms && all && p->qk_norm; i++)
            add_matrix(sum, &norms[i]);
    }
    if (first && all)
        add_matrix(sum, &table);
    if (last && all)
        add_matrix(sum, &norm);
    if (last && all && !(p->head_tie == HEAD_TIED && first))
        add_matrix(sum, &table);
}

bool plan_averages_gradients(const struct profile *profile)
{
    return profile->sync_every == 1 && profile->sync_outer == OUTER_NONE;
}

uint64_t plan_sync_bytes(const struct profile *profile, const struct plan_stage *stage)
{
    struct sum sum = {.profile = profile, .only = EVERY_FRAGMENT};
    if (plan_averages_gradients(profile))
        return stage->trained * (profile->sync_payload == SEND_FP32 ? 4 : 2);
    add_stage(&sum, stage);
    return sum.bytes;
}

/* One that comes back copies a fragment beside what it holds. */
static uint64_t join_bytes(const struct profile *profile, const struct plan_stage *stage)
{
    uint64_t most = 0;
    for (int f = 0; f < profile->sync_fragments && profile->rejoin; f++) {
        struct sum sum = {.profile = profile, .only = f};
        add_stage(&sum, stage);
        most = larger(most, sum.state);
    }
    return most;
}

uint64_t plan_follow_memory(const struct profile *profile, const struct plan_stage *stage, uint64_t *state)
{
    struct sum sum = {.profile = profile, .only = EVERY_FRAGMENT};
    add_stage(&sum, stage);
    *state = sum.state;
    return sum.state + 2 * (uint64_t)profile->replicas * (sum.bytes + sum.longer);
}

uint64_t plan_replay_memory(const struct profile *profile, const struct plan_stage *stage)
{
    struct sum all = {.profile = profile, .only = EVERY_FRAGMENT};
    uint64_t most = 0;
    add_stage(&all, stage);
    for (int f = 0; f < profile->sync_fragments; f++) {
        struct sum sum = {.profile = profile, .only = f};
        add_stage(&sum, stage);
        most = larger(most, larger(sum.state, (uint64_t)profile->replicas * (sum.bytes + sum.longer)));
    }
    return all.memory + 12 * all.scratch + most;
}

/* Rounds that are sent before the first of them is due. */
static uint64_t rounds_in_flight(const struct profile *p)
{
    int64_t most = 1, every = p->sync_every, count = p->sync_fragments;
    for (int64_t f = 0; f < count; f++) {
        int64_t under_way = 1;
        for (int64_t next = f + 1; next < f + count; next++)
            under_way += next % count * every / count + (next >= count ? every : 0) - f * every / count < p->sync_overlap;
        most = under_way > most ? under_way : most;
    }
    return (uint64_t)most;
}

/* The largest that a stage sends to a sibling at a time; the last exchange of a run is in bf16, a tensor at a time. */
static uint64_t contribution_bytes(const struct profile *p, const struct plan_stage *stage)
{
    struct sum all = {.profile = p, .only = EVERY_FRAGMENT};
    if (plan_averages_gradients(p))
        return plan_sync_bytes(p, stage);
    add_stage(&all, stage);
    uint64_t most = 2 * all.largest;
    for (int f = 0; f < p->sync_fragments; f++) {
        struct sum sum = {.profile = p, .only = f};
        add_stage(&sum, stage);
        most = larger(most, sum.bound);
    }
    return most;
}

uint64_t plan_sync_messages(const struct profile *p, const struct plan_stage *stage)
{
    return p->replicas == 1 ? 0 : 2 * ((uint64_t)p->replicas - 1) * contribution_bytes(p, stage); /* one comes, one goes */
}

/* Where what siblings send lies until its round is due, and their own. */
static uint64_t buffer_bytes(const struct profile *p, const struct plan_stage *stage)
{
    struct sum all = {.profile = p, .only = EVERY_FRAGMENT};
    uint64_t others = (uint64_t)p->replicas - 1, flights = rounds_in_flight(p);
    uint64_t slots = 2 * (flights + (p->sync_power == POWER_TWO_SIDED));
    add_stage(&all, stage);
    if (plan_averages_gradients(p))
        return (2 * others + 1) * contribution_bytes(p, stage) + 8 * all.largest;
    return (others * slots + flights) * contribution_bytes(p, stage);
}

uint64_t plan_sync_memory(const struct profile *profile, const struct plan_stage *stage)
{
    struct sum sum = {.profile = profile, .only = EVERY_FRAGMENT};
    if (profile->replicas == 1)
        return 0;
    if (plan_averages_gradients(profile))
        return buffer_bytes(profile, stage);
    add_stage(&sum, stage);
    return sum.memory + 12 * sum.scratch + buffer_bytes(profile, stage) + join_bytes(profile, stage);
}
