/*
 * The weights of a run at one step: RUN/checkpoint/STEP/ with one safetensors file for each stage and, written last by the
 * scheduler, manifest.json, which says what the files must be. A folder without a manifest is no set.
 */
#ifndef KEDGE_MODEL_SET_H
#define KEDGE_MODEL_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

#define SET_FORMAT "kedge checkpoint 1"

struct set {
    char *folder;
    uint64_t run_id, step;
    char *settings; /* NAME=VALUE lines of the run's profile */
    char *live;     /* those that were others at that step, by 'kedge set' */
    bool elsewhere; /* files that are not here may be on other hosts */
    bool whole;     /* files are those of all replicas, not of one alone */
    bool resumes;   /* it has what training goes on from, not weights alone */
    char **files;   /* paths */
    size_t count;
};

/* The set of that step, of whatever run, every file of it whole; `elsewhere`: those that are not here may be on other hosts. */
int set_open(const char *run_folder, uint64_t step, bool elsewhere, struct set **set, struct why *why);
/* The largest step below `below` that has a manifest; ERR_ABSENT names the folder. */
int set_newest(const char *run_folder, uint64_t below, uint64_t *step, struct why *why);
/* Removes checkpoint/S/FILE, and what is left of a write of it, for all steps S below `below`; and folders that are empty then. */
void set_remove_file(const char *run_folder, const char *file, uint64_t below);
/* The newest set of the run, every file of it whole. A newer one that is damaged is told on standard error and passed over. */
int set_find(const char *run_folder, uint64_t run_id, struct set **set, struct why *why);
void set_free(struct set *set);
/* Has the file so many bytes and this hash (ssh/base/hash.h)? Both in the reason when not. */
int set_check_file(const char *path, uint64_t bytes, uint64_t hash, struct why *why);

#endif
