#include "gpu/train/matrices.h"

#include <stdio.h>
#include <string.h>

#include "gpu/model/carve.h"
#include "ssh/base/mem.h"

static int class_of(const char *name)
{
    static const char *const names[MATRIX_CLASSES] = {
        [MATRIX_Q] = "q_proj.weight",      [MATRIX_K] = "k_proj.weight",       [MATRIX_V] = "v_proj.weight",
        [MATRIX_O] = "o_proj.weight",      [MATRIX_GATE] = "gate_proj.weight", [MATRIX_UP] = "up_proj.weight",
        [MATRIX_DOWN] = "down_proj.weight"};
    const char *dot = strrchr(name, '.');
    while (dot && dot > name && dot[-1] != '.')
        dot--;
    for (int i = 0; dot && i < MATRIX_CLASSES; i++)
        if (strcmp(dot, names[i]) == 0)
            return i;
    return -1;
}

int matrices_count(const struct stage_shape *shape)
{
    return (int)shape->layers * MATRICES_OF_LAYER;
}

void matrices_list(const struct stage_shape *shape, struct matrix *matrices)
{
    struct carve_weights weights;
    int count = 0, most = matrices_count(shape);
    carve_weights(shape, &weights, NULL);
    struct carve_tensor *tensors = mem_array((size_t)weights.tensors, sizeof *tensors);
    carve_weights(shape, &weights, tensors);
    for (int i = 0; i < weights.tensors; i++) {
        int found = class_of(tensors[i].name), layer = 0;
        if (found < 0)
            continue;
        BUG_IF(count == most || tensors[i].dims != 2 || sscanf(tensors[i].name, "model.layers.%d.", &layer) != 1);
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
    return (size_t)matrices_rank(matrix, rank) * (4 + 2 * (size_t)(matrix->rows + matrix->columns));
}
