/*
 * When a stage exchanges what with its siblings (see siblings.h for how, sync.h for what comes of it).
 *
 *   after the optimiser step of training step t:   rounds that are due are waited for, applied, merged → that of t is sent
 *   after the last one:                            every tensor becomes the mean of all replicas
 *   with averaged gradients instead:               after the last backward of a step, before anybody looks at its norm
 */
#include "gpu/train/siblings.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gpu/math/half.h"
#include "gpu/model/carve.h"
#include "ssh/base/clock.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

#define HASH_EVERY 50 /* steps between two comparisons of all weights, where gradients are averaged */

/* ---- what is exchanged, from the shape alone ---- */

static bool averages_gradients(const struct profile *profile)
{
    return profile->sync_every == 1 && profile->sync_outer == OUTER_NONE;
}

static struct fragments fragments_of(const struct profile *profile)
{
    return (struct fragments){.every = profile->sync_every, .count = profile->sync_fragments,
                              .overlap = profile->sync_overlap,
                              .pattern = profile->sync_pattern, .last = (uint64_t)profile->steps};
}

struct agreement agreement_of(const struct profile *profile)
{
    return (struct agreement){.fragments = fragments_of(profile), .rank = profile->sync_rank,
                              .alpha = (float)profile->sync_merge,
                              .rate = profile->sync_outer == OUTER_NONE ? 1 : (float)profile->outer_rate};
}

static int kind_of(const struct profile *profile, const struct carve_tensor *tensor, bool table)
{
    static const int of_table[] = {[TABLE_BF16] = SYNC_BF16, [TABLE_INT8] = SYNC_INT8, [TABLE_TOUCHED] = SYNC_ROWS,
                                   [TABLE_LOW_RANK] = SYNC_POWERSGD};
    if (tensor->dims == 1)
        return profile->sync_payload == SEND_FP32 ? SYNC_FP32 : SYNC_BF16;
    return table && profile->sync_table != TABLE_PAYLOAD ? of_table[profile->sync_table] : profile->sync_payload;
}

/* "model.layers.7.mlp.up_proj.weight" → 7; −1: of no layer. */
static int64_t layer_of(const char *name)
{
    const char *at = strstr(name, ".layers.");
    int64_t layer = 0;
    if (!at)
        return -1;
    for (at += strlen(".layers."); *at >= '0' && *at <= '9'; at++)
        layer = 10 * layer + (*at - '0');
    return layer;
}

void siblings_list(const struct profile *profile, const struct stage_shape *shape, struct siblings_list *list)
{
    struct carve_block at;
    struct fragments fragments = fragments_of(profile);
    struct carve_tensor *tensors = carve_trained(shape, &at);
    *list = (struct siblings_list){.index = mem_array((size_t)at.tensors, sizeof *list->index),
                          .tensors = mem_array((size_t)at.tensors, sizeof *list->tensors),
                          .settings = {.fragments = (int)profile->sync_fragments,
                                       .two_sided = profile->sync_power == POWER_TWO_SIDED}};
    for (int i = 0; i < at.tensors; i++) {
        int64_t layer = layer_of(tensors[i].name);
        bool table = layer < 0 && tensors[i].dims == 2;
        /* The last stage's copy of a tied table steps with the first stage's gradient: averaged there. */
        if (table && averages_gradients(profile) && shape->model.tied && shape->last && !shape->first)
            continue;
        list->index[list->count] = i;
        list->tensors[list->count++] = (struct sync_tensor){
            .rows = tensors[i].rows,
            .columns = tensors[i].columns,
            .fragment = layer < 0 ? (int)profile->sync_fragments - 1
                                  : fragments_of_layer(&fragments, layer - shape->first_layer, shape->layers),
            .kind = kind_of(profile, &tensors[i], table),
            .rank = table && profile->sync_table == TABLE_LOW_RANK ? profile->sync_table_rank : profile->sync_rank,
            .rank_stays = table && profile->sync_table == TABLE_LOW_RANK,
            .seed = hash_finish(hash_add(hash_add(HASH_START, tensors[i].name, strlen(tensors[i].name)), &profile->seed,
                                         sizeof profile->seed)),
        };
    }
    mem_free(tensors);
}

