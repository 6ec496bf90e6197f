/*
 * A text, or the log of a process, in the user's $PAGER; and the end of a log.
 */
#ifndef KEDGE_CONSOLE_PAGER_H
#define KEDGE_CONSOLE_PAGER_H

#include <stddef.h>

#include "ssh/base/why.h"
#include "ssh/link/loop.h"

/* Until the pager ends; the loop goes on meanwhile, so that roads live. `text`, or when it is NULL the log of process `log`. */
int pager_run(struct loop *loop, const char *folder, const char *log, const char *text, struct why *why);
/* The last whole lines of FOLDER/log/LOG.log; "" when there is none. */
void pager_tail(const char *folder, const char *log, char *out, size_t size);

#endif
