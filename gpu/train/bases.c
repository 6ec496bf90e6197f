/* See bases.h. */
#include "gpu/train/bases.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "ssh/base/mem.h"

struct bases {
    pthread_mutex_t lock;
    int64_t rank;
    int count;
    struct matrix *matrices;
    struct bases_set sets[BASES_MOST]; /* version 0: free */
    int here[BASES_MOST];              /* matrices of it */
};

struct bases *bases_new(const struct stage_shape *shape, int64_t rank)
{
    struct bases *bases = mem_new(sizeof *bases);
    if (pthread_mutex_init(&bases->lock, NULL) != 0)
        BUG("no mutex");
    bases->rank = rank;
    bases->count = matrices_count(shape);
    bases->matrices = mem_array((size_t)bases->count, sizeof *bases->matrices);
    matrices_list(shape, bases->matrices);
    return bases;
}

void bases_set_clear(struct bases_set *set)
{
    for (int i = 0; set->matrices && i < set->count; i++)
        mem_free(set->matrices[i].body);
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

int bases_matrices(const struct bases *bases)
{
    return bases->count;
}

uint64_t bases_memory(const struct stage_shape *shape, int64_t rank)
{
    int count = matrices_count(shape);
    struct matrix *matrices = mem_array((size_t)count, sizeof *matrices);
    uint64_t sum = 0;
    matrices_list(shape, matrices);
    for (int i = 0; i < count; i++)
        sum += matrices_basis_bytes(&matrices[i], rank);
    mem_free(matrices);
    return sum * BASES_MOST;
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
        .version = version, .count = bases->count, .matrices = mem_array((size_t)bases->count, sizeof(struct bases_matrix))};
    return oldest;
}

int bases_put(struct bases *bases, const struct wire_basis *basis, struct why *why)
{
    int err = check(bases, basis, why);
    if (err)
        return err;
    pthread_mutex_lock(&bases->lock);
    int slot = slot_of(bases, basis->version);
    struct bases_matrix *at = &bases->sets[slot].matrices[basis->matrix];
    bool new = !at->body;
    if (new)
        *at = (struct bases_matrix){basis->rank, basis->energy, mem_copy(basis->body.data, basis->body.bytes)};
    bases->here[slot] += new;
    int whole = new && bases->here[slot] == bases->count;
    pthread_mutex_unlock(&bases->lock);
    return whole;
}

bool bases_take(struct bases *bases, uint64_t version, struct bases_set *set)
{
    bool found = false;
    pthread_mutex_lock(&bases->lock);
    for (int i = 0; i < BASES_MOST; i++)
        if (bases->sets[i].version == version && bases->here[i] == bases->count) {
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
