/*
 * The file here that is sent: read at any place, from any thread.
 */
#ifndef KEDGE_SESSION_SOURCE_H
#define KEDGE_SESSION_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "ssh/base/why.h"

struct source {
    char *path; /* owned */
    int fd;
    uint64_t bytes;
    struct timespec changed;
};

/* A regular file. source_close it also when it failed. */
int source_open(struct source *source, const char *path, struct why *why);
void source_close(struct source *source);
/* Exactly `bytes` from `at` on. ERR_INVALID: it has become shorter. */
int source_read(const struct source *source, uint64_t at, uint8_t *out, size_t bytes, struct why *why);

#endif
