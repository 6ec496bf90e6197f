/* The matrices whose gradients are corrected: the seven of every decoder layer, or with LoRA A and B of every target, all of them, in the
 * order of the stage's tensors. */
#ifndef KEDGE_TRAIN_MATRICES_H
#define KEDGE_TRAIN_MATRICES_H

#include "gpu/model/model.h"
#include "ssh/wire/wire.h"

struct matrix {
    int tensor; /* index of stage_tensor */
    int layer, matrix_class;
    int64_t rows, columns;
};

int matrices_of_layer(const struct stage_shape *shape);
int matrices_count(const struct stage_shape *shape);
void matrices_list(const struct stage_shape *shape, struct matrix *matrices); /* [matrices_count] */
int64_t matrices_rank(const struct matrix *matrix, int64_t rank);             /* what a matrix can have of it; 0: it travels whole */
size_t matrices_basis_bytes(const struct matrix *matrix, int64_t rank);       /* of wire_basis.body */

#endif