void siblings_list_clear(struct siblings_list *list)
{
    mem_free(list->index);
    mem_free(list->tensors);
}

static enum payload_kind gradient_kind(const struct profile *profile)
{
    return profile->sync_payload == SEND_FP32 ? PAYLOAD_FP32 : PAYLOAD_BF16;
}

/* The largest contribution. */
static size_t most_bytes(const struct profile *profile, const struct siblings_list *list)
{
    size_t most = 0, all = 0;
    for (int i = 0; i < list->count; i++) {
        const struct sync_tensor *tensor = &list->tensors[i];
        size_t final = payload_bytes(PAYLOAD_BF16, tensor->rows, tensor->columns);
        all += payload_bytes(gradient_kind(profile), tensor->rows, tensor->columns);
        most = final > most ? final : most;
    }
    if (averages_gradients(profile))
        return all;
    size_t round = sync_bound_bytes(&list->settings, list->tensors, list->count);
    return round > most ? round : most;
}

static int slots_of(const struct profile *profile)
{
    struct fragments fragments = fragments_of(profile);
    return averages_gradients(profile) ? 2 : 2 * (fragments_in_flight(&fragments) + (profile->sync_power == POWER_TWO_SIDED));
}

/* Of every sibling's contributions and our own. */
static int buffers_of(const struct profile *profile, int replicas)
{
    struct fragments fragments = fragments_of(profile);
    return (replicas - 1) * slots_of(profile) + (averages_gradients(profile) ? 1 : fragments_in_flight(&fragments));
}

static int64_t largest_tensor(const struct siblings_list *list)
{
    int64_t largest = 0;
    for (int i = 0; i < list->count; i++)
        if (list->tensors[i].rows * list->tensors[i].columns > largest)
            largest = list->tensors[i].rows * list->tensors[i].columns;
    return largest;
}

uint64_t siblings_buffer_bytes(const struct profile *profile, const struct siblings_list *list, int replicas)
{
    uint64_t values = averages_gradients(profile) ? 2 * (uint64_t)largest_tensor(list) * sizeof(float) : 0;
    return (uint64_t)buffers_of(profile, replicas) * most_bytes(profile, list) + values;
}

void siblings_bounds(const struct profile *profile, const struct stage_shape *shape, int replicas, size_t *letters,
                     size_t *bytes)
{
    struct siblings_list list;
    *letters = *bytes = 0;
    if (replicas == 1)
        return;
    siblings_list(profile, shape, &list);
    size_t contribution = most_bytes(profile, &list), pieces = contribution / WIRE_SYNC_BYTES + 1;
    size_t count = (size_t)(replicas - 1) * (size_t)slots_of(profile);
    *letters = count * (pieces + 1) + KNOBS_MOST; /* each with a HAVE */
    *bytes = count * (contribution + pieces * 128);
    if (!averages_gradients(profile)) { /* one that joins asks, and gets answers */
        *letters += 4 * (size_t)replicas + join_most_bytes() / WIRE_SYNC_BYTES;
        *bytes += join_most_bytes() + 4 * (size_t)replicas * 128;
    }
    siblings_list_clear(&list);
}

/* ---- life ---- */

static void get_weights(void *arg, int tensor, float *out)
{
    struct compute *compute = arg;
    stage_tensor_get(compute->model, compute->siblings->tensor_of[tensor], out, false);
}

static void set_weights(void *arg, int tensor, const float *values)
{
    struct compute *compute = arg;
    stage_tensor_set(compute->model, compute->siblings->tensor_of[tensor], values);
}

static struct sync_weights weights_of(struct compute *compute)
{
    return (struct sync_weights){get_weights, set_weights, compute};
}

void siblings_take(struct compute *compute)
{
    struct sync_weights weights = weights_of(compute);
    sync_take(compute->siblings->sync, &weights);
}

void siblings_restore(struct compute *compute, uint64_t step)
{
    struct sync_weights weights = weights_of(compute);
    if (!compute->siblings || !compute->siblings->sync)
        return;
    int restored = sync_restore(compute->siblings->sync, &weights);
    if (!restored)
        return;
    stage_forget(compute->model);
    compute->optimizer.applied = 0;
    compute_say(compute, EVENT_ALERT, step, "weights-restored", "%d tensors of stage %d of replica %d were not finite: they are what the "
                "replicas have in common again, and its AdamW begins anew", restored, compute->stage, compute->siblings->self);
}

