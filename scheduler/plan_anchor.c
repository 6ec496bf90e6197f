/* The anchor's part of the plan: what it and the stages keep for it, and what travels. By the formulas of gpu/train and
 * gpu/math. */
#include <inttypes.h>
#include <string.h>

#include "scheduler/plan.h"
#include "ssh/base/text.h"
#include "ssh/wire/wire.h"

#define BASES_MOST 8 /* versions of directions that may wait at a stage: gpu/train/bases.h */

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* Of one layer: cells of its matrices, elements of their directions, and the bytes in which these travel. */
static void layer_sums(const struct profile *p, uint64_t *cells, uint64_t *elements, uint64_t *bytes)
{
    struct plan_matrix matrices[PLAN_MATRICES];
    int count = plan_matrices(p, matrices);
    *cells = *elements = *bytes = 0;
    for (int i = 0; i < count; i++) {
        uint64_t rows = matrices[i].rows, columns = matrices[i].columns;
        uint64_t rank = least((uint64_t)p->anchor_rank, least(rows, columns));
        bool whole = p->anchor_returns == RETURNS_GRADIENT;
        *cells += rows * columns;
        *elements += whole ? rows * columns : rank * (rows + columns);
        *bytes += whole ? 2 * rows * columns : rank * (4 + 2 * (rows + columns));
    }
}

static uint64_t embedding_words(const struct profile *p)
{
    return (uint64_t)p->vocabulary * (uint64_t)p->hidden;
}

/* Without the last stage's copy of a tied embedding, which does not travel. */
static uint64_t snapshot_words(const struct profile *p, const struct plan_stage *stage)
{
    bool copy = plan_exchanges_head(p) && stage->stage == p->stages - 1;
    return stage->trained - (copy ? embedding_words(p) : 0);
}

bool plan_is_for_anchor(const struct profile *profile, int host)
{
    return profile->host_count > 1 && strcmp(profile->hosts[host].name, profile->anchor_host) == 0;
}

/* Of a version of a cut's statistics, where the anchor measures them: that of each end. */
static uint64_t statistics_of(const struct profile *p, int before)
{
    uint64_t backward = plan_is_one_way(p, before) ? 0 : plan_made_bytes(p, true);
    return profile_anchor_measures(p) ? plan_made_bytes(p, false) + backward : 0;
}

static uint64_t statistics_to(const struct profile *p, const struct plan_stage *stage)
{
    uint64_t upstream = stage->stage > 0 ? statistics_of(p, stage->first_layer) : 0;
    return upstream + (stage->stage + 1 < p->stages ? statistics_of(p, stage->first_layer + stage->layers) : 0);
}

uint64_t plan_anchor_memory(const struct profile *p, const struct plan_stage *stage)
{
    bool anchored = p->anchor_host[0] != '\0',
         corrects = profile_corrects(p);
    uint64_t cells, elements, bytes, sum = 0;
    layer_sums(p, &cells, &elements, &bytes);
    if (corrects)
        sum += 4 * (stage->trained - plan_still_parameters(p, stage));
    if (corrects && p->anchor_filter != ANCHOR_SHRINK)
        sum += 4 * elements * (uint64_t)stage->layers;
    if (anchored && corrects && p->anchor_filter != ANCHOR_SHRINK)
        sum += BASES_MOST * bytes * (uint64_t)stage->layers;
    sum += BASES_MOST * statistics_to(p, stage);
    if (anchored && p->anchor_follow)
        return sum + plan_follow_memory(p, stage, &bytes);
    if (anchored && (stage->replica == 0 || !plan_averages_gradients(p))) /* another one when the lowest has left */
        sum += 4 * snapshot_words(p, stage);
    return sum;
}

