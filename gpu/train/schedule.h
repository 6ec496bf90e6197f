/*
 * Latency-aware 1F1B as a pure core: what a stage does next, from counters that only grow. No clock, no I/O.
 *
 * For a step of M micro-batches, stage i of p: forwarded ≤ M, backwarded ≤ forwarded. A stage prefers backward when the
 * gradient of micro-batch `backwarded` is here; else it forwards micro-batch `forwarded` when its input is here and
 * forwarded − backwarded < limit; else it waits, and says for what. The last stage runs backward of a micro-batch right
 * after its forward. An evaluation pass is the same with an empty gradient as the acknowledgement. Both orders are 0, 1, 2,
 * …: results do not depend on timing.
 *
 * Limit at stage 0: ⌈(p·t + 2(p−1)δ)/max(t, ℓ)⌉ + 1, at stage i scaled to p−i computations and 2(p−1−i) hops, at least p −
 * i, at most M and at most the slots that memory was planned for. δ is one way: delay and the transfer ℓ of one message.
 */
#ifndef KEDGE_TRAIN_SCHEDULE_H
#define KEDGE_TRAIN_SCHEDULE_H

#include <stdint.h>

enum schedule_action { SCHEDULE_FORWARD, SCHEDULE_BACKWARD, SCHEDULE_WAIT_ACT, SCHEDULE_WAIT_GRAD, SCHEDULE_DONE };

struct schedule {
    int stage, stages, micro_batches, limit;
    int arrived_activations;   /* inputs here (stage 0: always M) */
    int arrived_gradients;     /* last stage: equals forwarded */
    int forwarded, backwarded; /* done */
};

/* t: compute seconds of one micro-batch forward + backward on one stage, delay: one-way seconds, transfer: seconds to send
 * one message. */
int schedule_limit(int stage, int stages, int micro_batches, int slots, double t, double delay, double transfer);
void schedule_begin(struct schedule *schedule, int stage, int stages, int micro_batches, int limit);
/* Pure look; the caller does it and then counts forwarded/backwarded up. */
enum schedule_action schedule_next(const struct schedule *schedule);

#endif
