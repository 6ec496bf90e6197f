/*
 * Processes that we started, and theirs: looked up in /proc by parent and session, never by name. The agent is a child
 * subreaper, so whatever its descendants leave behind becomes its own child, even when it made a session of its own.
 */
#ifndef KEDGE_TRAIN_FAMILY_H
#define KEDGE_TRAIN_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ssh/base/why.h"

struct family_member {
    pid_t pid, parent, session;
    uint64_t start; /* field 22 of its stat: with the pid it names a process for ever */
    bool zombie;
};

/* False when there is no such process. */
bool family_look(pid_t pid, struct family_member *member);
/* From now on orphans among our descendants become our children. */
int family_adopt(struct why *why);
/* Signal all living descendants of `root` (not itself); the number of them. number 0 only counts. */
int family_signal(pid_t root, int number);
/* Signal all living members of a session; the number of them. A session's number is not given away while it has members. */
int family_signal_session(pid_t session, int number);

/* Start a program in a session of its own: stdin from /dev/null, stdout and stderr appended to `log`. `environment` is one
 * more NAME=VALUE. Failure of exec is a failure here. */
int family_start(const char *const *argv, const char *log, const char *environment, pid_t *pid, struct why *why);

#endif
