/*
 * Run folders: where a run lives on this machine and what is in it.
 *
 *   ${XDG_STATE_HOME:-$HOME/.local/state}/kedge/NAME/   0700
 *     run.ini run.id creds/ kedged.sock kedged.lock agent@HOST.lock run.db log/
 */
#ifndef KEDGE_LAUNCH_RUNS_H
#define KEDGE_LAUNCH_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

#define RUNS_PATH 512    /* longest run folder; a Unix socket's address (108 bytes) is checked apart */
#define RUNS_MOST 1000   /* run folders that are listed */

/* The folder of all runs, and of one. ERR_INVALID when the name cannot be a folder or the path is too long for a socket. */
int runs_home(char *out, size_t size, struct why *why);
int runs_folder(const char *run, char *out, size_t size, struct why *why);

struct runs_entry {
    char name[64];
    int64_t changed_wall_ms; /* newest change of run.db, else of run.ini */
};
/* All run folders (those with a run.ini), newest first; mem_free it. No folder yet is an empty list. */
int runs_list(struct runs_entry **entries, size_t *count, struct why *why);

/* The folder of a run that exists. ERR_ABSENT says what there is instead: the nearest name, or the list. */
int runs_find(const char *run, char *folder, size_t size, struct why *why);

/* Where keys of hosts that were accepted are noted: known_hosts in the folder of all runs; "" when there is none. */
void runs_known_hosts(char *out, size_t size);

int runs_read_id(const char *folder, uint64_t *run_id, struct why *why);

/* Does somebody accept connections on FOLDER/kedged.sock? Never blocks. */
bool runs_answers(const char *folder);

#endif
