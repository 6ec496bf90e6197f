/*
 * The compute thread of a stage: it owns the device, the model, the codecs and (on stage 0) the data, and speaks with the
 * loop thread by mail only. Its life: load → READY_LOADED → passes as stage 0 stamps them → ended.
 *
 * It ends when stopped, when the step was abandoned because a peer is lost, and when it found that the stages do not agree
 * any more
 * ("drift"). Memory and weights stay as they are until compute_free.
 */
#ifndef KEDGE_TRAIN_COMPUTE_H
#define KEDGE_TRAIN_COMPUTE_H

#include "gpu/train/mail.h"
#include "profiles/profile.h"
#include "ssh/wire/wire.h"

struct snap;
struct follow;
struct bases;

struct compute_settings {
    struct profile profile;
    struct wire_assign assign;                       /* without its tail */
    char name[WIRE_NAME];                            /* ours, "r0s1" */
    char folder[512]; /* of the run */
    char host[WIRE_NAME];                            /* ours */
    char upstream[WIRE_NAME], downstream[WIRE_NAME]; /* names of the neighbours, "" where there is none */
    struct snap *snap;   /* where snapshots go; NULL: none are taken here. Outlives the compute, as */
    struct follow *follow; /* where rounds go, in their place (anchor.follow); and */
    struct bases *bases; /* where the anchor's directions come from; NULL: there is no anchor */
};

struct compute;

/* Refuses settings that no stage can have, before anything is taken. */
int compute_new(const struct compute_settings *settings, struct compute **compute, struct why *why);
/* Most letters and bytes that credit allows in the mail of this stage, and in the queue of its ACT lane. */
void compute_bounds(const struct compute_settings *settings, size_t *letters, size_t *bytes);
struct codec_settings;
void compute_boundary(const struct compute_settings *settings, bool down, struct codec_settings *codec); /* of the cut on that side */
struct stage_shape;
struct stage_shape compute_shape(const struct compute_settings *settings); /* of one micro-batch in flight */
int compute_start(struct compute *compute, struct mail *mail, struct why *why);
struct data;
/* What a profile's [data] names, checked for its windows. */
int compute_open_data(const struct profile *profile, int threads, void (*tell_cb)(const char *text, void *arg), void *arg,
                      struct data **data, struct why *why);
void compute_join(struct compute *compute); /* waits for the thread: MAIL_ENDED says when that is short */
void compute_free(struct compute *compute);

#endif
