/*
 * Numbers that a reference library computed for one small batch, kept in FOLDER/NAME.safetensors: logits, loss, and grad.TENSOR of each
 * tensor. A stage's own are judged by them; what is not near enough fails the running test.
 */
#ifndef KEDGE_TESTS_FIXTURE_H
#define KEDGE_TESTS_FIXTURE_H

#include "gpu/model/model.h"

enum {
    FIXTURE_SEQUENCES = 2,
    FIXTURE_TOKENS = 24,
    FIXTURE_ROWS = FIXTURE_SEQUENCES * FIXTURE_TOKENS,
    FIXTURE_VOCABULARY = 40,
};

/* The batch, by the formulas of the scripts that made the numbers. Returns how many positions have a target. */
int fixture_batch(uint32_t ids[FIXTURE_ROWS], uint32_t targets[FIXTURE_ROWS]);
void fixture_logits(const char *path, struct stage *last); /* within 1e-5 */
void fixture_loss(const char *path, double loss);          /* within 1e-5 */
void fixture_gradients(const char *path, struct stage *stage, double tolerance);

#endif
