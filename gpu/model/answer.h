/*
 * The final answer of a worked solution, as GSM8K and its like write it: what stands behind the last "####" on its line. Two answers
 * are the same when they are the same number (42, 42.0, $42 and 42,000 without its comma), or else the same text.
 */
#ifndef KEDGE_MODEL_ANSWER_H
#define KEDGE_MODEL_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#define ANSWER_MARK "####"

enum { ANSWER_MAX = 200 };

/* The answer, without blanks around it; false when there is none (no mark, nothing behind it, or too long). With `first` it is that
 * behind the first mark: a model may go on after its answer. */
bool answer_find(const char *text, size_t bytes, bool first, char answer[ANSWER_MAX]);
/* Has the line of the first mark been ended? Nothing that follows can change the answer then. */
bool answer_is_whole(const char *text, size_t bytes);
bool answer_same(const char *one, const char *other);

#endif
