/* See sync.h. */
#include "gpu/train/sync.h"

#include <inttypes.h>
#include <string.h>

#include "gpu/math/outer.h"
#include "gpu/math/powersgd.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

struct tensor {
    struct sync_tensor is;
    enum payload_kind payload; /* of the values, or of PowerSGD's factors */
    int64_t count;
    float *common, *momentum;
    float *error, *matrix;     /* of touched rows: as in PowerSGD */
    struct powersgd *powersgd; /* NULL: values travel themselves */
    int64_t rank;              /* of its next round */
};

struct sync {
    struct sync_settings settings;
    struct tensor *tensors;
    int count;
    float *sum, *part, *own; /* scratch, of the largest tensor or factor */
};

/* ---- sizes ---- */

static bool is_low_rank(const struct sync_tensor *tensor, bool two_sided)
{
    return tensor->kind == SYNC_POWERSGD && powersgd_pays(tensor->rows, tensor->columns, tensor->rank, two_sided);
}

static enum payload_kind payload_of(const struct sync_tensor *tensor)
{
    static const enum payload_kind kinds[] = {[SYNC_FP32] = PAYLOAD_FP32, [SYNC_BF16] = PAYLOAD_BF16, [SYNC_INT8] = PAYLOAD_INT8,
                                              [SYNC_INT4] = PAYLOAD_INT4, [SYNC_E3M0] = PAYLOAD_E3M0, [SYNC_POWERSGD] = PAYLOAD_BF16,
                                              [SYNC_ROWS] = PAYLOAD_ROWS};
    return kinds[tensor->kind];
}

static struct powersgd_settings low_rank_settings(const struct sync_tensor *tensor, bool two_sided)
{
    return (struct powersgd_settings){.rows = tensor->rows, .columns = tensor->columns, .rank = tensor->rank, .two_sided = two_sided,
                                      .seed = tensor->seed};
}

static int64_t scratch_floats(const struct sync_tensor *tensor, bool two_sided)
{
    int64_t most = tensor->rows * tensor->columns, side = tensor->rows > tensor->columns ? tensor->rows : tensor->columns;
    return is_low_rank(tensor, two_sided) && side * tensor->rank > most ? side * tensor->rank : most;
}

uint64_t sync_memory(const struct sync_settings *settings, const struct sync_tensor *tensors, int count)
{
    uint64_t bytes = 0, scratch = 0;
    for (int i = 0; i < count; i++) {
        uint64_t all = (uint64_t)(tensors[i].rows * tensors[i].columns), most = (uint64_t)scratch_floats(&tensors[i], settings->two_sided);
        struct powersgd_settings low_rank = low_rank_settings(&tensors[i], settings->two_sided);
        bytes += 8 * all;
        if (is_low_rank(&tensors[i], settings->two_sided))
            bytes += powersgd_memory(&low_rank);
        else if (tensors[i].kind == SYNC_ROWS)
            bytes += 8 * all;
        scratch = most > scratch ? most : scratch;
    }
    return bytes + 12 * scratch;
}

