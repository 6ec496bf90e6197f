/*
 * A kedged of a few lines for tests of the worker: it listens, greets agents and stages, remembers what they say, and says
 * what the test tells it to. It decides nothing.
 */
#ifndef KEDGE_TESTS_HEAD_H
#define KEDGE_TESTS_HEAD_H

#include <stdbool.h>
#include <sys/types.h>

#include "profiles/profile.h"
#include "profiles/timeouts.h"
#include "ssh/link/link.h"
#include "ssh/link/road.h"
#include "tests/helpers/place.h"

#define HEAD_PEERS 8
#define HEAD_EVENTS 64
#define HEAD_STEPS 64

struct head;

struct head_peer {
    struct head *head;
    char name[WIRE_NAME];
    struct link *link; /* NULL: not connected now */
    struct wire_hello hello;
    pid_t pid;  /* when the test started it; 0 = gone and reaped */
    int status; /* of waitpid */
    int hellos, ready;
    bool said_bye, done;
    struct wire_ready ready_message;
    double loss[HEAD_STEPS], norm[HEAD_STEPS], validation[HEAD_STEPS]; /* by step; NaN = no sample */
    struct wire_sample newest;
    int samples;
    uint64_t act_sent, act_dense; /* of ROAD_SAMPLE, lane ACT, without evaluations */
};

struct head_event {
    char from[WIRE_NAME];
    uint64_t at_ns;
    struct wire_event event;
};

struct head {
    struct loop *loop;
    struct place place;
    struct credentials *credentials; /* NULL: plain */
    struct listener *listener;
    struct timeouts timeouts;
    uint64_t timeout_ns, run_id;
    bool deaf; /* drop whoever dials */
    struct link *greeting[HEAD_PEERS];
    struct head_peer peers[HEAD_PEERS];
    int peer_count;
    struct head_event events[HEAD_EVENTS];
    int event_count;
    struct wire_process processes[HEAD_EVENTS]; /* PROCESS messages in order */
    int process_count;
    struct wire_knob_used knob_used;
    struct wire_host host; /* newest */
};

void head_begin(struct head *head, uint64_t timeout_ns, bool plain);
void head_end(struct head *head); /* kills what is still there, reaps, removes the folder */

/* Fork and exec a program with these words behind its name; its stdout goes to `out` unless −1. */
pid_t head_run_program(const char *program, const char *const *words, int out);
struct head_peer *head_start_stage(struct head *head, const char *name, const char *host);
struct head_peer *head_find(struct head *head, const char *name); /* NULL when it was never heard of */
void head_say(struct head_peer *peer, enum wire_type type, const void *message);
void head_stop(struct head *head, uint32_t grace_ms); /* STOP to all */

/* Turn the loop until `when` says true; fails the test with `what` after the deadline. */
void head_until(struct head *head, bool (*when)(struct head *head, void *arg), void *arg, uint64_t limit_ns,
                const char *what);
/* Turn the loop for so long. */
void head_for(struct head *head, uint64_t ns);
/* The first event with this code from this process, NULL when there is none. */
const struct head_event *head_event(const struct head *head, const char *from, const char *code);
/* The path of kedge-worker, in static memory; exits with 77 when it is not built. */
const char *head_program(void);
/* All logs of the run's folder, to stderr. */
void head_show_logs(struct head *head);

#endif
