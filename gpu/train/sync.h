/*
 * What a stage and its siblings (the same stage of the other replicas) keep in common, and how a round changes it. Pure: contributions
 * are bytes, who carries them is not seen here (gpu/train/siblings.c does).
 *
 *   given = common − local weights  ── payload ──►  contribution ──► all siblings
 *   contributions of all, in the order of the replicas ──► mean, fp32 ──► outer step on the common copy ──► merge into the local weights
 *
 * Everybody decodes the same bytes (its own, too) by the same scalar code, so common copy, outer momentum and bases are the same bits
 * on all replicas for ever; what differs is the local weights and the error that is left of what this replica wanted to send.
 *
 * A contribution is the tensors of the fragment one behind the other. 1-D tensors are few and travel dense; the embedding and the head
 * have their own kind. A round with a number that is not finite is refused as a whole: nothing has changed then.
 */
#ifndef KEDGE_TRAIN_SYNC_H
#define KEDGE_TRAIN_SYNC_H

#include "gpu/math/payload.h"
#include "gpu/train/fragments.h"
#include "ssh/base/why.h"

enum sync_kind { SYNC_FP32, SYNC_BF16, SYNC_INT8, SYNC_INT4, SYNC_E3M0, SYNC_POWERSGD, SYNC_ROWS };

struct sync_tensor {
    int64_t rows, columns;
    int fragment;
    int kind;      /* enum sync_kind; of 1-D tensors fp32 or bf16 */
    int64_t rank;  /* of PowerSGD, where it pays; else the tensor travels as bf16 */
    bool rank_stays; /* sync_set_rank is not for it */
    uint64_t seed; /* of run and name */
};

struct sync_settings {
    int fragments;
    bool two_sided;  /* PowerSGD: the classic form instead of the alternating one */
};

/* The local weights. */
struct sync_weights {
    void (*get)(void *arg, int tensor, float *out);
    void (*set)(void *arg, int tensor, const float *values);
    void *arg;
};

struct sync_part { /* one replica's contribution */
    int replica;
    const uint8_t *bytes;
    size_t count;
    float share; /* of the mean; all shares are 1 together */
};

struct sync_outer {
    float rate, momentum;
    float alpha; /* of the merge; 1 − alpha of the residual is kept as error */
};

struct sync;

int sync_new(const struct sync_settings *settings, const struct sync_tensor *tensors, int count, struct sync **sync, struct why *why);
void sync_free(struct sync *sync);
/* The most bytes of any contribution of a round. */
size_t sync_bound_bytes(const struct sync_settings *settings, const struct sync_tensor *tensors, int count);
uint64_t sync_memory(const struct sync_settings *settings, const struct sync_tensor *tensors, int count);
/* The common copy begins as the local weights, which are the same everywhere. */
void sync_begin(struct sync *sync, const struct sync_weights *weights);

/* ---- one that joins: a fragment as it is between two rounds. Common copy and outer momentum of its tensors, bases with their rank
 * and number of rounds; errors are not part of it. With it errors are zero. ---- */
size_t sync_state_bytes(const struct sync *sync, int fragment);
void sync_state_get(const struct sync *sync, int fragment, size_t offset, size_t count, uint8_t *out);
int sync_state_put(struct sync *sync, int fragment, const uint8_t *bytes, size_t count, struct why *why);
void sync_take(struct sync *sync, const struct sync_weights *weights); /* the local weights become the common copy */
/* Those tensors alone whose local values are not all finite; how many they were. */
int sync_restore(struct sync *sync, const struct sync_weights *weights);

/* ---- one that goes on from disk, between two rounds: all of the above of all fragments, and the errors ---- */
size_t sync_save_bytes(const struct sync *sync);
void sync_save(const struct sync *sync, uint8_t *out);
int sync_load(struct sync *sync, const uint8_t *bytes, size_t count, struct why *why);

/* ---- a round of a fragment ---- */
/* Of every tensor from its next round on: at most the rank that it began with, less where it has fewer. */
void sync_set_rank(struct sync *sync, int64_t rank);
int sync_exchanges(const struct sync *sync, int fragment);
size_t sync_most_bytes(const struct sync *sync, int fragment, int exchange);
size_t sync_contribute(struct sync *sync, int fragment, int exchange, const struct sync_weights *weights, uint8_t *out);
/* The parts of all, own included, in the order of the replicas. After the last exchange the common copy has made its step.
 * ERR_INVALID with the reason: not the bytes of this fragment, or not finite; the round is dropped then. */
/* Of one that listens (anchor.follow), ahead of the first exchange, in place of a contribution; self is −1 then. */
void sync_listen(struct sync *sync, int fragment);
int sync_receive(struct sync *sync, int fragment, int exchange, const struct sync_part *parts, int count, int self,
                 const struct sync_outer *outer, struct why *why);
void sync_drop(struct sync *sync, int fragment); /* the round failed; harmless when none is under way */
/* The hash of the common copy, as sync_hash. */
uint64_t sync_merge(struct sync *sync, int fragment, float alpha, const struct sync_weights *weights);
uint64_t sync_hash(const struct sync *sync, int fragment); /* of the common copy */
const float *sync_common(const struct sync *sync, int tensor);

/* ---- the exchange of everything at the end, a tensor at a time: bf16 of common − local; all become common − mean. Parts that are not
 * finite are left out of it, by all replicas alike: `left_out` has a bit for each of those replicas. ---- */
size_t sync_final_bytes(const struct sync *sync, int tensor);
void sync_final_contribute(struct sync *sync, int tensor, const struct sync_weights *weights, uint8_t *out);
int sync_final_receive(struct sync *sync, int tensor, const struct sync_part *parts, int count, const struct sync_weights *weights,
                       uint64_t *left_out, struct why *why);

#endif
