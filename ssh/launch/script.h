/*
 * What we ask a host's shell: one-line scripts of POSIX sh, and what their answers mean. Everything that differs between
 * hosts (where HOME is, what is installed) is found out there.
 */
#ifndef KEDGE_LAUNCH_SCRIPT_H
#define KEDGE_LAUNCH_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/launch/nonce.h"

#define SCRIPT_PATH 400

/* Sets R (the run's folder) and D (what runs share) for the script behind it. `run` is a usable name. mem_free it. */
char *script_of_run(const char *run, const char *script);

struct script_facts {
    char run[SCRIPT_PATH], data[SCRIPT_PATH]; /* R and D as the host has them */
    char os[100], machine[32], glibc[32];
    uint64_t old_run_id;  /* in R/run.id; 0 = none */
    int old_living;       /* processes of that run, when it is not ours */
    long old_pid;         /* one of them */
    uint64_t nonce;       /* in R/nonce@HOST (nonce.h); 0 = none */
};
/* Makes R and D and says the facts. `run_id`: ours. */
char *script_look(const char *run, const char *host, uint64_t run_id);
int script_read_facts(const char *output, struct script_facts *facts, struct why *why);

/* When all processes are gone: waits until the GPUs hold no more than what the agent of the host found before the run (R/gpu@HOST; without
 * it, or without nvidia-smi, there is nothing to wait for). Says "holds MIB" and ends the script when they still do after ten seconds. */
char *script_gpu(const char *host);

/* End all processes of the run on the host by (pid, start time, mark): TERM, after the grace KILL; then the locks and sockets
 * that nobody holds. Also those of the id that stands in R/run.id, if the machine shows our nonce (one without a word asks none).
 * Says "waiting PID NAME" meanwhile, and last "gone ENDED" or "left COUNT PID NAME" or "holds MIB" (script_gpu); or "stranger", when the nonce says that
 * something was left there, and this is another machine: then nothing is touched. */
char *script_clean(const char *run, const char *host, const struct nonce *nonce, uint64_t run_id, unsigned grace_s);

#endif
