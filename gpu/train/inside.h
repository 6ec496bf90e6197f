/*
 * The inside of the compute thread, shared by compute.c (its life), drive.c (what stage 0 decides), step.c (a pass),
 * crossing.c (messages of a boundary), measures.c (their statistics), tied.c, siblings.c, post.c and agree.c (other replicas).
 * Everything here belongs to the compute thread.
 */
#ifndef KEDGE_TRAIN_INSIDE_H
#define KEDGE_TRAIN_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/math/codec.h"
#include "gpu/model/data.h"
#include "gpu/model/model.h"
#include "gpu/train/compute.h"
#include "gpu/train/measures.h"
#include "gpu/train/rate.h"
#include "gpu/train/schedule.h"
#include "gpu/train/timeline.h"
#include "profiles/fields.h"
#include "profiles/timeouts.h"

#define KNOBS_MOST 16
#define TIMES_KEPT 16 /* micro-batch times of which the median is the measured t */

/* One side of a cut. */
struct boundary {
    struct codec *codec; /* NULL: there is no cut on this side */
    struct codec_settings settings;
};

/* The optimiser step that the newest training pass owes until the next stamp judges it. */
struct optimizer {
    bool owed;
    float learning_rate; /* of the owed step */
    int64_t applied;     /* t of AdamW: steps that were really applied */
    uint64_t skipped;    /* dropped because not finite */
};

struct knob_used {
    uint64_t ledger, step;
};

/* What only stage 0 knows: which pass comes next, and what its stamp says. */
struct drive {
    bool started, held, finished, evaluated; /* evaluated: the model of step next − 1 */
    bool resumed;                            /* from a set, which says whether it is evaluated */
    bool save_wanted;                        /* by order, when save_from steps are trained */
    bool set_due;                            /* checkpoint.every steps are trained: as soon as no exchange is under way */
    uint64_t noted;                          /* `next` when that was looked at last */
    uint64_t save_from, saved;               /* saved: `next` when the weights were written last; 0 = never */
    uint64_t next, last;                     /* training steps next … last − 1 are to do */
    uint64_t newest;                         /* training step whose verdict is below; 0 = none */
    bool finite;                             /* its gradient may be applied */
    double norm;                             /* of the gradient of the mean over its targets */
    double targets_ratio;                    /* positions of the step / targets: 1 unless some tokens are not learned */
    int bad_in_row;
    struct wire_knob knobs[KNOBS_MOST];
    int knob_count;
    bool capture_wanted;
    uint64_t capture_from;
    struct wire_use use;                     /* version 0: none is asked for */
    uint64_t basis;                          /* in use; 0 = none */
    bool faded_told;
    struct knob_used used[KNOBS_MOST]; /* ring: kedged may say a knob again after its road was lost */
    unsigned used_count;
};

/* A pass: every micro-batch forward and (unless it only evaluates) backward once. */
struct pass {
    bool running;
    uint64_t step;
    struct wire_stamp stamp;
    struct schedule schedule;
    double loss; /* Σ over targets of the micro-batches so far; NaN = not known yet */
    uint64_t targets;
    double squares; /* of this and all later stages, after the last backward */
    uint64_t began_ns, began_wall_ns, compute_ns, pack_ns, wait_ns[WAIT_CAUSES]; /* compute_ns: pack_ns is part of it */
    struct timeline timeline;
    uint64_t waiting_since_ns; /* of one wait without any progress; for the stall notice */
    bool stall_told;
    uint64_t act_bytes; /* payload of the newest activations sent */
};

struct safetensors_out;

struct saver { /* save.c */
    uint8_t *room;        /* NULL: sets are written at once */
    size_t room_bytes;
    pthread_t thread;
    bool running;
    atomic_bool written;  /* the thread has come to its end */
    struct safetensors_out *out;
    struct wire_saved saved;
    int err;
    struct why why;
};

struct compute {
    /* given */
    struct mail *mail;
    struct compute_settings settings; /* settings.profile: live rows change by KNOB, on stage 0 only */
    struct timeouts timeouts;
    pthread_t thread;
    bool running;
    int stage, stages, slots, most; /* most: micro-batches of the longest pass */
    bool first, last;
    bool halted; /* drift: no pass can follow */