size_t sync_bound_bytes(const struct sync_settings *settings, const struct sync_tensor *tensors, int count)
{
    size_t most = 0;
    for (int f = 0; f < settings->fragments; f++) {
        size_t bytes = 0;
        for (int i = 0; i < count; i++) {
            int64_t rows = tensors[i].rows, columns = tensors[i].columns, side = rows > columns ? rows : columns;
            if (tensors[i].fragment == f && is_low_rank(&tensors[i], settings->two_sided))
                bytes += payload_bytes(PAYLOAD_BF16, side, tensors[i].rank);
            else if (tensors[i].fragment == f)
                bytes += payload_bytes(payload_of(&tensors[i]), rows, columns);
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- life ---- */

static bool take_tensor(struct tensor *tensor, const struct sync_tensor *is, bool two_sided)
{
    struct powersgd_settings low_rank = low_rank_settings(is, two_sided);
    *tensor = (struct tensor){.is = *is, .payload = payload_of(is), .count = is->rows * is->columns, .rank = is->rank};
    size_t bytes = (size_t)tensor->count * sizeof(float);
    tensor->common = mem_large(bytes);
    tensor->momentum = mem_large(bytes);
    if (!tensor->common || !tensor->momentum)
        return false;
    if (is_low_rank(is, two_sided))
        return (tensor->powersgd = powersgd_new(&low_rank)) != NULL;
    if (is->kind != SYNC_ROWS)
        return true;
    tensor->error = mem_large(bytes);
    tensor->matrix = mem_large(bytes);
    return tensor->error && tensor->matrix;
}

int sync_new(const struct sync_settings *settings, const struct sync_tensor *tensors, int count, struct sync **sync, struct why *why)
{
    size_t scratch = 0;
    struct sync *made = mem_new(sizeof *made);
    made->settings = *settings;
    made->tensors = mem_array((size_t)count, sizeof *made->tensors);
    bool taken = true;
    for (int i = 0; i < count && taken; i++) {
        size_t most = (size_t)scratch_floats(&tensors[i], settings->two_sided);
        BUG_IF(tensors[i].fragment < 0 || tensors[i].fragment >= settings->fragments);
        taken = take_tensor(&made->tensors[i], &tensors[i], settings->two_sided);
        made->count++;
        scratch = most > scratch ? most : scratch;
    }
    if (taken) {
        made->sum = mem_large(scratch * sizeof(float));
        made->part = mem_large(scratch * sizeof(float));
        made->own = mem_large(scratch * sizeof(float));
    }
    if (!made->sum || !made->part || !made->own) {
        sync_free(made);
        return why_set(why, ERR_MEMORY, "no memory for what replicas keep in common: %" PRIu64 " MiB",
                       sync_memory(settings, tensors, count) >> 20);
    }
    *sync = made;
    return 0;
}

void sync_free(struct sync *sync)
{
    if (!sync)
        return;
    for (int i = 0; i < sync->count; i++) {
        mem_large_free(sync->tensors[i].common);
        mem_large_free(sync->tensors[i].momentum);
        mem_large_free(sync->tensors[i].error);
        mem_large_free(sync->tensors[i].matrix);
        powersgd_free(sync->tensors[i].powersgd);
    }
    mem_large_free(sync->sum);
    mem_large_free(sync->part);
    mem_large_free(sync->own);
    mem_free(sync->tensors);
    mem_free(sync);
}

void sync_begin(struct sync *sync, const struct sync_weights *weights)
{
    for (int i = 0; i < sync->count; i++)
        weights->get(weights->arg, i, sync->tensors[i].common);
}

const float *sync_common(const struct sync *sync, int tensor)
{
    return sync->tensors[tensor].common;
}

void sync_take(struct sync *sync, const struct sync_weights *weights)
{
    for (int i = 0; i < sync->count; i++)
        weights->set(weights->arg, i, sync->tensors[i].common);
}

int sync_restore(struct sync *sync, const struct sync_weights *weights)
{
    int restored = 0;
    for (int i = 0; i < sync->count; i++) {
        weights->get(weights->arg, i, sync->part);
        if (payload_finite(sync->part, sync->tensors[i].count))
            continue;
        weights->set(weights->arg, i, sync->tensors[i].common);
        restored++;
    }
    return restored;
}

/* ---- a fragment as it is, for one that joins ---- */

enum part { PART_COMMON, PART_MOMENTUM, PART_ROUNDS, PART_RANK, PART_BASIS, PARTS };

/* The basis has room for the most columns of the longer side, as it does in memory. */
static size_t part_bytes(const struct tensor *tensor, int part)
{
    int64_t side = tensor->is.rows > tensor->is.columns ? tensor->is.rows : tensor->is.columns;
    if (part <= PART_MOMENTUM)
        return (size_t)tensor->count * sizeof(float);
    if (!tensor->powersgd)
        return 0;
    return part == PART_BASIS ? (size_t)(side * tensor->is.rank) * sizeof(float) : sizeof(uint64_t);
}

static const void *part_of(const struct tensor *tensor, int part, uint64_t *number)
{
    const float *basis = tensor->powersgd ? powersgd_basis(tensor->powersgd, number) : NULL;
    if (part == PART_RANK)
        *number = (uint64_t)powersgd_rank(tensor->powersgd);
    return part == PART_COMMON ? tensor->common : part == PART_MOMENTUM ? tensor->momentum : part == PART_BASIS ? basis : (const void *)number;
}

size_t sync_state_bytes(const struct sync *sync, int fragment)
{
    size_t bytes = 0;
    for (int i = 0; i < sync->count; i++)
        for (int part = 0; part < PARTS && sync->tensors[i].is.fragment == fragment; part++)
            bytes += part_bytes(&sync->tensors[i], part);
    return bytes;
}

void sync_state_get(const struct sync *sync, int fragment, size_t offset, size_t count, uint8_t *out)
{
    size_t at = 0, end = offset + count; /* of the part, in all bytes; of what is wanted */
    for (int i = 0; i < sync->count; i++)
        for (int part = 0; part < PARTS && sync->tensors[i].is.fragment == fragment; part++) {
            uint64_t number;
            size_t bytes = part_bytes(&sync->tensors[i], part);
            size_t first = offset > at ? offset - at : 0, last = end > at ? end - at : 0;
            last = last < bytes ? last : bytes;
            if (first < last)
                memcpy(out + (at + first - offset), (const uint8_t *)part_of(&sync->tensors[i], part, &number) + first, last - first);
            at += bytes;
        }
}

static int put_basis(struct tensor *tensor, const uint8_t *at, struct why *why)
{
    uint64_t rounds, rank;
    memcpy(&rounds, at, sizeof rounds);
    memcpy(&rank, at + sizeof rounds, sizeof rank);
    if (rank < 1 || rank > (uint64_t)tensor->is.rank)
        return why_set(why, ERR_INVALID, "a basis of rank %" PRIu64 "; the most is %" PRId64, rank, tensor->is.rank);
    powersgd_drop(tensor->powersgd);
    powersgd_set_rank(tensor->powersgd, (int64_t)rank);
    powersgd_join(tensor->powersgd, (const float *)(const void *)(at + sizeof rounds + sizeof rank), rounds);
    return 0;
}

int sync_state_put(struct sync *sync, int fragment, const uint8_t *bytes, size_t count, struct why *why)
{
    if (count != sync_state_bytes(sync, fragment))
        return why_set(why, ERR_INVALID, "fragment %d has %zu bytes, not %zu", fragment, sync_state_bytes(sync, fragment), count);
    for (int i = 0; i < sync->count; i++) {
        struct tensor *tensor = &sync->tensors[i];
        size_t values = (size_t)tensor->count * sizeof(float);
        if (tensor->is.fragment != fragment)
            continue;
        memcpy(tensor->common, bytes, values);
        memcpy(tensor->momentum, bytes + values, values);
        bytes += 2 * values;
        if (tensor->error)
            memset(tensor->error, 0, values);
        int err = tensor->powersgd ? put_basis(tensor, bytes, why) : 0;
        if (err)
            return err;
        for (int part = PART_ROUNDS; part < PARTS; part++)
            bytes += part_bytes(tensor, part);
    }
    return 0;
}

/* ---- on disk ---- */

static const float *error_of(const struct tensor *tensor)
{
    return tensor->powersgd ? powersgd_error(tensor->powersgd) : tensor->error;
}

size_t sync_save_bytes(const struct sync *sync)
{
    size_t bytes = 0;
    for (int f = 0; f < sync->settings.fragments; f++)
        bytes += sync_state_bytes(sync, f);
    for (int i = 0; i < sync->count; i++)
        bytes += error_of(&sync->tensors[i]) ? (size_t)sync->tensors[i].count * sizeof(float) : 0;
    return bytes;
}

void sync_save(const struct sync *sync, uint8_t *out)
{
    for (int f = 0; f < sync->settings.fragments; f++) {
        sync_state_get(sync, f, 0, sync_state_bytes(sync, f), out);
        out += sync_state_bytes(sync, f);
    }
    for (int i = 0; i < sync->count; i++) {
        const float *error = error_of(&sync->tensors[i]);
        size_t bytes = error ? (size_t)sync->tensors[i].count * sizeof *error : 0;
        if (bytes)
            memcpy(out, error, bytes);
        out += bytes;
    }
}

int sync_load(struct sync *sync, const uint8_t *bytes, size_t count, struct why *why)
{
    int err = 0;
    if (count != sync_save_bytes(sync))
        return why_set(why, ERR_INVALID, "what replicas have in common is saved in %zu bytes, %zu are right", count, sync_save_bytes(sync));
    for (int f = 0; f < sync->settings.fragments && !err; f++) {
        size_t part = sync_state_bytes(sync, f);
        uint8_t *aligned = mem_new(part + 1);
        memcpy(aligned, bytes, part);
        err = sync_state_put(sync, f, aligned, part, why);
        mem_free(aligned);
        bytes += part;
    }
    for (int i = 0; i < sync->count && !err; i++) {
        struct tensor *tensor = &sync->tensors[i];
        size_t part = error_of(tensor) ? (size_t)tensor->count * sizeof(float) : 0;
        if (part)
            memcpy(sync->part, bytes, part);
        if (part && tensor->powersgd)
            powersgd_set_error(tensor->powersgd, sync->part);
        else if (part)
            memcpy(tensor->error, sync->part, part);
        bytes += part;
    }
    return err;
}

/* ---- what a tensor sends in an exchange ---- */

int sync_exchanges(const struct sync *sync, int fragment)
{
    int most = 1;
    for (int i = 0; i < sync->count; i++)
        if (sync->tensors[i].is.fragment == fragment && sync->tensors[i].powersgd && powersgd_exchanges(sync->tensors[i].powersgd) > most)
            most = powersgd_exchanges(sync->tensors[i].powersgd);
    return most;
}

/* Rows and columns of what a tensor sends now; false when it sends nothing. What travels as it is goes with the last exchange, so that
 * nothing has changed when an earlier one fails. */
static bool sends(const struct sync *sync, const struct tensor *tensor, int fragment, int exchange, bool most, int64_t *rows,
                  int64_t *columns)
{
    if (tensor->is.fragment != fragment)
        return false;
    *rows = 1;
    if (tensor->powersgd) {
        *columns = most ? powersgd_most_count(tensor->powersgd, exchange) : powersgd_count(tensor->powersgd, exchange);
        return true;
    }
    *rows = tensor->is.rows;
    *columns = tensor->is.columns;
    return exchange == sync_exchanges(sync, fragment) - 1;
}

size_t sync_most_bytes(const struct sync *sync, int fragment, int exchange)
{
    size_t bytes = 0;
    int64_t rows, columns;
    for (int i = 0; i < sync->count; i++)
        if (sends(sync, &sync->tensors[i], fragment, exchange, true, &rows, &columns))
            bytes += payload_bytes(sync->tensors[i].payload, rows, columns);
    return bytes;
}

/* common − local into `out`. */
static void take_given(struct sync *sync, int index, const struct sync_weights *weights, float *out)
{
    const struct tensor *tensor = &sync->tensors[index];
    weights->get(weights->arg, index, out);
    for (int64_t i = 0; i < tensor->count; i++)
        out[i] = tensor->common[i] - out[i];
}

static void fill_values(struct sync *sync, int index, int exchange, const struct sync_weights *weights)
{
    struct tensor *tensor = &sync->tensors[index];
    if (!tensor->powersgd || exchange == 0)
        take_given(sync, index, weights, sync->sum);
    if (tensor->powersgd) {
        if (exchange == 0)
            powersgd_begin(tensor->powersgd, sync->sum);
        powersgd_contribute(tensor->powersgd, exchange, sync->sum);
    } else if (tensor->matrix) {
        for (int64_t i = 0; i < tensor->count; i++)
            tensor->matrix[i] = sync->sum[i] += tensor->error[i];
    }
}

void sync_set_rank(struct sync *sync, int64_t rank)
{
    for (int i = 0; i < sync->count; i++)
        if (sync->tensors[i].powersgd && !sync->tensors[i].is.rank_stays)
            sync->tensors[i].rank = rank < sync->tensors[i].is.rank ? rank : sync->tensors[i].is.rank;
}

size_t sync_contribute(struct sync *sync, int fragment, int exchange, const struct sync_weights *weights, uint8_t *out)
{
    uint8_t *at = out;
    int64_t rows, columns;
    for (int i = 0; i < sync->count; i++) {
        struct tensor *tensor = &sync->tensors[i];
        if (tensor->powersgd && tensor->is.fragment == fragment && exchange == 0)
            powersgd_set_rank(tensor->powersgd, tensor->rank);
        if (!sends(sync, tensor, fragment, exchange, false, &rows, &columns))
            continue;
        fill_values(sync, i, exchange, weights);
        at += payload_encode(tensor->payload, sync->sum, rows, columns, at);
    }
    return (size_t)(at - out);
}

void sync_listen(struct sync *sync, int fragment)
{
    for (int i = 0; i < sync->count; i++) {
        struct tensor *tensor = &sync->tensors[i];
        if (!tensor->powersgd || tensor->is.fragment != fragment)
            continue;
        powersgd_set_rank(tensor->powersgd, tensor->rank);
        memset(sync->sum, 0, (size_t)tensor->count * sizeof *sync->sum);
        powersgd_begin(tensor->powersgd, sync->sum);
    }
}

/* ---- what comes of all contributions ---- */

/* Before anything changes: are all of them what they must be? */
static int check_part(struct sync *sync, int fragment, int exchange, const struct sync_part *part, struct why *why)
{
    size_t used = 0;
    int64_t rows, columns;
    for (int i = 0; i < sync->count; i++) {
        const struct tensor *tensor = &sync->tensors[i];
        if (!sends(sync, tensor, fragment, exchange, false, &rows, &columns))
            continue;
        bool finite;
        int64_t took = payload_check(tensor->payload, part->bytes + used, part->count - used, rows, columns, sync->part, &finite, why);
        if (took < 0)
            return (int)took;
        if (!finite)
            return why_set(why, ERR_INVALID, "the contribution of replica %d is not finite (tensor %d of the stage)", part->replica, i);
        used += (size_t)took;
    }
    if (used != part->count)
        return why_set(why, ERR_INVALID, "the contribution of replica %d has %zu bytes too many", part->replica, part->count - used);
    return 0;
}

/* The mean of a tensor's values into sync->sum, the own ones, where an error is kept of them, into sync->own; moves the parts on. */
static void take_mean(struct sync *sync, const struct tensor *tensor, struct sync_part *parts, int count, int self, int64_t rows,
                      int64_t columns)
{
    for (int p = 0; p < count; p++) {
        int64_t took = payload_decode(tensor->payload, parts[p].bytes, parts[p].count, rows, columns, sync->part, NULL);
        BUG_IF(took < 0);
        parts[p].bytes += took;
        parts[p].count -= (size_t)took;
        if (parts[p].replica == self && (tensor->matrix || tensor->powersgd))
            memcpy(sync->own, sync->part, (size_t)(rows * columns) * sizeof *sync->own);
        for (int64_t i = 0; i < rows * columns; i++)
            sync->sum[i] = p == 0 ? parts[p].share * sync->part[i] : sync->sum[i] + parts[p].share * sync->part[i];
    }
}

static void step_tensor(struct sync *sync, struct tensor *tensor, int exchange, const struct sync_outer *outer)
{
    float *decoded = sync->sum;
    if (tensor->powersgd && exchange + 1 < powersgd_exchanges(tensor->powersgd)) {
        powersgd_turn(tensor->powersgd, sync->sum);
        return;
    }
    if (tensor->powersgd) {
        powersgd_commit(tensor->powersgd, sync->own, sync->sum, 1 - outer->alpha, sync->part);
        decoded = sync->part;
    }
    for (int64_t i = 0; tensor->matrix && i < tensor->count; i++)
        tensor->error[i] = (1 - outer->alpha) * (tensor->matrix[i] - sync->own[i]);
    outer_step(tensor->common, tensor->momentum, decoded, tensor->count, outer->rate, outer->momentum);
}

int sync_receive(struct sync *sync, int fragment, int exchange, const struct sync_part *parts, int count, int self,
                 const struct sync_outer *outer, struct why *why)
{
    struct sync_part at[64];
    int64_t rows, columns;
    BUG_IF(count < 1 || count > 64);
    for (int p = 0; p < count; p++) {
        int err = check_part(sync, fragment, exchange, &parts[p], why);
        at[p] = parts[p];
        if (err) {
            sync_drop(sync, fragment);
            return err;
        }
    }
    for (int i = 0; i < sync->count; i++) {
        struct tensor *tensor = &sync->tensors[i];
        if (!sends(sync, tensor, fragment, exchange, false, &rows, &columns))
            continue;
        take_mean(sync, tensor, at, count, self, rows, columns);
        step_tensor(sync, tensor, exchange, outer);
    }
    return 0;
}

void sync_drop(struct sync *sync, int fragment)
{
    for (int i = 0; i < sync->count; i++)
        if (sync->tensors[i].is.fragment == fragment && sync->tensors[i].powersgd)
            powersgd_drop(sync->tensors[i].powersgd);
}

static uint64_t hash_tensor(const struct tensor *tensor, uint64_t hash)
{
    uint64_t own = hash_block(tensor->common, (size_t)tensor->count * sizeof *tensor->common);
    return hash_add(hash, &own, sizeof own);
}

uint64_t sync_merge(struct sync *sync, int fragment, float alpha, const struct sync_weights *weights)
{
    uint64_t hash = HASH_START;
    for (int i = 0; i < sync->count; i++) {
        const struct tensor *tensor = &sync->tensors[i];
        if (tensor->is.fragment != fragment)
            continue;
        weights->get(weights->arg, i, sync->part);
        outer_merge(sync->part, tensor->common, tensor->count, alpha);
        weights->set(weights->arg, i, sync->part);
        hash = hash_tensor(tensor, hash); /* while it is in the cache */
    }
    return hash_finish(hash);
}

uint64_t sync_hash(const struct sync *sync, int fragment)
{
    uint64_t hash = HASH_START;
    for (int i = 0; i < sync->count; i++)
        if (sync->tensors[i].is.fragment == fragment)
            hash = hash_tensor(&sync->tensors[i], hash);
    return hash_finish(hash);
}

/* ---- the end ---- */

size_t sync_final_bytes(const struct sync *sync, int tensor)
{
    return payload_bytes(PAYLOAD_BF16, 1, sync->tensors[tensor].count);
}

void sync_final_contribute(struct sync *sync, int tensor, const struct sync_weights *weights, uint8_t *out)
{
    take_given(sync, tensor, weights, sync->sum);
    payload_encode(PAYLOAD_BF16, sync->sum, 1, sync->tensors[tensor].count, out);
}

int sync_final_receive(struct sync *sync, int index, const struct sync_part *parts, int count, const struct sync_weights *weights,
                       uint64_t *left_out, struct why *why)
{
    struct tensor *tensor = &sync->tensors[index];
    float all = 0;
    *left_out = 0;
    memset(sync->sum, 0, (size_t)tensor->count * sizeof *sync->sum);
    for (int p = 0; p < count; p++) {
        if (parts[p].count != sync_final_bytes(sync, index))
            return why_set(why, ERR_INVALID, "replica %d sent %zu bytes of tensor %d at the end, %zu are right", parts[p].replica,
                           parts[p].count, index, sync_final_bytes(sync, index));
        payload_decode(PAYLOAD_BF16, parts[p].bytes, parts[p].count, 1, tensor->count, sync->part, NULL);
        if (!payload_finite(sync->part, tensor->count)) {
            *left_out |= UINT64_C(1) << parts[p].replica;
            continue;
        }
        all += parts[p].share;
        for (int64_t i = 0; i < tensor->count; i++)
            sync->sum[i] += parts[p].share * sync->part[i];
    }
    for (int64_t i = 0; i < tensor->count && all > 0; i++)
        tensor->common[i] -= *left_out ? sync->sum[i] / all : sync->sum[i];
    weights->set(weights->arg, index, tensor->common);
    return 0;
}
