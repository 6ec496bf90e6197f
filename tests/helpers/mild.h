/*
 * The standard configuration of the method's numbers: a byte-level Llama (192 channels, 6 layers) adapted to grade-school
 * maths. The model
 * and the texts are data that not every machine has: mild_open exits with 77 where they are not.
 */
#ifndef KEDGE_TESTS_MILD_H
#define KEDGE_TESTS_MILD_H

#include "profiles/profile.h"

#define MILD_FIRST 1766626 /* byte of the training text where adaptation begins */

struct mild {
    char *train, *test; /* texts: question, newline, answer, two newlines, line by line */
    int64_t train_bytes, test_bytes;
    char file[PROFILE_TEXT]; /* of the adaptation text, in $TMP */
};

void mild_open(struct mild *mild);
void mild_close(struct mild *mild);
/* 4 stages (2, 1, 1 and 2 layers), 16 × 128 tokens a micro-batch, 4 micro-batches a step; dense. */
void mild_profile(const struct mild *mild, struct profile *profile);
extern const int64_t mild_layers[4];
/* starts[count]: ⌊linspace(0, length − 130, count)⌋ of the test text. */
void mild_windows(const struct mild *mild, int64_t count, int64_t *starts);

#endif