    /* taken by loading */
    const struct ops *ops;
    struct device *device;
    struct stage *model;
    struct data *data;
    uint8_t *marks; /* of windows: enum token_mark */
    uint8_t planes; /* of marks that travel: 0 = all tokens are learned; 1: TOKEN_LEARNED; 2: TOKEN_BEGINS too */
    uint8_t least_planes; /* that must have come: 2 where documents are apart */
    bool *begins;   /* [sequences, tokens] of the micro-batch: a document begins with this input */
    float *table; /* device: features of tokens for references; NULL where none are looked at */
    struct boundary up, down;
    uint32_t *windows, *inputs, *targets; /* [sequences][tokens + 1], [sequences][tokens] twice */
    uint8_t *body;                        /* one message under construction */
    size_t body_bytes;
    struct letter *acts, *grads; /* arrived and not yet used: [micro-batch mod most] */
    uint64_t *forward_ns;        /* [slots] */
    struct letter *tied;         /* [tied_pieces], first stage: the last stage's part until our own is complete */
    int64_t tied_arrived[2];     /* pieces since the newest stamp, by the side they came from */
    struct correct *correct;     /* NULL: gradients are not corrected */
    uint64_t basis;              /* version of what came from the anchor that is in use here; 0 = none */
    struct siblings *siblings;   /* the same stage of other replicas; NULL = there is one replica */
    uint64_t memory_bytes;

    struct mail_roads roads; /* the newest word of the loop thread */
    struct optimizer optimizer;
    struct rate rate;
    struct drive drive;
    struct pass pass;
    bool stamped; /* a stamp has arrived that no pass has begun with */
    struct wire_stamp stamp;
    int early; /* activations of that stamp's pass that are in acts before it has begun */
    uint64_t stamp_step, trained; /* trained: newest training step begun */
    uint64_t settled;             /* training step whose optimiser step this pass applied or dropped; 0 = none */
    struct measures measures;
    struct saver saver;
    uint64_t idle_since_ns;       /* end of the newest pass: waits for a stamp count from there */
    uint64_t times_ns[TIMES_KEPT];
    unsigned times_count;
};

