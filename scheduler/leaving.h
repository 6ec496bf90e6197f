/*
 * A replica that cannot go on leaves the run, and the others go on without it: by kedged's word, because the others cannot
 * know what each of them got of it (gpu/train/members.c has the other half).
 *
 *   here ──a process ended, a cut broke, its siblings lost it──▶ left
 *        its processes are killed; every sibling of its stages is asked (PART) and answers (PARTED)
 *        all siblings of a stage that are here have answered ──▶ LEAVE with the least number, to all of them
 *
 * What it trained since its last round is lost. It may come back with nothing but what the others have (joining.h).
 */
#ifndef KEDGE_SCHEDULER_LEAVING_H
#define KEDGE_SCHEDULER_LEAVING_H

#include "profiles/profile.h"
#include "scheduler/joining.h"
#include "scheduler/lives.h"
#include "ssh/wire/wire.h"

struct run;
struct process;

struct leaving {
    struct {
        bool left;
        uint32_t lost_by;     /* a bit per replica that lost its road to it */
        uint64_t lost_ns;     /* since when; 0 = nobody */
        uint64_t broken_ns;   /* since when its own stages have lost each other; 0 = they have not */
        char broken[WIRE_TEXT];
        /* Coming back: joining.c. */
        struct lives lives;
        bool wanted;          /* by people, whatever replicas.rejoin says */
        enum joining joining;
        uint64_t since_ns;    /* of that state */
        uint64_t step, round; /* from which on it is counted, since ENTERED */
    } replicas[PROFILE_MAX_REPLICAS];
    struct {                  /* of a stage (index in the pipeline) and a replica that has left */
        uint32_t answered;    /* a bit per replica */
        bool decided;
        uint64_t least;
        uint32_t former;      /* the life before this one was decided, */
        uint64_t former_least; /* with so many; 0 = this is the first */
    } stages[PROFILE_MAX_STAGES][PROFILE_MAX_REPLICAS];
};

bool leaving_has_left(const struct run *run, int replica);
int leaving_count(const struct run *run);  /* replicas that are here */
int leaving_lowest(const struct run *run); /* of the replicas that are here */
/* The replica cannot go on for this reason. False: it is the only one, or replicas cannot do without each other: the run
 * has to hold. */
bool leaving_begin(struct run *run, int replica, const char *reason);
bool leaving_ordered(struct run *run, int replica, const char *reason); /* the same, because people want it */
bool leaving_is_possible(const struct run *run); /* can the others go on without one? */
/* One of its cuts broke. It leaves a little later, unless its agent tells before that which process ended. False as above.
 * */
bool leaving_broken(struct run *run, int replica, const char *reason);
int leaving_lost(struct run *run, struct process *process, const void *payload, struct why *why);   /* PART of a stage */
int leaving_parted(struct run *run, struct process *process, const void *payload, struct why *why);
void leaving_welcome(struct run *run, struct process *process); /* it is back: what did it miss? */
void leaving_tick(struct run *run);
uint32_t leaving_life(const struct run *run, int replica); /* incarnation of its processes */
void leaving_renew(struct run *run, int replica);          /* it is about to get another one */
void leaving_part(struct run *run, int replica);           /* it has left: kill it, ask its siblings */
void leaving_kill(struct run *run, int replica);           /* what is still there of it */
void leaving_adopt(struct run *run); /* who had left when the former kedged ended */

#endif
