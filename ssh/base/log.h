/*
 * One log file per process; levels say volume, subsystems say topic.
 *
 * A line is `2026-11-29T19:48:59.123456Z level subsystem: text`. Control characters in the text are
 * written as \xNN, so that a hostile peer cannot forge lines. Lines longer than 2,000 bytes are cut with
 * "…". The first lines of a log tell the world: program, version, pid, host, CPU features.
 * Safe from any thread.
 */
#ifndef KEDGE_BASE_LOG_H
#define KEDGE_BASE_LOG_H

#include <stddef.h>

#include "ssh/base/why.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

/* Open (append) the log of this process and write the first lines. `path` NULL logs to stderr.
 * Before log_open, lines go to stderr at WARN and above. When the file passes `max_bytes` (0 = 16 MiB) it is
 * renamed to PATH.1 and begun anew, so a log is bounded; less than 16 KiB is taken as 16 KiB. Lines that a full disk
 * refuses are counted, and the count is logged when there is room again. */
int log_open(const char *path, const char *program, size_t max_bytes, struct why *why);
void log_close(void);
void log_set_level(enum log_level level);
/* "error" "warn" "info" "debug" "trace" → level; -1 for anything else. */
int log_level_from_name(const char *name);

void log_at(enum log_level level, const char *subsystem, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
