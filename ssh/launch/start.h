/*
 * One program, started so that it outlives us: two forks, a session of its own, stdin from /dev/null, standard error into
 * its log file, and a pipe on its stdout for one line: "ready WORDS" or "error SENTENCE". Then we let go.
 *
 * Every start has a deadline; the callback comes exactly once, from the loop, unless start_free came first. start_free
 * never ends the program: that is clean.h's business, by lock file.
 */
#ifndef KEDGE_LAUNCH_START_H
#define KEDGE_LAUNCH_START_H

#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/link/loop.h"

struct start;

/* err 0: `text` is what stands behind "ready ". Else it is the program's own sentence, or ours. */
typedef void start_cb(int err, const char *text, void *arg);

/* `argv[0]` is the path of the program, NULL ends; `mark` goes into its environment as KEDGE_RUN=mark; `log_path` gets what
 * the program says on standard error (before it has its own log, or when it dies). */
struct start *start_new(struct loop *loop, const char *const *argv, const char *mark, const char *log_path,
                        uint64_t deadline_ns, start_cb *done, void *arg, struct why *why);
void start_free(struct start *start); /* NULL is fine */

#endif
