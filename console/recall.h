/*
 * The past of a run: `kedged history` as a child of ours, read as it speaks, so that a long journal holds nobody up.
 */
#ifndef KEDGE_CONSOLE_RECALL_H
#define KEDGE_CONSOLE_RECALL_H

#include <stdbool.h>

#include "ssh/base/why.h"
#include "ssh/link/loop.h"

struct recall;

/* `line` for each line, then NULL once at the end. */
struct recall *recall_new(struct loop *loop, const char *folder, void (*line)(const char *line, void *arg), void *arg, struct why *why);
void recall_free(struct recall *recall); /* ends the child; NULL is fine */
bool recall_is_over(const struct recall *recall);

#endif