static bool take_buffers(struct siblings *siblings, const struct siblings_list *list)
{
    bool taken = true;
    int count = siblings->replicas * siblings->slots;
    siblings->incoming = mem_array((size_t)count, sizeof *siblings->incoming);
    siblings->flight = mem_array((size_t)siblings->flights, sizeof *siblings->flight);
    for (int i = 0; i < count && taken; i++)
        if (i / siblings->slots != siblings->self)
            taken = (siblings->incoming[i].bytes = mem_large(siblings->most_bytes)) != NULL;
    for (int i = 0; i < siblings->flights && taken; i++)
        taken = (siblings->flight[i].bytes = mem_large(siblings->most_bytes)) != NULL;
    if (taken && siblings->gradients)
        taken = (siblings->values = mem_large(2 * (size_t)largest_tensor(list) * sizeof(float))) != NULL;
    return taken;
}

static void count_memory(struct compute *compute, const struct siblings_list *list)
{
    const struct siblings *siblings = compute->siblings;
    compute->memory_bytes += siblings_buffer_bytes(&compute->settings.profile, list, siblings->replicas);
    if (!siblings->gradients)
        compute->memory_bytes += sync_memory(&list->settings, list->tensors, list->count) + siblings_follow_memory(compute);
}

int siblings_load(struct compute *compute, const struct stage_shape *shape, struct why *why)
{
    const struct profile *profile = &compute->settings.profile;
    struct siblings_list list;
    if (compute->settings.assign.replicas < 2)
        return 0;
    siblings_list(profile, shape, &list);
    struct siblings *made = mem_new(sizeof *made);
    compute->siblings = made;
    struct agreement agreement = agreement_of(profile);
    *made = (struct siblings){
        .self = compute->settings.assign.replica,
        .replicas = compute->settings.assign.replicas,
        .gradients = averages_gradients(profile),
        .fragments = agreement.fragments,
        .outer = {.rate = agreement.rate, .momentum = profile->sync_outer == OUTER_NONE ? 0 : (float)profile->outer_momentum,
                  .alpha = agreement.alpha}, /* without an outer optimiser the common copy becomes the mean */
        .next = agreement,
        .most_rank = agreement.rank,
        .tensors = list.count,
        .tensor_of = list.index,
        .slots = slots_of(profile),
        .most_bytes = most_bytes(profile, &list),
    };
    list.index = NULL;
    for (int r = 0; r < made->replicas; r++)
        made->members[r].left = r != made->self && !(compute->settings.assign.members >> r & 1);
    made->ended = mem_array((size_t)made->fragments.count, sizeof *made->ended);
    made->holdings = 4 * made->slots + 2;
    made->holding = mem_array((size_t)made->holdings, sizeof *made->holding);
    made->flights = made->gradients ? 1 : fragments_in_flight(&made->fragments);
    int err = 0;
    if (!take_buffers(made, &list))
        err = why_set(why, ERR_MEMORY, "no memory for what %d siblings send: %d times %zu bytes each", made->replicas - 1,
                      made->slots, made->most_bytes);
    if (!err && !made->gradients)
        err = sync_new(&list.settings, list.tensors, list.count, &made->sync, why);
    if (!err && made->sync) {
        struct sync_weights weights = weights_of(compute);
        sync_begin(made->sync, &weights);
    }
    if (!err && !(compute->settings.assign.members >> made->self & 1))
        err = join_new(compute, why);
    if (!err)
        count_memory(compute, &list);
    siblings_list_clear(&list);
    return err;
}

void siblings_free(struct siblings *siblings)
{
    if (!siblings)
        return;
    for (int i = 0; siblings->incoming && i < siblings->replicas * siblings->slots; i++)
        mem_large_free(siblings->incoming[i].bytes);
    for (int i = 0; siblings->flight && i < siblings->flights; i++)
        mem_large_free(siblings->flight[i].bytes);
    mem_large_free(siblings->values);
    mem_free(siblings->ended);
    join_free(siblings);
    sync_free(siblings->sync);
    mem_free(siblings->incoming);
    mem_free(siblings->holding);
    mem_free(siblings->flight);
    mem_free(siblings->tensor_of);
    mem_free(siblings);
}

