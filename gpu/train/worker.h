/*
 * The loop thread of a stage, shared by stage.c (its life, its road to kedged) and relay.c (between data roads and mailbox).
 * Everything here belongs to the loop thread.
 */
#ifndef KEDGE_TRAIN_WORKER_H
#define KEDGE_TRAIN_WORKER_H

#include <sys/types.h>

#include "gpu/train/command.h"
#include "gpu/train/compute.h"
#include "gpu/train/control.h"
#include "gpu/train/mail.h"
#include "gpu/train/roads.h"

struct snap;
struct follow;
struct bases;
struct anchor;

/* How far the snapshot is that is being sent. */
struct ship {
    struct wire_grant grant;
    uint64_t sent_bytes, chunks, of;
    struct loop_timer *look;
};

struct worker {
    struct worker_arguments arguments;
    struct loop *loop;
    struct credentials *credentials; /* NULL: plain */
    struct control *control;
    struct listener *listener;
    struct timeouts timeouts;
    struct loop_timer *deadline, *telemetry, *look, *lease;
    pid_t agent; /* who started us */

    struct profile profile; /* since ASSIGN */
    struct wire_assign assign;
    struct roads *roads; /* NULL before ASSIGN */
    struct mail *mail;
    struct compute *compute; /* of a stage, */
    struct anchor *anchor;   /* or of the anchor */
    bool is_anchor;
    struct snap *snap;       /* of a stage whose weights go to the anchor, */
    struct follow *follow;   /* or whose rounds do */
    struct bases *bases;     /* of a stage that is corrected */
    struct ship ship;

    struct wire_ready ready; /* state 0: not loaded yet */
    struct wire_saved saved; /* the newest weights; file "" = none yet */
    struct wire_entered entered; /* life 0: nobody was let in */
    bool started, done, ended, broken, stopping, control_over, roads_over;
    uint64_t newest_step;            /* that a sample told of */
    uint64_t done_step, busy_ns;     /* busy_ns: when a pass last moved */
    uint64_t act_sent, act_received; /* already told in samples */
    char broken_why[WIRE_TEXT];
    int exit_err;
    char exit_why[600];
};

/* ---- stage.c ---- */
/* Goodbye on all roads now; the compute thread ends when it looks up. */
void stage_stop(struct worker *worker, int err, const char *reason, uint64_t grace_ns);
void stage_check_over(struct worker *worker); /* end when everything that ends by itself has */
void stage_say(struct worker *worker, enum event_level level, const char *code, const char *text);

bool stage_is_assigned(const struct worker *worker);

/* ---- relay.c ---- */
void relay_open(struct worker *worker, uint64_t profile_hash, size_t queue_bytes); /* the data roads, and their telemetry */
void relay_timers(struct worker *worker);
void relay_tell_roads(struct worker *worker); /* what travelled until now; after relay_open */
void relay_on_mail(void *arg); /* loop_cb of the mailbox */

#endif
