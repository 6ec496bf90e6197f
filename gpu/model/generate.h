/*
 * Text that grows: the tokens so far go through the whole model once, their keys and values are kept, and each new token costs one
 * row. Owned by one thread; all memory is taken at the beginning.
 */
#ifndef KEDGE_MODEL_GENERATE_H
#define KEDGE_MODEL_GENERATE_H

#include "gpu/model/model.h"

struct generator;

/* A Hugging Face folder, a PEFT folder (NULL: none) and room for `context` tokens. */
int generator_new(const struct ops *ops, struct device *device, const char *folder, const char *adapter, int64_t context,
                  struct generator **generator, struct why *why);
void generator_free(struct generator *generator);
const struct model_shape *generator_shape(const struct generator *generator);
/* The next tokens of the text; logits[vocabulary] (host) are those behind the last. Ids must fit (model_ids_fit) and there must be
 * room: BUG. */
void generator_feed(struct generator *generator, const uint32_t *ids, int64_t count, float *logits);
int64_t generator_length(const struct generator *generator); /* tokens so far */
int64_t generator_room(const struct generator *generator);   /* for more */
void generator_rewind(struct generator *generator);          /* none */

struct choice {
    float temperature; /* 0: the most likely token, the first of equals */
    float top_p;       /* among the fewest tokens that have this share together; 1 = all */
    uint64_t state;    /* of the dice: the same beginning gives the same text */
};

uint32_t choice_make(struct choice *choice, const float *logits, int64_t vocabulary);

#endif
