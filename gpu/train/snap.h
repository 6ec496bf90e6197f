/*
 * A stage's snapshots on their way to the anchor. The compute thread copies the weights that a step begins with, as bf16
 * words, and trains on; a thread of its own makes chunks of them, as differences from the newest version that the anchor is
 * known to hold; the loop thread takes what is ready as the scheduler grants it.
 *
 *   compute thread  snap_begin, snap_commit ──► words ──► (own thread) chunks, at most SNAP_READY ahead ──► snap_next  loop
 * thread
 *
 * Two images of the weights are kept: `base`, which the anchor holds, and the one that is being sent. They change places
 * when the anchor says that it holds the new one and its hash is ours. A new capture replaces one that is not through.
 * Whoever else says anything, or an anchor that lost its memory, gets whole chunks: nothing is guessed.
 */
#ifndef KEDGE_TRAIN_SNAP_H
#define KEDGE_TRAIN_SNAP_H

#include <stdbool.h>

#include "gpu/model/model.h"
#include "ssh/link/loop.h"
#include "ssh/wire/wire.h"

#define SNAP_READY 3

struct snap;

struct snap_piece { /* a message for the anchor */
    enum wire_type type;
    uint64_t version;
    uint8_t *payload; /* mem_free */
    size_t bytes;
    uint32_t chunks; /* of the version so far, this one included; of how many: */
    uint32_t of;
};

uint64_t snap_memory(const struct stage_shape *shape);
/* `ready` is called on the loop's thread when there is a piece. */
int snap_new(struct loop *loop, const struct stage_shape *shape, loop_cb *ready, void *arg, struct snap **snap,
             struct why *why);
void snap_free(struct snap *snap); /* the compute thread is done with it */

/* ---- compute thread ---- */
/* Where the words go, in the order of stage_words_get; then what version they are. The first waits for a chunk that is being
 * made of an older version, never for a road. */
uint16_t *snap_begin(struct snap *snap);
void snap_commit(struct snap *snap, uint64_t version);

/* ---- loop thread ---- */
void snap_road(struct snap *snap, bool stands);
void snap_held(struct snap *snap, const struct wire_held *held);
int snap_want(struct snap *snap, const struct wire_want *want, struct why *why);
bool snap_next(struct snap *snap, struct snap_piece *piece);
uint64_t snap_version(struct snap *snap); /* that is being sent; 0 = none */
uint64_t snap_full_bytes(const struct snap *snap);

#endif
