/*
 * The weights of a run at one step: RUN/checkpoint/STEP/ with one safetensors file for each stage and, written last by the
 * scheduler, manifest.json, which says what the files must be. A folder without a manifest is no set.
 */
#ifndef KEDGE_MODEL_SET_H
#define KEDGE_MODEL_SET_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

#define SET_FORMAT "kedge checkpoint 1"

struct set {
    char *folder;
    uint64_t run_id, step;
    char *settings; /* NAME=VALUE lines of the run's profile */
    char **files;   /* paths */
    size_t count;
};

/* The newest set of the run, every file of it whole. A newer one that is damaged is told on standard error and passed over. */
int set_find(const char *run_folder, uint64_t run_id, struct set **set, struct why *why);
void set_free(struct set *set);

#endif
