/*
 * The journal of a run: RUN/run.db (SQLite, write-ahead log). It follows the record: once a second, and at once when
 * something changed that must not be lost, every row that is newer than what was written goes into one transaction. Killed
 * at any moment, the file is that of the last whole transaction.
 *
 * Columns are the fields of the wire table, so a row on disk is a row of the language. Samples are queued between two
 * writes. Everything is bounded: the queues in memory, and rows on disk by pruning the oldest. A failed write changes
 * nothing and is tried again by the next one.
 */
#ifndef KEDGE_SCHEDULER_JOURNAL_H
#define KEDGE_SCHEDULER_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/record.h"
#include "ssh/base/why.h"
#include "ssh/wire/wire.h"

struct journal;

/* Open FOLDER/run.db for writing. When it is of this run and not over, *adopted and `record` is filled. Otherwise an old
 * file is kept as run.db.1 and a new one is begun. A run that is over is
 * ERR_REFUSED with the remedy. */
int journal_open(const char *folder, uint64_t run_id, struct record *record, bool *adopted, struct journal **journal,
                 struct why *why);
void journal_close(struct journal *journal); /* what was not written is lost; NULL is fine */

void journal_add_sample(struct journal *journal, const char *process, const struct wire_sample *sample);
void journal_add_road_sample(struct journal *journal, const char *process, const struct wire_road_sample *sample);
/* One transaction of all that is new. Negative: nothing was written, call again later. */
int journal_write(struct journal *journal, struct record *record, struct why *why);
uint64_t journal_lost_samples(const struct journal *journal); /* dropped because the queue was full while writing failed */

/* The last state of a run whose scheduler is gone, whatever run it is. */
int journal_read(const char *folder, struct record *record, struct why *why);

#endif
