/*
 * What an anchor that follows is told by a stage (anchor.follow): every exchange of every round, as the siblings had it, so that
 * it takes the same outer step; and the common copy itself where it does not know the round before.
 *
 *   compute thread  follow_round, follow_version ──► entries, in order, a bounded number of bytes ──► follow_next  loop
 * thread
 *
 * Entries wait until a version is captured and then travel as they are granted, up to that version. Nobody waits: without room
 * all fragments are lost, and one of which a round was skipped or that the anchor has other news of; what is lost travels whole
 * with the next version.
 */
#ifndef KEDGE_TRAIN_FOLLOW_H
#define KEDGE_TRAIN_FOLLOW_H

#include "gpu/train/snap.h"
#include "gpu/train/sync.h"

struct follow;

/* `ready` is called on the loop's thread when there is a piece. */
struct follow *follow_new(struct loop *loop, const struct stage_shape *shape, int fragments, loop_cb *ready, void *arg);
void follow_free(struct follow *follow); /* the compute thread is done with it */
/* Most bytes that ever wait: all of the common copy, and the rounds of two periods. */
uint64_t follow_bound(const struct sync *sync, int fragments, int replicas);

/* ---- compute thread ---- */
void follow_set_bound(struct follow *follow, uint64_t bytes);
/* An exchange that was applied: of `is` number, exchange, fragment, rank, rate and momentum count. `last`: the round is over.
 * Copies. */
void follow_round(struct follow *follow, const struct wire_follow *is, bool last, const struct sync_part *parts, int count);
bool follow_is_greeted(struct follow *follow); /* the anchor has said what it holds: nothing needs to travel twice */
void follow_lose(struct follow *follow, int fragment); /* it changed, and not by a round that was told */
/* What has been told makes this version; to an anchor that has not said what it holds, all is told. rounds[fragments]: the newest
 * that have ended. The bytes that travel for it. */
uint64_t follow_version(struct follow *follow, const struct sync *sync, uint64_t version, const uint64_t *rounds);

/* ---- loop thread ---- */
void follow_road(struct follow *follow, bool stands);
/* Said of every fragment when a road stands, and of one that the anchor has lost. */
int follow_want(struct follow *follow, const struct wire_want *want, struct why *why);
bool follow_next(struct follow *follow, struct snap_piece *piece);
uint64_t follow_newest(struct follow *follow); /* version; 0 = none */
uint64_t follow_full_bytes(const struct follow *follow); /* of a version in bf16 */

#endif
