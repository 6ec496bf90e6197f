/*
 * A standing shell on a host: it is told lines and bytes, and says lines. Its command is a loop of `read` that somebody else
 * wrote; what passes between them is their business.
 *
 * Each callback may free the shell; one that has done so returns SHELL_GONE.
 */
#ifndef KEDGE_SESSION_SHELL_H
#define KEDGE_SESSION_SHELL_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/session/session.h"

struct shell;

enum shell_next {
    SHELL_ON,   /* go on; of `more`: something was put, or will be in the next turn of the loop */
    SHELL_WAIT, /* of `more`: nothing now, shell_poke when there is */
    SHELL_LAST, /* of `more`: nothing ever; its input ends */
    SHELL_GONE, /* the shell was freed */
};

struct shell_callbacks {
    enum shell_next (*line)(struct shell *shell, const char *line, void *arg); /* what it said, cut at 200 bytes */
    enum shell_next (*more)(struct shell *shell, void *arg);                   /* all is written: put more */
    /* Once, with its exit status, and `reason` with its last words. −1: its road ended, or a signal did it. */
    void (*ended)(struct shell *shell, int err, int status, const char *reason, void *arg);
};

/* `command` as in exec.h. */
struct shell *shell_new(struct session *session, const char *command, uint64_t open_ns, const struct shell_callbacks *callbacks,
                        void *arg);
void shell_free(struct shell *shell); /* NULL is fine */

/* Put words behind what is still to be written; there is room for a hundred such lines. */
void shell_put(struct shell *shell, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Put up to SHELL_BYTES from `more`: fill what is returned, then commit. */
#define SHELL_BYTES ((size_t)128 << 10)
uint8_t *shell_reserve(struct shell *shell, size_t bytes);
void shell_commit(struct shell *shell, size_t bytes);
/* Ask `more` again, from the loop. */
void shell_poke(struct shell *shell);
/* When the road took the newest of its bytes; 0 = never. */
uint64_t shell_moved_ns(const struct shell *shell);
uint64_t shell_least_ns(const struct shell *shell); /* as channel_least_ns */

#endif
