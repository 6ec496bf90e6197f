/*
 * Events for people, folded: a storm of the same thing costs one row a second, with a count.
 *
 * Per (source, code) a window of one second: the first event opens it and is shown; a repeated text, or more than a handful
 * of different ones, is only counted; when the window closes, one row says how many there were. Pure: the caller passes the
 * time.
 */
#ifndef KEDGE_SCHEDULER_EVENTS_H
#define KEDGE_SCHEDULER_EVENTS_H

#include "scheduler/record.h"

struct events;

struct events *events_new(struct record *record); /* the record must outlive it */
void events_free(struct events *events);
/* id and wall_ms are filled in; the others are the caller's. */
void events_add(struct events *events, const struct wire_event_row *row, uint64_t now_ns);
void events_tick(struct events *events, uint64_t now_ns);

#endif
