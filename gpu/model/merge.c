#include "gpu/model/merge.h"

#include <stdio.h>
#include <string.h>

#include "gpu/model/checkpoint.h"
#include "ssh/base/mem.h"

struct merge {
    struct checkpoint *base;
    struct lora_shape lora;
    bool copies_head; /* the base is tied, what is written is not */
    struct safetensors *const *files;
    size_t file_count;
    char of[96]; /* whose A and B are here; NULL: it has none */
    float *a, *b;
};

int merge_new(const char *base, const struct model_shape *shape, const struct lora_shape *lora, struct safetensors *const *files,
              size_t file_count, struct merge **merge, struct why *why)
{
    struct model_shape theirs;
    struct merge *new = mem_new(sizeof *new);
    int err = checkpoint_shape(base, &theirs, why);
    if (!err)
        err = checkpoint_open(base, &new->base, why);
    new->lora = *lora;
    new->copies_head = !err && theirs.tied && !shape->tied;
    new->files = files;
    new->file_count = file_count;
    if (err)
        merge_free(new);
    else
        *merge = new;
    return err;
}

void merge_free(struct merge *merge)
{
    if (!merge)
        return;
    checkpoint_close(merge->base);
    mem_free(merge->a);
    mem_free(merge->b);
    mem_free(merge);
}

/* One of a tensor's adapter; NULL in *out where no file has it. */
static int read_adapter(const struct merge *merge, const struct carve_tensor *of, char letter, int64_t rows, int64_t columns, float **out,
                        struct why *why)
{
    char name[160];
    const struct safetensors *file = NULL;
    int64_t shape[2] = {rows, columns};
    snprintf(name, sizeof name, CARVE_ADAPTER "%.*s.lora_%c.weight", (int)(strrchr(of->name, '.') - of->name), of->name, letter);
    for (size_t i = 0; i < merge->file_count && !file; i++)
        file = safetensors_has(merge->files[i], name) ? merge->files[i] : NULL;
    *out = file ? mem_array((size_t)(rows * columns), sizeof **out) : NULL;
    return file ? safetensors_get(file, name, 2, shape, 0, rows * columns, *out, why) : 0;
}

static int turn_to(struct merge *merge, const struct carve_tensor *tensor, struct why *why)
{
    if (strcmp(merge->of, tensor->name) == 0)
        return 0;
    mem_free(merge->a);
    mem_free(merge->b);
    merge->a = merge->b = NULL;
    memcpy(merge->of, tensor->name, sizeof merge->of);
    if (tensor->dims != 2)
        return 0;
    int err = read_adapter(merge, tensor, 'A', merge->lora.rank, tensor->columns, &merge->a, why);
    if (!err)
        err = read_adapter(merge, tensor, 'B', tensor->rows, merge->lora.rank, &merge->b, why);
    if (!err && !merge->a != !merge->b)
        err = why_set(why, ERR_ABSENT, "of the adapter of %s one half is missing", tensor->name);
    return err;
}

int merge_get(struct merge *merge, const struct carve_tensor *tensor, int64_t row, int64_t rows, float *out, struct why *why)
{
    bool copied = merge->copies_head && strcmp(tensor->name, "lm_head.weight") == 0;
    int64_t rank = merge->lora.rank, columns = tensor->columns;
    int err = checkpoint_get_rows(merge->base, copied ? CARVE_EMBEDDING : tensor->name, tensor->dims, tensor->rows, columns, row, rows, out,
                                  why);
    if (!err)
        err = turn_to(merge, tensor, why);
    for (int64_t r = row; r < row + rows && !err && merge->a; r++, out += columns)
        for (int64_t k = 0; k < rank; k++) {
            const float *a = merge->a + k * columns;
            float factor = merge->lora.alpha / (float)rank * merge->b[r * rank + k];
            for (int64_t c = 0; c < columns; c++)
                out[c] += factor * a[c];
        }
    return err;
}
