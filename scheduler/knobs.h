/*
 * Knobs: the agreement about changed settings, and its ledger. A pure core over the record's ledger and knob rows.
 *
 *   proposed ──used by stage 0 of every replica──▶ active at the step that really used it
 *       └─────replaced by a newer one, or the run ended first──▶ refused
 *   what kedged itself applies is active at once
 *
 * kedged only says "from step N on"; stage 0 stamps the value on the first step ≥ N and answers with that step. So the
 * ledger tells what happened and not what was wished. Sending a pending change again is harmless: stage 0 knows it by its
 * ledger id.
 */
#ifndef KEDGE_SCHEDULER_KNOBS_H
#define KEDGE_SCHEDULER_KNOBS_H

#include "profiles/profile.h"
#include "scheduler/record.h"
#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

#define KNOBS_PENDING 64 /* changes that may wait at once */

struct knobs;

/* The record may hold a ledger already (adoption): its active rows are applied to a copy of the profile. It must outlive
 * the knobs. */
struct knobs *knobs_new(const struct profile *profile, int replicas, struct record *record);
void knobs_free(struct knobs *knobs);

/* The profile with the values that are active now. */
const struct profile *knobs_profile(const struct knobs *knobs);
/* Check against the settings table and write the ledger row. `newest_step` is the newest step known, `last_step` the
 * run's last one. 0 with *ledger = its id, or 0 when the value is what it is already. */
int knobs_propose(struct knobs *knobs, const char *name, const char *value, const char *who, uint64_t newest_step,
                  uint64_t last_step, uint64_t *ledger, struct why *why);
/* The oldest change with an id > after that this replica has not used yet; false when there is none. */
bool knobs_pending(const struct knobs *knobs, int replica, uint64_t after, struct wire_knob *knob);
/* Stage 0 of a replica used it. `replaced` gets the id of an older change that it overtook, 0 when none. */
int knobs_used(struct knobs *knobs, int replica, const struct wire_knob_used *used, uint64_t *replaced, struct why *why);
void knobs_leave(struct knobs *knobs, int replica); /* it is not waited for any more */
void knobs_join(struct knobs *knobs, int replica);  /* and it is again */
/* The oldest ledger row with an id > after whose value is active now; false when there is none. What replicas agree about by
 * themselves (section sync) is not among them. */
bool knobs_active(const struct knobs *knobs, uint64_t after, struct wire_knob *knob);
/* The run is over: what is still proposed was never used. */
void knobs_end(struct knobs *knobs);

#endif
