/*
 * The text of tokens as they come, in pieces that may be shown at once: a character whose bytes have not all come waits. Bytes that
 * are no UTF-8 become U+FFFD, so what is shown always is. What has been shown is forgotten but for a few tokens, on which the text
 * of the next one may depend (a space between words): the cost of a token does not grow with the text.
 */
#ifndef KEDGE_MODEL_GROWTH_H
#define KEDGE_MODEL_GROWTH_H

#include "gpu/model/tokenizer.h"

struct growth;

struct growth *growth_new(const struct tokenizer *tokenizer); /* which outlives it */
void growth_free(struct growth *growth);
/* Appends to `out` what is certain with this token too. Special tokens have no text. */
int growth_add(struct growth *growth, uint32_t id, struct buf *out, struct why *why);
/* The text ends: what waited comes out. */
int growth_end(struct growth *growth, struct buf *out, struct why *why);

#endif
