/* See bases.h. */
#include "gpu/train/bases.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "ssh/base/mem.h"

struct bases {
    pthread_mutex_t lock;
    int64_t rank;
    int count, parts;
    struct matrix *matrices;
    struct bases_part part[BASES_PARTS];
    struct bases_set sets[BASES_MOST]; /* version 0: free */
    int here[BASES_MOST];              /* matrices and parts of it */
};

struct bases *bases_new(const struct stage_shape *shape, int64_t rank, const struct bases_part *parts, int count)
{
    struct bases *bases = mem_new(sizeof *bases);
    BUG_IF(count < 0 || count > BASES_PARTS || (rank < 0 && count == 0));
    if (pthread_mutex_init(&bases->lock, NULL) != 0)
        BUG("no mutex");
    bases->rank = rank;
    bases->count = rank >= 0 ? matrices_count(shape) : 0;
    bases->matrices = mem_array((size_t)matrices_count(shape), sizeof *bases->matrices);
    matrices_list(shape, bases->matrices);
    for (bases->parts = 0; bases->parts < count; bases->parts++) {
        bases->part[bases->parts] = parts[bases->parts];
        bases->part[bases->parts].settings.table = NULL;
    }
    return bases;
}

void bases_set_clear(struct bases_set *set)
{
    for (int i = 0; set->matrices && i < set->count; i++)
        mem_free(set->matrices[i].body);
    for (int i = 0; i < BASES_PARTS; i++)
        mem_free(set->states[i]);
    mem_free(set->matrices);
    *set = (struct bases_set){0};
}

void bases_free(struct bases *bases)
{
    if (!bases)
        return;
    for (int i = 0; i < BASES_MOST; i++)
        bases_set_clear(&bases->sets[i]);
    pthread_mutex_destroy(&bases->lock);
    mem_free(bases->matrices);
    mem_free(bases);
}

const struct bases_part *bases_part(const struct bases *bases, int index)
{
    return index < bases->parts ? &bases->part[index] : NULL;
}

static int check(const struct bases *bases, const struct wire_basis *basis, struct why *why)
{
    const struct matrix *matrix = basis->matrix < bases->count ? &bases->matrices[basis->matrix] : NULL;
    if (!matrix || basis->matrices != bases->count || basis->version == 0 || basis->rows != matrix->rows ||
        basis->columns != matrix->columns || basis->rank != matrices_rank(matrix, bases->rank) ||
        basis->body.bytes != matrices_basis_bytes(matrix, bases->rank))
        return why_set(why, ERR_INVALID,
                       "directions of matrix %u of %u, %u × %u, rank %u, version %" PRIu64 ": this stage has %d "
                       "matrices and no such one",
                       basis->matrix, basis->matrices, basis->rows, basis->columns, basis->rank, basis->version,
                       bases->count);
    return 0;
}

/* The slot of a version, or that of the oldest one, made free. */
static int slot_of(struct bases *bases, uint64_t version)
{
    int oldest = 0;
    for (int i = 0; i < BASES_MOST; i++) {
        if (bases->sets[i].version == version)
            return i;
        oldest = bases->sets[i].version < bases->sets[oldest].version ? i : oldest;
    }
    bases_set_clear(&bases->sets[oldest]);
    bases->here[oldest] = 0;
    bases->sets[oldest] = (struct bases_set){
        .version = version, .count = bases->count, .matrices = mem_array((size_t)bases->count + 1, sizeof(struct bases_matrix))};
    return oldest;
}

/* One more of what makes a version whole, unless it was here: then `*place` is not NULL. Under the lock. */
static int keep(struct bases *bases, int slot, uint8_t **place, const struct wire_bytes *body)
{
    if (*place)
        return 0;
    *place = mem_copy(body->data, body->bytes);
    return ++bases->here[slot] == bases->count + bases->parts;
}

int bases_put(struct bases *bases, const struct wire_basis *basis, struct why *why)
{
    int err = check(bases, basis, why);
    if (err)
        return err;
    pthread_mutex_lock(&bases->lock);
    int slot = slot_of(bases, basis->version);
    struct bases_matrix *at = &bases->sets[slot].matrices[basis->matrix];
    at->rank = basis->rank;
    at->energy = basis->energy;
    int whole = keep(bases, slot, &at->body, &basis->body);
    pthread_mutex_unlock(&bases->lock);
    return whole;
}

int bases_put_statistics(struct bases *bases, const struct wire_statistics *statistics, struct why *why)
{
    const struct wire_bytes *body = &statistics->body;
    uint64_t version = statistics->version;
    enum codec_way way = statistics->backward ? CODEC_BACKWARD : CODEC_FORWARD;
    int i = 0;
    while (i < bases->parts && (bases->part[i].settings.boundary != statistics->boundary || bases->part[i].way != way))
        i++;
    if (i == bases->parts || version == 0 || version > UINT32_MAX)
        return why_set(why, ERR_INVALID, "statistics of boundary %u, version %" PRIu64 ": this stage awaits none such",
                       statistics->boundary, version);
    if (body->bytes != codec_made_bytes(&bases->part[i].settings, way))
        return why_set(why, ERR_INVALID, "statistics of boundary %u, version %" PRIu64 ": %u bytes came, %zu are right",
                       statistics->boundary, version, body->bytes, codec_made_bytes(&bases->part[i].settings, way));
    int err = codec_check_state(&bases->part[i].settings, way, (uint32_t)version, body->data, body->bytes, why);
    if (err)
        return err;
    pthread_mutex_lock(&bases->lock);
    int slot = slot_of(bases, version), whole = keep(bases, slot, &bases->sets[slot].states[i], body);
    pthread_mutex_unlock(&bases->lock);
    return whole;
}

bool bases_take(struct bases *bases, uint64_t version, struct bases_set *set)
{
    bool found = false;
    pthread_mutex_lock(&bases->lock);
    for (int i = 0; i < BASES_MOST; i++)
        if (bases->sets[i].version == version && bases->here[i] == bases->count + bases->parts) {
            *set = bases->sets[i];
            bases->sets[i] = (struct bases_set){0};
            bases->here[i] = 0;
            found = true;
        }
    for (int i = 0; found && i < BASES_MOST; i++)
        if (bases->sets[i].version && bases->sets[i].version < version) {
            bases_set_clear(&bases->sets[i]);
            bases->here[i] = 0;
        }
    pthread_mutex_unlock(&bases->lock);
    return found;
}
