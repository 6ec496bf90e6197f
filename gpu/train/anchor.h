/*
 * The anchor: a slow clean loop beside the run, always a little behind, never waited for.
 *
 *   loop thread     chunks of snapshots ──► assembly ──► MAIL_FLIPPED       (assembly.h)
 *   compute thread  newest version ──► un-masked forward and backward on windows of its own ──► mean over versions, for each
 * decoder matrix ──► its strongest directions ──► every stage of every replica; then the un-masked validation loss of the
 * version; then the version as a file (lifeboat)
 *
 * It has the whole model on one device: weights, gradients, the means, activations of one micro-batch. Versions that come
 * faster than it computes are passed over.
 */
#ifndef KEDGE_TRAIN_ANCHOR_H
#define KEDGE_TRAIN_ANCHOR_H

#include "gpu/train/compute.h"
#include "ssh/wire/frame.h"

struct anchor;
struct worker;

int anchor_new(const struct compute_settings *settings, struct anchor **anchor, struct why *why);
void anchor_bounds(const struct anchor *anchor, size_t *letters, size_t *bytes);
int anchor_start(struct anchor *anchor, struct mail *mail, struct why *why);
void anchor_join(struct anchor *anchor);
void anchor_free(struct anchor *anchor);

/* ---- loop thread; `process`: a stage, replica · stages + stage ---- */
void anchor_road(struct anchor *anchor, int process, struct worker *worker); /* it stands */
void anchor_grant(struct anchor *anchor, const struct wire_grant *grant, struct worker *worker); /* the pace of all roads */
int anchor_message(struct anchor *anchor, int process, const struct frame_header *header, const uint8_t *payload,
                   size_t bytes, struct worker *worker, struct why *why);

#endif
