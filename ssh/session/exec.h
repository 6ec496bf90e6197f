/*
 * Commands on a host. Login shells talk: a message of the day, an echo in .bashrc. So the command is run by /bin/sh
 * behind a marker
 * that nobody can have printed before, and what comes in front of the marker is noise.
 *
 * Commands are one line (csh takes no newline inside quotes) of POSIX shell.
 */
#ifndef KEDGE_SESSION_EXEC_H
#define KEDGE_SESSION_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/buf.h"
#include "ssh/base/why.h"
#include "ssh/link/road.h"
#include "ssh/session/session.h"

/* Standard input and output of a command as a road; it stands once the marker came. `open_ns` as in channel.h, marker
 * included. */
struct road *exec_road(struct session *session, const char *command, uint64_t open_ns);
/* How it ended, once known; its newest words on standard error (one line). */
bool exec_exit(const struct road *road, int *status, char signal[32]);
const char *exec_errors(const struct road *road, char *out, size_t size);
/* What it said on standard error is the reason of its end, for who only sees a road. */
void exec_explain(struct road *road);
size_t exec_room(const struct road *road); /* bytes that can be written now */
uint64_t exec_least_ns(const struct road *road); /* as channel_least_ns */

/* One command with its input and all of its output. */
struct exec;
/* err 0: it ended with status 0. ERR_INVALID: with another one; `reason` says it with its last words. Else the
 * session's trouble. */
typedef void exec_cb(struct exec *exec, int err, const char *reason, void *arg);

/* `input` is copied, NULL = none. More output than `most` bytes is an error. `what` for the reason: "looking for the
 * worker". */
struct exec *exec_run(struct session *session, const char *what, const char *command, const void *input, size_t input_bytes,
                      size_t most, uint64_t deadline_ns, exec_cb *cb, void *arg);
const char *exec_output(const struct exec *exec, size_t *bytes); /* NUL-terminated behind its bytes */
int exec_status(const struct exec *exec);                        /* −1: a signal, or not known */
void exec_free(struct exec *exec);                               /* NULL is fine */

/* Append `text` as one word of a shell. */
void exec_quote(struct buf *buf, const char *text);

#endif
