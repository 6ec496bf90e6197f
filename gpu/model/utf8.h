/*
 * Characters in bytes from strangers, and the alphabet in which byte-level BPE writes bytes: printable Latin-1 stands for
 * itself, the other 68 bytes are U+0100 and on, in order.
 */
#ifndef KEDGE_MODEL_UTF8_H
#define KEDGE_MODEL_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character here, 1 to 4; 0 when there is none (overlong, surrogate, cut off, beyond U+10FFFF, or no room). */
size_t utf8_read(const uint8_t *at, size_t room, uint32_t *code);
size_t utf8_length(const uint8_t *at, size_t room);
/* How many bytes from here on are characters, or are none: so a text is cut into runs that are UTF-8 and runs that are not.
 */
size_t utf8_run(const uint8_t *at, size_t room, bool *valid);
/* The start of the character before `at`, or one byte before it where there is none; at > 0. */
size_t utf8_before(const uint8_t *text, size_t at);

/* The first place of a word in a text, or NULL; linear, and under sanitizers too, whose memmem reads all of the text each
 * time. */
const uint8_t *utf8_find(const uint8_t *text, size_t bytes, const void *word, size_t word_bytes);

bool utf8_is_space(uint32_t code); /* White_Space of Unicode */
bool utf8_is_word(uint32_t code);  /* letters, marks, digits and what joins them */

size_t utf8_from_byte(uint8_t byte, uint8_t out[2]);
/* out has room for `bytes`; false when a character is not of that alphabet. */
bool utf8_to_bytes(const uint8_t *text, size_t bytes, uint8_t *out, size_t *count);

#endif
