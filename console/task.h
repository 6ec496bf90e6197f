/*
 * A command of ours at work beside the screen, on a terminal of its own: what it says comes as it says it, and its questions can be
 * answered. Nothing here waits. So the screen checks, plans and launches by the very commands that the command line has.
 *
 *   task_new → said … (task_answer, task_interrupt) → over, once → task_free
 */
#ifndef KEDGE_CONSOLE_TASK_H
#define KEDGE_CONSOLE_TASK_H

#include <stdbool.h>
#include <stddef.h>

#include "ssh/base/why.h"
#include "ssh/link/loop.h"

struct task;

struct task_callbacks {
    void (*said)(const char *bytes, size_t count, bool hidden, void *arg); /* hidden: it switched off the echo of what is typed */
    void (*over)(int exit_code, void *arg);                                /* task_free is allowed */
};

/* `kedge WORDS…` (NULL at the end), with lines of `columns`. */
struct task *task_new(struct loop *loop, const char *const *words, int columns, const struct task_callbacks *callbacks, void *arg,
                      struct why *why);
void task_answer(struct task *task, const char *line);
void task_interrupt(struct task *task); /* as Ctrl-C does: it cleans up and ends */
void task_free(struct task *task);      /* one that is still at work is hung up, as by a closed terminal; NULL is fine */

#endif
