/*
 * A run of three replicas of two stages on two hosts, trained without rejoining, and without any network: the test speaks for all
 * processes, and what the scheduler sends is kept. One a program; made and cleared by trio_up and trio_down. Needs cmocka.h.
 */
#ifndef KEDGE_TESTS_TRIO_H
#define KEDGE_TESTS_TRIO_H

#include "scheduler/run.h"

enum { TRIO_REPLICAS = 3, TRIO_STAGES = 2, TRIO_AGENTS = 2, TRIO_ALL = TRIO_AGENTS + TRIO_REPLICAS * TRIO_STAGES, TRIO_SENT = 2000 };

struct trio_sent {
    int process;
    enum wire_type type;
    union {
        struct wire_part part;
        struct wire_leave leave;
        struct wire_signal order;
        struct wire_spawn spawn;
        struct wire_assign assign;
        struct wire_road road;
        struct wire_start start;
    } of;
};

extern struct trio {
    struct profile profile;
    struct plan plan;
    struct record *record;
    struct run *run;
    int handles[TRIO_ALL + 1]; /* the address is the handle, the value the process */
    struct trio_sent sent[TRIO_SENT];
    int sent_count;
    uint32_t life[TRIO_ALL]; /* incarnations */
    struct saving newest_set;
    int sets;
} trio;
extern const struct run_sink trio_sink;

/* ---- who ---- */

int trio_stage_at(int replica, int stage);
const char *trio_name_of(int process); /* valid until the next call */
int trio_host_of(int process);

/* ---- what they say, and what time does ---- */

void trio_say(int process, enum wire_type type, const void *payload);
void trio_hello(int process);
void trio_killed(int process); /* its connection ends, its agent tells */
void trio_parted(int replica, int stage, int from, uint64_t received, bool decided);
void trio_lost(int replica, int stage, int other); /* its road to its sibling of another replica */
void trio_pass(double seconds);

/* ---- what came of it ---- */

int trio_count(int process, enum wire_type type); /* messages to it */
int trio_newest(int process, enum wire_type type); /* index in trio.sent; −1 = none */
uint64_t trio_leave_to(int process, int replica); /* the newest LEAVE of a replica to a process; UINT64_MAX = none */
bool trio_happened(const char *code, const char *words);

/* ---- a test's life ---- */

void trio_begin(void); /* anew, by trio.profile: all are here, and it trains */
int trio_up(void **state);
int trio_down(void **state);
#define trio_test(name) cmocka_unit_test_setup_teardown(name, trio_up, trio_down)
/* Dead replicas come back by themselves. */
int trio_up_rejoin(void **state);
#define trio_test_rejoin(name) cmocka_unit_test_setup_teardown(name, trio_up_rejoin, trio_down)

#endif
