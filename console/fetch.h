/*
 * Logs of a run's hosts, copied here so that `kedge logs` reads them like its own: RUN/hosts/HOST/PROCESS.log. Only what is new
 * travels, and of a file that was never fetched at most its last MiB. One session for each host stands as long as this does.
 */
#ifndef KEDGE_CONSOLE_FETCH_H
#define KEDGE_CONSOLE_FETCH_H

#include <stddef.h>

#include "console/place.h"
#include "profiles/profile.h"
#include "ssh/link/loop.h"

struct fetch;

/* NULL when no process of the run is on a host over SSH. HOST:RUN is copied into a folder that fetch_free removes. */
struct fetch *fetch_new(struct loop *loop, const struct place *place);
/* One round: every host that can be reached, within its deadlines. A host that cannot be is said once on standard error. */
void fetch_round(struct fetch *fetch);
/* The folders with copies; NULL behind the last. */
const char *fetch_folder(const struct fetch *fetch, int index);
void fetch_free(struct fetch *fetch); /* NULL is fine */

#endif
