/* The sub-commands of kedge-worker. Each gets the arguments behind its name and returns the exit code. */
#ifndef KEDGE_TRAIN_COMMAND_H
#define KEDGE_TRAIN_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NETWORK = 3, EXIT_REFUSED = 4 };

/* What agent and stage are told on the command line. */
struct worker_arguments {
    char folder[512];            /* --folder RUN */
    char host[WIRE_NAME];        /* --host NAME */
    char head[WIRE_ADDRESS];     /* --head HOST:PORT of kedged */
    char name[WIRE_NAME];        /* --name r0s1 */
    char listen[WIRE_ADDRESS];   /* --listen HOST:PORT */
    char announce[WIRE_ADDRESS]; /* --announce HOST:PORT */
    uint64_t incarnation;        /* --incarnation N */
    uint64_t timeout_ns;         /* --timeout 10s: run.timeout, until the profile is known */
    uint64_t fuse_ns;            /* --fuse 2h: an agent ends its processes after so long; 0 = never */
    uint64_t disk_budget;        /* --disk-budget BYTES: what kedge may have on the host's disk; 0 = unlimited */
    bool lease;                  /* --lease: …and when the scheduler is silent for a whole lease */
    bool plain;                  /* --plain: link.security = plain */
    uint64_t run_id;             /* from FOLDER/run.id */
};

int agent_main(int count, char **words);
int stage_main(int count, char **words);
int anchor_main(int count, char **words);
int probe_main(int count, char **words);
int export_main(int count, char **words);
int resume_main(int count, char **words);
int prepare_main(int count, char **words); /* data prepare … */
int sample_main(int count, char **words);
int eval_main(int count, char **words);
int receive_main(int count, char **words);
int digest_main(int count, char **words);

/* Fills `arguments` and reads the run id. `needs` (NULL-terminated) are the options that must be there. */
int command_arguments(int count, char **words, const char *const *needs, struct worker_arguments *arguments,
                      struct why *why);
/* FOLDER/run.id. */
int command_run_id(const char *folder, uint64_t *run_id, struct why *why);
/* The exit code of a failure. */
int command_exit(int err);

#endif
