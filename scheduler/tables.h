/*
 * The tables of the journal: their columns are the fields of the wire table, with what kedged knows beside them. So a row on
 * disk is a row of the language, and a message that gets a new field has the column too.
 */
#ifndef KEDGE_SCHEDULER_TABLES_H
#define KEDGE_SCHEDULER_TABLES_H

#include <sqlite3.h>
#include <stdint.h>

#include "scheduler/record.h"
#include "ssh/base/buf.h"
#include "ssh/wire/wire.h"

enum table_id {
    TABLE_HEAD,         /* a row: struct record */
    TABLE_STATE,        /* struct record_state */
    TABLE_PROCESSES,    /* struct record_process, and so on */
    TABLE_ROADS,
    TABLE_KNOBS,
    TABLE_LEDGER,
    TABLE_EVENTS,
    TABLE_ANCHOR,
    TABLE_METERS,
    TABLE_HOSTS,        /* struct record_host */
    TABLE_SPECTRA,      /* struct record_spectrum */
    TABLE_SAMPLES,      /* struct tables_sample */
    TABLE_ROAD_SAMPLES, /* struct tables_sample */
    TABLE_HOST_SAMPLES, /* struct tables_sample: what TABLE_HOSTS had, once a second */
    TABLE_ANCHOR_SAMPLES,
    TABLE_COUNT,
};

struct tables_sample {
    uint64_t wall_ms;
    char process[WIRE_NAME];
    union {
        struct wire_sample step;
        struct wire_road_sample road;
        struct wire_host host;
        struct wire_anchor_row anchor;
    } row;
};

struct table {
    const char *name;
    const char *key;        /* columns of the primary key, "" = none */
    const char *order;      /* for reading */
    enum wire_type type;    /* whose fields are the first columns; 0 = none */
    size_t row;             /* offset of that wire struct in the row */
    const struct wire_field *extra; /* further columns, with offsets in the row */
    size_t extra_count;
    long keep;              /* rows on disk; 0 = as many as there are */
};

#define TABLES_KEEP_SAMPLES 200000
#define TABLES_KEEP_STATES 50000 /* of hosts, of the anchor */
#define TABLES_KEEP_ROWS 10000 /* events, ledger */

const struct table *tables_get(enum table_id id);
size_t tables_columns(enum table_id id);
/* CREATE TABLE statements; the number tells them from those of other versions and is never 0. */
void tables_schema(struct buf *sql, int *number);
/* Bind all columns of a row. Text is not copied: the row must stay until the statement was reset. NaN becomes NULL:
 * unknown. */
void tables_bind(enum table_id id, const void *row, sqlite3_stmt *statement);
/* The other way, from a statement SELECT *. */
void tables_take(enum table_id id, sqlite3_stmt *statement, void *row);

#endif