void plan_make_anchor(const struct profile *p, int cores, struct plan *plan)
{
    struct plan_anchor *anchor = &plan->anchor;
    uint64_t cells, elements, bytes, trained = 0, weights = 0;
    if (!p->anchor_host[0])
        return;
    layer_sums(p, &cells, &elements, &bytes);
    anchor->there = true;
    for (int i = 0; i < p->host_count; i++)
        anchor->host = strcmp(p->hosts[i].name, p->anchor_host) == 0 ? i : anchor->host;
    int share = cores / (plan->stage_count + 1);
    anchor->threads = p->anchor_threads ? (int)p->anchor_threads : share > 1 ? share : 1;
    anchor->uplink_bps = p->hosts[anchor->host].uplink_bps;
    for (int i = 0; i < plan->stages_per_replica; i++) {
        bool copy = p->head_tie == HEAD_TIED && i > 0 && i == plan->stages_per_replica - 1;
        trained += snapshot_words(p, &plan->stages[i]);
        weights += plan->stages[i].parameters - (copy ? embedding_words(p) : 0);
    }
    struct plan_stage whole = {.layers = (int)p->layers, .in_flight = 1, .threads = anchor->threads};
    struct profile *alone = &(struct profile){0};
    *alone = *p;
    alone->stages = 1;
    alone->recompute = false;
    alone->frozen = 0; /* it computes the gradients of all layers */
    anchor->snapshot_bytes = 2 * trained;
    bool corrects = profile_corrects(p) && p->anchor_filter != ANCHOR_SHRINK;
    anchor->basis_bytes = corrects ? bytes * (uint64_t)p->layers : 0;
    for (int i = 0; i < plan->stages_per_replica; i++) {
        uint64_t statistics = statistics_to(p, &plan->stages[i]),
                 back = statistics + (corrects ? bytes * (uint64_t)plan->stages[i].layers : 0);
        anchor->statistics_bytes += statistics;
        anchor->road_bytes = back > anchor->road_bytes ? back : anchor->road_bytes;
    }
    uint64_t measured = plan_measured_memory(p, false) + plan_measured_memory(p, true);
    if (anchor->statistics_bytes)
        anchor->memory_bytes = plan_table_memory(p) + (uint64_t)(p->stages - 1) * (plan_cut_memory(p, 1, false) + measured) +
                               plan_solving_memory(p, false);
    anchor->memory_bytes += p->lora_rank && !plan_words_only(p) ? 4 * weights : 2 * weights + (p->lora_rank ? 2 * trained : 0);
    /* A chunk from each stage arrives in the link's buffer and waits in a letter. */
    anchor->memory_bytes += plan_program_bytes(p) + 4 * WIRE_CHUNK_WORDS * (uint64_t)plan->stages_per_replica;
    anchor->memory_bytes += 8 * trained + (corrects ? 4 * cells * (uint64_t)p->layers : 0) + plan_activation_bytes(alone, &whole) +
                            plan_buffer_bytes(alone, &whole) + plan_device_bytes(alone, &whole) + (p->anchor_lifeboat ? 2 * trained : 0);
    for (int i = 0; i < plan->stages_per_replica && p->anchor_follow; i++) {
        uint64_t state;
        plan_follow_memory(p, &plan->stages[i], &state);
        anchor->state_bytes += state;
        anchor->rounds_bytes += (uint64_t)plan->replicas * plan_sync_bytes(p, &plan->stages[i]);
        anchor->memory_bytes += plan_replay_memory(p, &plan->stages[i]);
    }
    anchor->step_bytes = p->anchor_follow ? anchor->rounds_bytes / (uint64_t)p->sync_every
                                          : anchor->snapshot_bytes / (uint64_t)p->anchor_every;
}

void plan_print_anchor(const struct plan *plan, const struct profile *profile, FILE *out)
{
    const struct plan_anchor *anchor = &plan->anchor;
    char memory[32], full[32], back[32], need[32];
    if (!anchor->there)
        return;
    uint64_t budget = (uint64_t)(profile->anchor_staleness > 5 ? profile->anchor_staleness - 5 : 1);
    text_from_bytes(anchor->memory_bytes, memory, sizeof memory);
    text_from_bytes(anchor->snapshot_bytes, full, sizeof full);
    text_from_bytes(anchor->basis_bytes * (uint64_t)plan->replicas, back, sizeof back);
    uint64_t version = profile->anchor_follow ? anchor->step_bytes * (uint64_t)profile->anchor_every : anchor->snapshot_bytes;
    text_from_bytes(version / budget, need, sizeof need);
    fprintf(out, "\nAnchor on host %s: %d thread%s, %s of memory. A snapshot every %" PRId64 " steps,\n",
            profile->hosts[anchor->host].name, anchor->threads, anchor->threads == 1 ? "" : "s", memory,
            profile->anchor_every);
    if (profile->anchor_follow) {
        char state[32], rounds[32];
        fprintf(out, "made of the replicas' rounds: %s at first, then %s every %" PRId64 " steps.\nBack come ",
                text_from_bytes(anchor->state_bytes, state, sizeof state), text_from_bytes(anchor->rounds_bytes, rounds, sizeof rounds),
                profile->sync_every);
    } else {
        fprintf(out, "%s in full (the first), a difference after that. Back come\n", full);
    }
    if (anchor->basis_bytes && profile->anchor_returns == RETURNS_GRADIENT)
        fprintf(out, "%s of gradients%s", back, anchor->statistics_bytes ? " and " : "");
    else if (anchor->basis_bytes)
        fprintf(out, "%s of directions (rank %" PRId64 ")%s", back, profile->anchor_rank, anchor->statistics_bytes ? " and " : "");
    if (anchor->statistics_bytes)
        fprintf(out, "%s of statistics of the cuts",
                text_from_bytes(anchor->statistics_bytes * (uint64_t)plan->replicas, back, sizeof back));
    fprintf(out, "%s.\nIn use %" PRId64 " steps later: at most %s a step have to travel for it.\n",
            anchor->basis_bytes || anchor->statistics_bytes ? "" : "no directions", profile->anchor_staleness, need);
}
