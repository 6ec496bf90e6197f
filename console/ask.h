/*
 * Questions on the way to a host, on a terminal in line mode: is this key the host's, the passphrase of a key, a password. One
 * at a time, the others wait in a queue; the loop goes on meanwhile. What is typed hidden is never shown and wiped at once.
 */
#ifndef KEDGE_CONSOLE_ASK_H
#define KEDGE_CONSOLE_ASK_H

#include <stdbool.h>

#include "ssh/link/loop.h"
#include "ssh/session/session.h"

struct ask;

/* NULL when nobody is here: standard input or standard error is no terminal. */
struct ask *ask_new(struct loop *loop);
/* A session_callbacks.ask; `arg` is the struct ask. */
void ask_question(struct session *session, const struct session_question *question, void *arg);
/* Around what others print meanwhile: the question stands last again. NULL is fine. */
void ask_step_aside(struct ask *ask);
void ask_come_back(struct ask *ask);
void ask_free(struct ask *ask); /* puts the terminal's echo back; NULL is fine */

#endif