/* ---- compute.c ---- */
/* A letter to kedged; `payload` is the struct of `type`. */
void compute_tell(struct compute *compute, enum wire_type type, const void *payload, uint64_t step);
void compute_ready(struct compute *compute, enum ready_state state);
void compute_say(struct compute *compute, enum event_level level, uint64_t step, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The stages do not agree any more: an alert, and ERR_INVALID to leave the pass with. */
int compute_halt(struct compute *compute, uint64_t step, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Take one letter, waiting at most so long, and put it where it belongs. 0, ERR_AGAIN (none), ERR_GONE (an order),
 * ERR_INVALID. */
int compute_accept(struct compute *compute, uint64_t at_most_ns);
/* An encoded message as a letter. */
struct letter compute_letter(enum wire_type type, const void *payload, size_t tail_bytes, enum mail_road road, uint64_t step,
                             uint32_t micro_batch);

/* ---- crossing.c: the messages of a boundary; micro-batch k of the pass ---- */
struct micro_batch {
    uint32_t index;
    uint32_t of_run; /* number among those of all replicas: what it is made of depends on it */
    int slot;
    int64_t sequences, tokens, rows;
    struct codec_use use;
};
void crossing_shape(const struct compute *compute, uint32_t index, struct micro_batch *micro_batch);
int crossing_receive_activations(struct compute *compute, const struct micro_batch *micro_batch);
int crossing_send_activations(struct compute *compute, const struct micro_batch *micro_batch, const float *x);
/* Also takes loss, targets and squares over. `squares` is that of the later stages, −1 unless the frame has it. */
int crossing_receive_gradient(struct compute *compute, const struct micro_batch *micro_batch, double *squares);
int crossing_send_gradient(struct compute *compute, const struct micro_batch *micro_batch, const float *dx, double squares);
size_t crossing_body_bytes(const struct profile *profile); /* of the largest message */

/* ---- tied.c: the gradient of an embedding that is the head too, when first and last stage are not the same ---- */
int64_t tied_count(const struct profile *profile, int stages); /* floats; 0 = nothing to exchange */
int64_t tied_pieces(const struct profile *profile, int stages);
int tied_send(struct compute *compute, enum mail_road road); /* all pieces of our gradient */
int tied_accept(struct compute *compute, struct letter *letter);
int tied_add(struct compute *compute);    /* first stage, after its last backward: all pieces must be here */
int tied_settle(struct compute *compute); /* before the owed step is applied: did the sum come? */

/* ---- siblings.c: the same stage of other replicas ---- */
struct siblings;
/* What credit between siblings allows in the mail and in the queue of a SYNC lane. */
void siblings_bounds(const struct profile *profile, const struct stage_shape *shape, int replicas, size_t *letters,
                     size_t *bytes);
int siblings_load(struct compute *compute, const struct stage_shape *shape, struct why *why); /* after the weights */
void siblings_free(struct siblings *siblings);
/* The optimiser step was dropped. If our own weights are not finite, a dropped step more will not mend them: the common copy does. */
void siblings_restore(struct compute *compute, uint64_t step);
/* The optimiser step of this training step has been applied or dropped: what is due, and what is sent. */
int siblings_after_step(struct compute *compute, uint64_t step);
/* After the last backward of a step, where replicas average gradients; else nothing. */
int siblings_average(struct compute *compute);
/* Of the step just trained; where gradients are averaged: the mean of the replicas. */
double siblings_targets(const struct compute *compute);
/* siblings_save.c: for checkpoint sets. Is no exchange under way after this step? */
bool siblings_are_still(const struct compute *compute, uint64_t step);
size_t siblings_save_bytes(const struct compute *compute); /* 0: there is nothing */
void siblings_save(const struct compute *compute, uint8_t *out);
int siblings_resume(struct compute *compute, uint64_t step, const uint8_t *bytes, size_t count, struct why *why);
bool siblings_is_lowest(const struct compute *compute); /* of the replicas that take part */
/* agree.c: is this a setting that replicas change together? And what first stages stamp of them. */
bool agree_takes(const struct compute *compute, const char *name);
void agree_stamp(const struct compute *compute, struct wire_stamp *stamp);
/* The common copy of all weights as bf16 words, as stage_words_get has them; false when there is none. */
bool siblings_words(const struct compute *compute, uint16_t *words);
uint64_t siblings_capture(struct compute *compute, uint64_t version); /* for an anchor that follows; bytes that travel for it */
void siblings_report(const struct compute *compute, struct wire_sample *sample); /* the newest wait for them */

/* ---- correct.c: gradients, by the anchor's directions ---- */
struct correct;
int correct_load(struct compute *compute, const struct stage_shape *shape, struct why *why);
void correct_free(struct compute *compute);
int correct_switch(struct compute *compute);     /* to the version of the stamp, statistics of the cuts too */
void correct_half(struct compute *compute);      /* after every backward: keeps the gradient of the first half of the step */
void correct_gradients(struct compute *compute); /* after the last one, before the norm is computed */
void correct_report(struct compute *compute);

/* ---- drive.c: stage 0 ---- */
/* The stamp of the pass that comes next; false when there is none now (held, not started, finished). */
bool drive_next(struct compute *compute, struct wire_stamp *stamp, uint64_t *step);
/* After a pass: the verdict on its gradient. */
void drive_judge(struct compute *compute);
float drive_clip_scale(const struct compute *compute); /* of the newest training step */
void drive_start(struct compute *compute, const struct wire_start *start);
void drive_knob(struct compute *compute, const struct wire_knob *knob);
/* A waiting KNOB of those that replicas change together, if it may be used at that step; it waits no more. */
bool drive_take_agreed_knob(struct compute *compute, uint64_t step, struct wire_knob *knob);
bool drive_has_used(const struct compute *compute, uint64_t ledger);
void drive_used_knob(struct compute *compute, const struct wire_knob *knob, uint64_t step);
void drive_save(struct compute *compute, const struct wire_save *save);
void drive_capture(struct compute *compute, const struct wire_capture *capture);
void drive_use(struct compute *compute, const struct wire_use *use);

/* ---- step.c ---- */
/* One pass. 0; ERR_GONE: an order came, the pass is abandoned; ERR_INVALID: halted. */
int step_run(struct compute *compute, const struct wire_stamp *stamp, uint64_t step);

#endif
