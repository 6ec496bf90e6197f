/* The inside of the anchor: anchor.c (life, loop thread), anchor_pass.c (compute thread), anchor_cuts.c (statistics of the run's cuts). */
#ifndef KEDGE_TRAIN_ANCHOR_INSIDE_H
#define KEDGE_TRAIN_ANCHOR_INSIDE_H

#include <pthread.h>

#include "gpu/math/codec.h"
#include "gpu/math/subspace.h"
#include "gpu/model/data.h"
#include "gpu/train/anchor.h"
#include "gpu/train/assembly.h"
#include "gpu/train/matrices.h"
#include "gpu/train/replay.h"

struct anchor_matrix {
    struct matrix is;
    int64_t rank;
    float *mean;  /* device: Σ of gradients, each β times as heavy as the next, over versions */
    float *start; /* host: where the next search begins */
};

struct anchor {
    struct compute_settings settings;
    struct assembly *assembly;
    struct replay *replay; /* loop thread; NULL: snapshots come as words */
    uint64_t flipped_ns; /* loop thread */
    int sender;          /* loop thread: the replica that began the newest snapshot */
    uint64_t rate_bps;   /* loop thread: of each road to a stage; 0: as link.pace says */

    /* compute thread */
    struct mail *mail;
    pthread_t thread;
    bool running;
    const struct ops *ops;
    struct device *device;
    struct stage *model;
    struct data *data;
    struct subspace *subspace;
    struct anchor_matrix *matrices;
    int count;
    uint64_t versions; /* gradients in the means */
    uint32_t *windows, *inputs, *targets;
    uint8_t *marks;
    bool *begins;                   /* [sequences, tokens] a document begins with this input */
    float *left, *right, *singular; /* host, of the largest matrix */
    uint8_t *body;                  /* of the largest basis */
    size_t body_bytes;
    uint64_t memory_bytes;
    struct codec **cuts; /* [stages − 1]: only their statistics; NULL: the stages measure themselves */
    float *table;        /* device: features of tokens */
    uint16_t *words; /* of the lifeboat; NULL: there is none */
    uint64_t done;   /* newest version that was computed */
};

/* ---- anchor_pass.c ---- */
struct stage_shape pass_shape(const struct profile *profile); /* of the whole model */
int pass_load(struct anchor *anchor, struct why *why);
void pass_free(struct anchor *anchor);
/* Everything about the newest version. 0, or ERR_GONE: an order came. */
int pass_run(struct anchor *anchor);
void pass_tell(struct anchor *anchor, enum wire_type type, const void *payload, uint64_t step);

/* ---- anchor_cuts.c: nothing, where the stages measure themselves ---- */
int cuts_load(struct anchor *anchor, struct why *why);
void cuts_free(struct anchor *anchor);
/* Of the micro-batch whose windows are in anchor->windows and whose backward pass follows. */
void cuts_watch(struct anchor *anchor);
/* To both ends of every cut, in all replicas. 0, ERR_GONE: an order came, ERR_ABSENT: there is no solution. */
int cuts_send(struct anchor *anchor, uint64_t version);
size_t cuts_letter_bytes(const struct profile *profile); /* of all statistics of one version, to one replica */

#endif
