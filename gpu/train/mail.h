/*
 * The one crossing between a worker's two threads: the loop thread owns links, the compute thread owns device, model, codecs
 * and data.
 *
 *   loop thread     mail_post ──► inbox (bounded) ──► mail_take      compute thread     (mutex and condition)
 *                mail_collect ◄── outbox (bounded) ◄── mail_send                        (loop_wake)
 *
 * A letter is a wire message with its encoded payload; whoever has the letter owns the payload, nothing is copied on the
 * way. Both queues have their maxima from birth. A full inbox is a peer that breaks its credit. A full outbox holds the
 * compute thread, which cannot deadlock: the loop thread empties it without waiting for anybody.
 *
 * Two orders overtake the queues: stop and abandon. The compute thread looks for them between micro-batches and in every
 * wait.
 */
#ifndef KEDGE_TRAIN_MAIL_H
#define KEDGE_TRAIN_MAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/link/loop.h"

#define MAIL_REPLICAS 16  /* = PROFILE_MAX_REPLICAS */
#define MAIL_PROCESSES 64 /* = PROFILE_MAX_STAGES */

/* The sibling of replica r is MAIL_SIBLINGS + r. */
enum mail_road {
    MAIL_UPSTREAM,
    MAIL_DOWNSTREAM,
    MAIL_CONTROL,
    MAIL_SIBLINGS,
    MAIL_ANCHOR = MAIL_SIBLINGS + MAIL_REPLICAS, /* of a stage */
    MAIL_STAGES,                                 /* of the anchor: stage i of the plan is MAIL_STAGES + i */
    MAIL_ROADS = MAIL_STAGES + MAIL_PROCESSES,
};

/* Letters of the compute thread to the loop thread that never travel. */
enum mail_type {
    MAIL_FAILED = 0xff00, /* loading failed: the payload is the sentence, micro_batch the enum err, negated */
    MAIL_ENDED,           /* the compute thread returns: join it */
    MAIL_FLIPPED,         /* to the anchor's compute thread: a whole snapshot is here; its version is `step` */
};

struct letter {
    uint16_t type; /* enum wire_type or enum mail_type */
    uint8_t road;  /* enum mail_road: where to, or where from */
    uint64_t step;
    uint32_t micro_batch;
    uint8_t *payload; /* encoded; mem_free */
    size_t bytes;
    bool evaluation;      /* of an evaluation pass: counted apart, it costs the same with every codec */
    uint64_t dense_bytes; /* what a dense bf16 exchange would have sent in its place; 0 = n/a or evaluation */
};

enum mail_order { MAIL_STOP = 1 << 0, MAIL_ABANDON = 1 << 1 };

/* What the loop thread knows about the data roads; the compute thread decides by it. */
struct mail_roads {
    uint64_t delay_ns;  /* downstream, one way; 0 = unknown */
    uint64_t rate_bps;  /* downstream, measured or paced; 0 = unknown */
    uint64_t unsent[2]; /* ACT messages that have not left, upstream and downstream */
};

struct mail;

/* `wake` is called on the loop's thread when the outbox has letters. */
struct mail *mail_new(struct loop *loop, loop_cb *wake, void *arg, size_t most_letters, size_t most_bytes);
void mail_free(struct mail *mail); /* both threads are done with it; frees what lies in it */

/* ---- loop thread ---- */
/* Takes letter->payload over, also on failure. ERR_FULL, or ERR_GONE after an order. */
int mail_post(struct mail *mail, const struct letter *letter);
int mail_collect(struct mail *mail, struct letter *letter); /* 0 or ERR_AGAIN */
void mail_order(struct mail *mail, enum mail_order order);  /* never taken back */
void mail_set_roads(struct mail *mail, const struct mail_roads *roads);

/* ---- compute thread ---- */
unsigned mail_orders(struct mail *mail);
/* 0; ERR_AGAIN: `at_most_ns` passed, or the roads changed (look again); ERR_GONE: there is an order (those before it are
 * dropped). */
int mail_take(struct mail *mail, struct letter *letter, uint64_t at_most_ns);
/* Takes letter->payload over. Waits while the outbox is full; `waited_ns` (may be NULL) grows by that. ERR_GONE after an
 * order, but letters to MAIL_CONTROL and mail_type letters go through, so that the end can be told. */
int mail_send(struct mail *mail, const struct letter *letter, uint64_t *waited_ns);
void mail_get_roads(struct mail *mail, struct mail_roads *roads);

#endif
