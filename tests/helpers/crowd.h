/*
 * The real console on a terminal of its own, and a scheduler that is played by a child of ours: many processes that all report once a
 * second, on a road with a delay. For how long a key takes until its change is on the terminal.
 */
#ifndef KEDGE_TESTS_CROWD_H
#define KEDGE_TESTS_CROWD_H

#include <stdint.h>

struct crowd;

struct crowd_far { /* the console sees the run over SSH */
    const char *state;  /* the far host's state folder: the scheduler is played there, and nothing of it is removed */
    const char *attach; /* HOST:RUN */
    const char *cut;    /* a shell command after which nothing comes through any more */
};

struct crowd_cost { /* of the console, since it began */
    double cpu_seconds;
    uint64_t resident_bytes;
};

/* $O/kedge attach, 80 × 24 … `rows` × `columns`; all report once in a period; delay_ns is one way; far NULL = the run is here. Exits with a sentence when something is missing. */
struct crowd *crowd_begin(int processes, int stages, uint64_t period_ns, uint64_t delay_ns, int rows, int columns, const struct crowd_far *far);
/* Type this text; until `words` (UTF-8) are among what the console writes from now on: nanoseconds, UINT64_MAX after limit_ns. */
uint64_t crowd_press(struct crowd *crowd, const char *keys, const char *words, uint64_t limit_ns);
/* Read what the console writes for so long. */
void crowd_rest(struct crowd *crowd, uint64_t ns);
/* From now on the scheduler says nothing and reads nothing, its road stands; a far one is cut off. */
void crowd_fall_silent(struct crowd *crowd);
/* How long a key takes: `count` letters on the command prompt of each of the views Run, Links, Hosts, Knobs and Events, none of which can
 * be among the rows. Sorted; returns how many. */
int crowd_measure(struct crowd *crowd, int count, uint64_t *took, int most);
struct crowd_cost crowd_cost(const struct crowd *crowd);
void crowd_end(struct crowd *crowd);

#endif
