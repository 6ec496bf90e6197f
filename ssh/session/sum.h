/*
 * The sum of a file here, made on a thread of its own while the file is sent, as far as it may: never far ahead of what is sent, so that
 * nothing is read twice from the disk. The loop's thread has the encrypting to do, and there is a second processor.
 */
#ifndef KEDGE_SESSION_SUM_H
#define KEDGE_SESSION_SUM_H

#include "ssh/link/digest.h"
#include "ssh/link/loop.h"
#include "ssh/session/source.h"

struct sum;

/* `cb` comes once from the loop: all was hashed, or cannot be. The source outlives it. */
struct sum *sum_new(struct loop *loop, const struct source *source, enum digest_kind kind, loop_cb *cb, void *arg);
void sum_free(struct sum *sum); /* ends the thread; NULL is fine */
/* It may be hashed up to there. */
void sum_until(struct sum *sum, uint64_t end);
/* 0 and the hash in hexadecimal; ERR_AGAIN while it is not known; or why it cannot be. */
int sum_get(struct sum *sum, char hash[DIGEST_HEX], struct why *why);

#endif
