/*
 * A whole run in one thread: the stages of a profile with their codecs between them, stepped exactly as the processes do it
 * (same masks, same order of micro-batches, norm, clipping, AdamW, un-masked evaluation), without wire, clock or processes.
 * What the real programs must reproduce.
 */
#ifndef KEDGE_TESTS_PIPELINE_H
#define KEDGE_TESTS_PIPELINE_H

#include "gpu/math/codec.h"
#include "gpu/model/data.h"
#include "gpu/model/model.h"
#include "profiles/profile.h"
#include "tests/helpers/backend.h"

struct pipeline {
    const struct backend *backend;
    struct profile profile;
    int stages;
    struct stage *stage[PROFILE_MAX_STAGES];
    struct codec *sender[PROFILE_MAX_STAGES], *receiver[PROFILE_MAX_STAGES]; /* of the cut after stage i */
    struct data *data;
    uint32_t codec_version;  /* that the next step is stamped with */
    uint32_t calibrated;     /* version of the calibration; 0 = there was none */
    float *table;            /* features of tokens */
    struct pipeline_state {  /* versions that wait for their step: states of all cuts, by enum codec_way */
        uint32_t version;
        uint64_t due;
        uint8_t *state[PROFILE_MAX_STAGES][2];
        size_t bytes[PROFILE_MAX_STAGES][2];
    } *waiting;
    int waiting_count;
    uint64_t state_bytes;    /* of versions shipped */
    int64_t applied;         /* optimiser steps */
    uint64_t skipped;        /* dropped, because loss or norm was not finite */
    uint8_t *bytes;          /* one coded message */
    uint64_t forward_bytes, backward_bytes; /* coded, all cuts, training only */
    uint32_t *windows, *ids, *targets; /* one micro-batch */
};

struct pipeline_step {
    double loss;             /* mean over the step's targets, through the codecs */
    double norm;             /* global, before clipping */
    float learning_rate, clip_scale;
    bool applied;
};

/* `layers` of each stage; NULL = as the plan deals them. Fresh weights of run.seed, or model.path. Any failure ends the test
 * program with its reason. */
void pipeline_init(struct pipeline *pipeline, const struct backend *backend, const struct profile *profile,
                   const int64_t *layers);
void pipeline_clear(struct pipeline *pipeline);
/* Dense micro-batches before step 1, where boundaries need statistics (pipeline_run does it after the first evaluation). */
void pipeline_calibrate(struct pipeline *pipeline);
/* A calibration that nobody has used yet, for another pipeline of the same shape whose codec needs no more than the one it
 * is of. */
void pipeline_lend(const struct pipeline *from, struct pipeline *to);
/* Mean loss of the windows at `starts` of a text, through the codecs with all that is stamped for the next step, forward
 * only. */
double pipeline_loss_through(struct pipeline *pipeline, const uint8_t *text, const int64_t *starts, int64_t windows,
                             bool dense);
/* Step 1, 2, … with profile.mask_rate and profile.learning_rate as they are now (both live). */
struct pipeline_step pipeline_train(struct pipeline *pipeline, uint64_t step);
/* Mean un-masked loss of the validation windows. */
double pipeline_evaluate(struct pipeline *pipeline, uint64_t step);

/* All of run.steps: validation[i] of steps 0, evaluate_every, 2·evaluate_every, …, last; returns how many there are. */
int pipeline_run(struct pipeline *pipeline, struct pipeline_step *steps, double *validation);

#endif
