/*
 * A file in units of a MiB, and which of them a host has: what an upload notes and resumes by. Ranges are said as "BEGIN BYTES".
 * Pure.
 */
#ifndef KEDGE_SESSION_UNITS_H
#define KEDGE_SESSION_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define UNITS_BYTES ((uint64_t)1 << 20)

enum unit { UNIT_MISSING, UNIT_ORDERED, UNIT_THERE };

struct units {
    uint64_t bytes, count; /* of the file */
    uint64_t next;         /* the first that was not dealt with */
    uint64_t there_bytes;
    uint8_t *state;        /* enum unit; owned */
};

void units_init(struct units *units, uint64_t bytes); /* all are missing */
void units_clear(struct units *units);
void units_forget(struct units *units);               /* all are missing again */
/* Where one ends. */
uint64_t units_end(const struct units *units, uint64_t unit);
/* Whole units, of which there is at least one. False when it is anything else. */
bool units_read(const struct units *units, const char *range, uint64_t *first, uint64_t *count);
/* Those that are `before` are there; false at the first that is not. */
bool units_set_there(struct units *units, uint64_t first, uint64_t count, enum unit before);
/* The next missing ones in a row, at most `most`. 0 = none is missing. They are not ordered yet. */
uint64_t units_next(struct units *units, uint64_t most, uint64_t *first);
void units_order(struct units *units, uint64_t first, uint64_t count);
/* There is no gap from the begin of the file up to here; `from` was the answer before, or 0. */
uint64_t units_whole(const struct units *units, uint64_t from);

#endif
