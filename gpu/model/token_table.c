#include "gpu/model/token_table.h"

#include <math.h>

#include "gpu/math/philox.h"
#include "gpu/model/carve.h"
#include "gpu/model/checkpoint.h"
#include "gpu/model/fresh.h"
#include "ssh/base/mem.h"

#define PIECE ((int64_t)1 << 20) /* floats that pass through the host at a time, at least a row */

static int64_t rank_of(const struct model_shape *shape, int64_t rank)
{
    return rank < 1 || rank > shape->hidden ? shape->hidden : rank;
}

int64_t token_table_count(const struct model_shape *shape, int64_t rank)
{
    return (shape->vocabulary + 1) * rank_of(shape, rank);
}

/* [width, rank] of ±1/√rank. */
static void fill_signs(float *signs, int64_t count, int64_t rank)
{
    float one = (float)(1 / sqrt((double)rank));
    for (int64_t i = 0; i < count; i += 128) {
        uint32_t counter[4] = {(uint32_t)(i / 128), 0, 0, (uint32_t)rank}, key[2] = {0x746f6b65, 0x6e73}, word[4];
        philox4x32(counter, key, word);
        for (int64_t k = 0; k < 128 && i + k < count; k++)
            signs[i + k] = word[k / 32] >> (k % 32) & 1 ? one : -one;
    }
}

struct table {
    const struct ops *ops;
    struct device *device;
    int64_t rows, width, rank, at_once;
    float *piece;         /* host [at_once, width] */
    float *whole, *signs; /* device [at_once, width], [width, rank]; only when projecting */
    float *out;           /* device [rows + 1, rank] */
};

static void put_rows(struct table *table, int64_t first, int64_t count)
{
    float *to = table->out + first * table->rank;
    size_t bytes = (size_t)(count * table->width) * sizeof(float);
    table->ops->copy_in(table->device, table->whole ? table->whole : to, table->piece, bytes);
    if (table->whole)
        table->ops->matmul(table->device, to, table->whole, table->signs, count, table->rank, table->width, table->width,
                           table->rank, table->rank, false, false, false);
    table->ops->finish(table->device);
}

static int fill_table(struct table *table, const struct model_shape *shape, const char *folder, uint64_t seed,
                      struct why *why)
{
    struct checkpoint *checkpoint = NULL;
    int err = *folder ? checkpoint_open(folder, &checkpoint, why) : 0;
    for (int64_t first = 0; first < table->rows && !err; first += table->at_once) {
        int64_t count = table->rows - first < table->at_once ? table->rows - first : table->at_once;
        if (*folder)
            err = checkpoint_get_rows(checkpoint, CARVE_EMBEDDING, 2, table->rows, table->width, first, count,
                                      table->piece, why);
        else
            fresh_normal(seed, CARVE_EMBEDDING, (uint64_t)(first * table->width), count * table->width,
                         carve_embedding_deviation(shape), table->piece);
        if (!err)
            put_rows(table, first, count);
    }
    if (checkpoint)
        checkpoint_close(checkpoint);
    return err;
}

static int take(struct table *table, bool projects)
{
    const struct ops *ops = table->ops;
    table->out = ops->alloc(table->device, (size_t)((table->rows + 1) * table->rank) * sizeof(float));
    if (!table->out || !projects)
        return table->out ? 0 : ERR_MEMORY;
    table->whole = ops->alloc(table->device, (size_t)(table->at_once * table->width) * sizeof(float));
    table->signs = ops->alloc(table->device, (size_t)(table->width * table->rank) * sizeof(float));
    return table->whole && table->signs ? 0 : ERR_MEMORY;
}

int token_table_new(const struct ops *ops, struct device *device, const struct model_shape *shape, const char *folder,
                    uint64_t seed, int64_t rank, float **out, struct why *why)
{
    struct table table = {.ops = ops, .device = device, .rows = shape->vocabulary, .width = shape->hidden,
                          .rank = rank_of(shape, rank)};
    table.at_once = PIECE / table.width > 1 ? PIECE / table.width : 1;
    table.piece = mem_array((size_t)(table.at_once * table.width), sizeof(float));
    int err = take(&table, table.rank < table.width);
    if (err) {
        why_set(why, err, "no memory for the features of %lld tokens (%.2f GiB); make boundary.rank smaller",
                (long long)table.rows, (double)token_table_count(shape, rank) * 4 / 0x1p30);
        goto out;
    }
    if (table.signs) {
        float *signs = mem_array((size_t)(table.width * table.rank), sizeof *signs);
        fill_signs(signs, table.width * table.rank, table.rank);
        ops->copy_in(device, table.signs, signs, (size_t)(table.width * table.rank) * sizeof *signs);
        ops->finish(device);
        mem_free(signs);
    }
    err = fill_table(&table, shape, folder, seed, why);
out:
    if (table.whole)
        ops->free(device, table.whole);
    if (table.signs)
        ops->free(device, table.signs);
    if (err && table.out)
        ops->free(device, table.out);
    mem_free(table.piece);
    if (!err)
        *out = table.out;
    return err;
}