/* ---- rounds ---- */

static uint64_t tokens_of(const struct compute *compute, uint64_t steps)
{
    const struct profile *profile = &compute->settings.profile;
    return steps * (uint64_t)profile->micro_batches * (uint64_t)profile->micro_batch * (uint64_t)profile->sequence;
}

static int contribute(struct compute *compute, struct flight *flight)
{
    struct siblings *siblings = compute->siblings;
    struct sync_weights weights = weights_of(compute);
    uint64_t every = (uint64_t)siblings->fragments.every, trained = flight->is.sent - siblings->began;
    uint64_t steps = trained < every ? trained : every;
    flight->own = (struct wire_sync){.round = flight->is.round, .purpose = SYNC_ROUND, .exchange = (uint8_t)flight->exchange,
                                     .fragment = (uint16_t)flight->is.fragment, .tokens = tokens_of(compute, steps)};
    flight->own.total = sync_contribute(siblings->sync, flight->is.fragment, flight->exchange, &weights, flight->bytes);
    BUG_IF(flight->own.total > siblings->most_bytes);
    return post_send(compute, &flight->own, flight->bytes);
}

static int send_round(struct compute *compute, const struct fragment_round *round)
{
    struct siblings *siblings = compute->siblings;
    int i = 0;
    while (siblings->flight[i].used)
        BUG_IF(++i == siblings->flights);
    struct flight *flight = &siblings->flight[i];
    uint8_t *bytes = flight->bytes;
    *flight = (struct flight){.used = true, .is = *round, .rank = compute->pass.stamp.sync_rank, .bytes = bytes};
    int err = agree_send(compute, round);
    return err ? err : contribute(compute, flight);
}

/* One exchange of a round, waiting for what is missing; then the next one is sent, if there is one. */
static int take_exchange(struct compute *compute, struct flight *flight)
{
    struct siblings *siblings = compute->siblings;
    struct sync_part parts[PROFILE_MAX_REPLICAS];
    struct why why = {0};
    int err = post_wait(compute, &flight->own, flight->bytes, parts, &flight->contributors);
    if (err)
        return err;
    if (sync_receive(siblings->sync, flight->is.fragment, flight->exchange, parts, flight->contributors, siblings->self,
                     &siblings->outer, &why) < 0) {
        flight->failed = true; /* all replicas see the same bytes, so all of them skip it */
        compute_say(compute, EVENT_WARN, flight->is.applied, "round-skipped", "round %" PRIu64 ", fragment %d: %s",
                    flight->is.round, flight->is.fragment, why.text);
    } else {
        siblings_tell_exchange(compute, flight, parts);
    }
    post_release(siblings, &flight->own);
    if (!flight->failed && ++flight->exchange < sync_exchanges(siblings->sync, flight->is.fragment))
        return contribute(compute, flight);
    return 0;
}

static bool is_decided(const struct siblings *siblings, const struct flight *flight)
{
    return flight->failed || flight->foreign || flight->exchange == sync_exchanges(siblings->sync, flight->is.fragment);
}

static int finish_round(struct compute *compute, struct flight *flight, uint64_t step)
{
    struct siblings *siblings = compute->siblings;
    struct sync_weights weights = weights_of(compute);
    int err = flight->foreign ? join_finish(compute, flight) : 0;
    while (!err && !is_decided(siblings, flight))
        err = take_exchange(compute, flight);
    if (err)
        return err;
    uint64_t hash = flight->failed ? sync_hash(siblings->sync, flight->is.fragment)
                                   : sync_merge(siblings->sync, flight->is.fragment, siblings->outer.alpha, &weights);
    struct wire_outer outer = {.round = flight->is.round, .step = step, .fragment = (uint16_t)flight->is.fragment,
                               .skipped = flight->failed, .contributors = (uint16_t)flight->contributors,
                               .hash = hash, .sent_bytes = flight->own.total};
    siblings->ended[outer.fragment].round = outer.round;
    siblings->ended[outer.fragment].hash = outer.hash;
    siblings_tell_other(compute, flight);
    if (!flight->foreign)
        compute_tell(compute, WIRE_OUTER, &outer, step);
    flight->used = false;
    agree_applied(compute, flight->is.round, step);
    return 0;
}

