/* Random payloads of any message, made and compared by walking the table of the wire. */
#ifndef KEDGE_TESTS_MESSAGE_H
#define KEDGE_TESTS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "ssh/wire/wire.h"
#include "tests/helpers/dice.h"

/* A valid struct: numbers within their ranges, harmless UTF-8 that fits, a tail of at most tail_max bytes. */
void *message_random(struct dice *dice, const struct wire_message *message, size_t tail_max);
void message_free(const struct wire_message *message, void *payload);
bool message_same(const struct wire_message *message, const void *one, const void *other);
/* Harmless UTF-8 of at most size − 1 bytes. */
void message_text(struct dice *dice, char *out, size_t size);

#endif
