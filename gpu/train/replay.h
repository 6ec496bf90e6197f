/*
 * The anchor as a listener of rounds (anchor.follow): it keeps what the siblings of every stage have in common, in fp32, and
 * takes their outer steps by the same code from the same bytes, so that it owns the common copy to the last bit. With every
 * version come the hashes of what it must be; a fragment that is something else, or of which a round is missing, is wanted whole.
 *
 * All of it on the loop thread: a round costs about what it costs the siblings, and only the anchor waits for it.
 */
#ifndef KEDGE_TRAIN_REPLAY_H
#define KEDGE_TRAIN_REPLAY_H

#include "gpu/train/assembly.h"
#include "profiles/profile.h"

struct replay;

/* `whole`: the model; `profile` outlives it. */
struct replay *replay_new(const struct profile *profile, const struct stage_shape *whole, int stages);
void replay_free(struct replay *replay);
uint64_t replay_memory(const struct profile *profile, const struct stage_shape *whole); /* about: scratch is counted once */
/* One more than the round that a fragment is held of; 0: it is wanted whole. */
uint64_t replay_held(struct replay *replay, int stage, int fragment);
/* A fragment of the stage that was lost and not said to be, until now; −1: none. */
int replay_lost(struct replay *replay, int stage);
uint64_t replay_repeated(const struct replay *replay); /* fragments that were lost so far */
/* A piece of what a stage of that replica tells. 0; 1: the version `piece->number` is whole, and held by `assembly`;
 * 2: it never will be, since a fragment is lost, which comes with the next one; ERR_INVALID: it has no place here; ERR_MEMORY. */
int replay_take(struct replay *replay, struct assembly *assembly, int stage, int replica, const struct wire_follow *piece,
                struct why *why);

#endif