/* The second exchange of a two-sided round begins as soon as the first one is here, so that both fit into the overlap. */
static int advance_rounds(struct compute *compute)
{
    struct siblings *siblings = compute->siblings;
    int err = 0;
    for (int i = 0; i < siblings->flights && !err; i++) {
        struct flight *flight = &siblings->flight[i];
        if (flight->used && !is_decided(siblings, flight) &&
            flight->exchange + 1 < sync_exchanges(siblings->sync, flight->is.fragment) &&
            post_is_complete(siblings, &flight->own))
            err = take_exchange(compute, flight);
    }
    return err;
}

static int finish_due(struct compute *compute, uint64_t step)
{
    struct siblings *siblings = compute->siblings;
    for (int i = 0; i < siblings->flights; i++)
        if (siblings->flight[i].used && siblings->flight[i].is.applied == step)
            return finish_round(compute, &siblings->flight[i], step); /* at most one round is sent in a step */
    return 0;
}

/* ---- the end ---- */

static int exchange_all(struct compute *compute, uint64_t step)
{
    struct siblings *siblings = compute->siblings;
    struct sync_weights weights = weights_of(compute);
    struct sync_part parts[PROFILE_MAX_REPLICAS];
    uint8_t *bytes = siblings->flight[0].bytes;
    int count = 0;
    for (int i = 0; i < siblings->tensors; i++) {
        struct why why = {0};
        struct wire_sync own = {.round = fragments_end(&siblings->fragments) + (uint64_t)i, .purpose = SYNC_FINAL,
                                .fragment = (uint16_t)i, .tokens = 1, .total = sync_final_bytes(siblings->sync, i)};
        sync_final_contribute(siblings->sync, i, &weights, bytes);
        int err = post_send(compute, &own, bytes);
        if (!err)
            err = post_wait(compute, &own, bytes, parts, &count);
        if (err)
            return err;
        uint64_t left_out = 0;
        if (sync_final_receive(siblings->sync, i, parts, count, &weights, &left_out, &why) < 0)
            compute_say(compute, EVENT_ALERT, step, "round-skipped", "%s; this tensor stays as it is", why.text);
        for (int r = 0; r < siblings->replicas; r++)
            if (left_out >> r & 1)
                compute_say(compute, EVENT_ALERT, step, "round-skipped", "the weights of replica %d are not finite at the end (tensor %d of "
                            "the stage): the mean is that of the others", r, i);
        post_release(siblings, &own);
    }
    struct wire_outer outer = {.round = fragments_end(&siblings->fragments), .step = step, .contributors = (uint16_t)count,
                               .hash = stage_hash(compute->model)};
    compute_tell(compute, WIRE_OUTER, &outer, step);
    return 0;
}

int siblings_after_step(struct compute *compute, uint64_t step)
{
    struct siblings *siblings = compute->siblings;
    struct fragment_round round;
    if (!siblings)
        return 0;
    if (siblings->gradients) {
        if (step % HASH_EVERY == 0 || step == siblings->fragments.last) {
            struct wire_outer outer = {.round = step, .step = step, .contributors = (uint16_t)siblings->replicas,
                                       .hash = stage_hash(compute->model)};
            compute_tell(compute, WIRE_OUTER, &outer, step);
        }
        return 0;
    }
    int err = agree_follow(compute);
    if (!err)
        err = advance_rounds(compute);
    if (!err && siblings->fragments.overlap > 0)
        err = finish_due(compute, step);
    if (!err && fragments_sent_at(&siblings->fragments, step, &round))
        err = send_round(compute, &round);
    if (!err && siblings->fragments.overlap == 0)
        err = finish_due(compute, step);
    if (!err && siblings->entry.life && siblings->entry.step == step + 1)
        err = join_tell(compute);
    if (!err && step == siblings->fragments.last)
        err = exchange_all(compute, step);
    return err;
}

/* ---- gradients ---- */

