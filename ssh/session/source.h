/*
 * The file here that is sent: read at any place, and its SHA-256 made in passing, never by reading it twice from the disk.
 */
#ifndef KEDGE_SESSION_SOURCE_H
#define KEDGE_SESSION_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "ssh/base/why.h"
#include "ssh/link/digest.h"

struct source {
    char *path; /* owned */
    int fd;
    uint64_t bytes;
    struct timespec changed;
    struct digest *digest;
    uint64_t hashed_bytes;
    char hash[DIGEST_HEX]; /* "" until all of it was hashed */
    uint8_t piece[65536];  /* of the moment: stays in the cache between reading and hashing */
};

/* A regular file. source_close it also when it failed. */
int source_open(struct source *source, const char *path, struct why *why);
void source_close(struct source *source);
/* Exactly `bytes` from `at` on. ERR_INVALID: it has become shorter. */
int source_read(const struct source *source, uint64_t at, uint8_t *out, size_t bytes, struct why *why);
/* Up to `most` more bytes go into the hash. */
int source_hash(struct source *source, size_t most, struct why *why);
void source_hash_anew(struct source *source);

#endif
