#include "gpu/train/matrices.h"

#include <stdio.h>
#include <string.h>

#include "gpu/model/carve.h"
#include "ssh/base/mem.h"

/* "model.layers.3.self_attn.q_proj.weight", "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight" */
static int class_of(const char *name)
{
    static const char *const names[MATRIX_CLASSES] = {
        [MATRIX_Q] = ".q_proj.",      [MATRIX_K] = ".k_proj.",       [MATRIX_V] = ".v_proj.",
        [MATRIX_O] = ".o_proj.",      [MATRIX_GATE] = ".gate_proj.", [MATRIX_UP] = ".up_proj.",
        [MATRIX_DOWN] = ".down_proj."};
    for (int i = 0; i < MATRIX_CLASSES; i++)
        if (strstr(name, names[i]))
            return i;
    return -1;
}

int matrices_of_layer(const struct stage_shape *shape)
{
    return shape->lora.rank ? 2 * __builtin_popcount(shape->lora.targets) : MATRIX_CLASSES;
}

int matrices_count(const struct stage_shape *shape)
{
    return (int)shape->layers * matrices_of_layer(shape);
}

void matrices_list(const struct stage_shape *shape, struct matrix *matrices)
{
    struct carve_block block;
    struct carve_tensor *tensors = carve_trained(shape, &block);
    int count = 0, most = matrices_count(shape);
    for (int i = 0; i < block.tensors; i++) {
        int found = tensors[i].dims == 2 ? class_of(tensors[i].name) : -1, layer = 0;
        if (found < 0)
            continue;
        BUG_IF(count == most || sscanf(strstr(tensors[i].name, "model.layers."), "model.layers.%d.", &layer) != 1);
        matrices[count++] = (struct matrix){i, layer, found, tensors[i].rows, tensors[i].columns};
    }
    if (count != most)
        BUG("%d of the %d matrices of layers %lld to %lld would be corrected", count, most, (long long)shape->first_layer,
            (long long)(shape->first_layer + shape->layers - 1));
    mem_free(tensors);
}

int64_t matrices_rank(const struct matrix *matrix, int64_t rank)
{
    int64_t least = matrix->rows < matrix->columns ? matrix->rows : matrix->columns;
    return rank < least ? rank : least;
}

size_t matrices_basis_bytes(const struct matrix *matrix, int64_t rank)
{
    if (rank == 0)
        return 2 * (size_t)(matrix->rows * matrix->columns);
    return (size_t)matrices_rank(matrix, rank) * (4 + 2 * (size_t)(matrix->rows + matrix->columns));
}
