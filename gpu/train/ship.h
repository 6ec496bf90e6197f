/* The loop thread's part in snapshots: grants in, pieces out, the anchor's words in. */
#ifndef KEDGE_TRAIN_SHIP_H
#define KEDGE_TRAIN_SHIP_H

#include "gpu/train/worker.h"

int ship_open(struct worker *worker, struct compute_settings *settings, struct why *why);
size_t ship_queue_bytes(const struct worker *worker); /* beyond what credit allows */
void ship_free(struct worker *worker);
void ship_road(struct worker *worker, bool stands);
int ship_message(struct worker *worker, const struct frame_header *header, const uint8_t *payload, size_t bytes,
                 struct why *why);
void ship_grant(struct worker *worker, const struct wire_grant *grant);
void ship_report(struct worker *worker); /* now and then: how far it is */

#endif