static void encode_gradients(struct compute *compute, uint8_t *at)
{
    struct siblings *siblings = compute->siblings;
    enum payload_kind kind = gradient_kind(&compute->settings.profile);
    for (int i = 0; i < siblings->tensors; i++) {
        struct tensor_info info;
        stage_tensor(compute->model, siblings->tensor_of[i], &info);
        stage_tensor_get(compute->model, siblings->tensor_of[i], siblings->values, true);
        if (i == 0 && compute->last && !isfinite(compute->pass.loss))
            siblings->values[0] = NAN; /* a loss that is not finite drops the step on all replicas */
        at += payload_encode(kind, siblings->values, info.shape[0], info.shape[1], at);
    }
}

static void average_gradients(struct compute *compute, struct sync_part *parts)
{
    struct siblings *siblings = compute->siblings;
    enum payload_kind kind = gradient_kind(&compute->settings.profile);
    for (int i = 0; i < siblings->tensors; i++) {
        struct tensor_info info;
        stage_tensor(compute->model, siblings->tensor_of[i], &info);
        int64_t rows = info.shape[0], columns = info.shape[1], count = rows * columns;
        float *sum = siblings->values, *part = siblings->values + count;
        for (int p = 0; p < siblings->replicas; p++) {
            size_t bytes = payload_bytes(kind, rows, columns);
            payload_decode(kind, parts[p].bytes, bytes, rows, columns, part, NULL);
            parts[p].bytes += bytes;
            for (int64_t k = 0; k < count; k++)
                sum[k] = p == 0 ? parts[p].share * part[k] : sum[k] + parts[p].share * part[k];
        }
        stage_gradient_set(compute->model, siblings->tensor_of[i], sum);
    }
}

int siblings_average(struct compute *compute)
{
    struct siblings *siblings = compute->siblings;
    struct sync_part parts[PROFILE_MAX_REPLICAS];
    if (!siblings || !siblings->gradients)
        return 0;
    struct flight *flight = &siblings->flight[0];
    /* Stage 0 knows the targets of the step by now, and makes the clip scale of those of all replicas. */
    struct wire_sync own = {.round = compute->pass.step, .purpose = SYNC_GRADIENT, .tokens = compute->pass.targets,
                            .total = siblings->most_bytes};
    encode_gradients(compute, flight->bytes);
    int err = post_send(compute, &own, flight->bytes);
    int count;
    if (!err)
        err = post_wait(compute, &own, flight->bytes, parts, &count);
    for (int p = 0; p < siblings->replicas && !err; p++)
        if (parts[p].count != own.total)
            err = compute_halt(compute, compute->pass.step, "the gradient of replica %d has %zu bytes, ours %" PRIu64, p,
                               parts[p].count, own.total);
    if (err)
        return err;
    average_gradients(compute, parts);
    post_release(siblings, &own);
    return 0;
}

double siblings_targets(const struct compute *compute)
{
    const struct siblings *siblings = compute->siblings;
    if (!siblings || !siblings->gradients)
        return (double)compute->pass.targets;
    return (double)siblings->tokens / siblings->replicas;
}

bool siblings_is_lowest(const struct compute *compute)
{
    return !compute->siblings || members_lowest(compute->siblings) == compute->siblings->self;
}

void siblings_report(const struct compute *compute, struct wire_sample *sample)
{
    if (!compute->siblings)
        return;
    sample->sync_round = compute->siblings->waited_round;
    sample->sync_replica = (uint16_t)compute->siblings->waited_replica;
}

bool siblings_words(const struct compute *compute, uint16_t *words)
{
    const struct siblings *siblings = compute->siblings;
    if (!siblings || !siblings->sync)
        return false;
    for (int i = 0; i < siblings->tensors; i++) {
        struct tensor_info info;
        const float *values = sync_common(siblings->sync, i);
        stage_tensor(compute->model, siblings->tensor_of[i], &info);
        if (compute->last && !compute->first && strcmp(info.name, CARVE_EMBEDDING) == 0)
            continue; /* a copy of the first stage's */
        for (int64_t k = 0; k < info.shape[0] * info.shape[1]; k++)
            *words++ = half_from_float(values[k]);
    }
    return true;
}
