/*
 * The judge of the model: a plain fp64 forward of a whole Llama, one loop per formula, for ever slow and clear. Weights are
 * looked up by their Hugging Face names in arrays that the test owns, so that it can move them and take finite differences.
 */
#ifndef KEDGE_TESTS_LLAMA_H
#define KEDGE_TESTS_LLAMA_H

#include "gpu/model/model.h"

struct llama {
    struct model_shape shape;
    int count;
    struct tensor_info *info; /* [count] */
    double **values;          /* [count], product of shape each */
};

/* The weights (or gradients) of a whole model in one stage. */
void llama_init(struct llama *llama, const struct model_shape *shape, struct stage *stage, bool gradients);
void llama_clear(struct llama *llama);
int64_t llama_size(const struct llama *llama, int index);
/* Σ loss over targets (UINT32_MAX = none). */
double llama_loss(const struct llama *llama, const uint32_t *ids, const uint32_t *targets, int64_t sequences,
                  int64_t tokens);

#endif
