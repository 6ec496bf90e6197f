/*
 * A small training run of real stage processes under tests/helpers/head.h, and the same run in one thread to compare it
 * with.
 */
#ifndef KEDGE_TESTS_TRAIN_H
#define KEDGE_TESTS_TRAIN_H

#include "ssh/base/clock.h"
#include "tests/helpers/head.h"

#define TRAIN_STEPS 5
#define TRAIN_PATIENCE (60 * CLOCK_SECOND)
#define TRAIN_TIMEOUT (10 * CLOCK_SECOND)

struct train { /* one run of real processes */
    struct head head;
    struct profile profile;
    int stages, in_flight;
    int64_t layers[4];
    struct head_peer *peers[4];
};

/* The profile is made and may be changed; nothing is started. */
void train_begin(struct train *train, int stages, bool plain);
void train_end(struct train *train);
void train_form(struct train *train); /* start the processes, until all roads stand */
void train_assign(struct train *train, int stage);
void train_start(struct train *train); /* START to all */
void train_run(struct train *train);   /* form, start, until all are done */
/* STOP, and all processes end by themselves, with code 0. */
void train_stop(struct train *train);

/* For head_until. */
bool train_all_connected(struct head *head, void *arg);
bool train_all_ready(struct head *head, void *arg); /* arg: int, enum ready_state */
/* In a run that should succeed: an alert is the end of hope. */
bool train_all_done(struct head *head, void *arg);
bool train_all_gone(struct head *head, void *arg);
bool train_step_sampled(struct head *head, void *arg); /* arg: uint64_t, the step */

/* Losses, norms and validations to the last bit. After the processes have ended: while this computes, nobody turns the loop.
 */
void train_as_pipeline(struct train *train);
void train_same_number(double a, double b, const char *what, int step);

#endif
