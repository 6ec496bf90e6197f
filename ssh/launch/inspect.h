/*
 * Looking at the hosts of a profile before anything is started there: all at once, each with its own deadlines.
 *
 *   login (how long) → facts (one script) → clock and round trip → a second, new login (can it be done again?)
 *   → connect-back: a listener where its stages would listen, dialled from the next host
 *
 * What is found goes into plain data; what it means is said as problems (the run will not work) and notes (it may be worse
 * than it could be), each with its remedy. Nothing stays on a host.
 */
#ifndef KEDGE_LAUNCH_INSPECT_H
#define KEDGE_LAUNCH_INSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"
#include "ssh/launch/room.h"
#include "ssh/link/loop.h"
#include "ssh/session/session.h"

#define INSPECT_GPUS 8
#define INSPECT_WORDS 8
#define INSPECT_WORD 400

enum inspect_port { PORT_UNKNOWN, PORT_REACHED, PORT_NOT_REACHED };

struct inspect_gpu {
    char name[80], driver[32], compute[16];
    uint64_t total_mib, free_mib;
};

struct inspect_host { /* 0, "" and NAN = not known */
    const struct profile_host *host;
    uint64_t login_ns, second_login_ns, rtt_ns;
    bool has_offset;
    double offset_seconds; /* its clock minus ours */
    char os[100], machine[32], glibc[32], interface[64]; /* the last: by which it reaches the others, and its address there */
    uint64_t cpus, memory_kib, disk_free_kib, open_files;
    struct room room;      /* of a host with a disk_budget */
    struct inspect_gpu gpus[INSPECT_GPUS];
    int gpu_count, gpu_users;
    enum inspect_port port;
    char port_address[160], port_from[64];
    int err;               /* of the login; 0 = it was looked at */
    char problems[INSPECT_WORDS][INSPECT_WORD];
    char notes[INSPECT_WORDS][INSPECT_WORD];
    int problem_count, note_count;
    char phase[200];       /* what is being done, for people */
    bool done;
};

struct inspect_needs {
    uint64_t disk_kib; /* what a host without anything must take */
    unsigned glibc;    /* of the programs: 2035 = 2.35; 0 = not known */
    bool bf16;         /* products in bf16 (train.precision) */
    const char *room_script; /* of what a start would send (room_script); NULL = no host has a disk_budget. Outlives the inspect */
    uint64_t run_kib[PROFILE_HOSTS]; /* that the run itself writes on each host of the profile at most */
};

struct inspect;

struct inspect_callbacks {
    void (*changed)(const struct inspect_host *host, void *arg); /* the phase */
    void (*done)(void *arg);                                     /* all hosts are done; inspect_free is allowed */
    void (*ask)(struct session *session, const struct session_question *question, void *arg); /* may be NULL */
};

/* `profile` must outlive it. */
struct inspect *inspect_new(struct loop *loop, const struct profile *profile, bool accept_new, const char *save, const struct inspect_needs *needs,
                            const struct inspect_callbacks *callbacks, void *arg);
/* The hosts over SSH, in the order of the profile. */
const struct inspect_host *inspect_hosts(const struct inspect *inspect, int *count);
/* Of the host at that place of the list, for more questions; NULL = nobody is logged in. */
struct session *inspect_session(const struct inspect *inspect, int index);
void inspect_free(struct inspect *inspect); /* NULL is fine */

#endif
