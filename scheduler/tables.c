#include "scheduler/tables.h"

#include <math.h>
#include <string.h>

#include "ssh/base/hash.h"

#define EXTRA(record, member, what) \
    {.name = #member, .kind = what, .offset = offsetof(struct record, member), .size = sizeof ((struct record *)0)->member}
#define EXTRAS(fields) .extra = (fields), .extra_count = sizeof(fields) / sizeof *(fields)

static const struct wire_field head_extra[] = {EXTRA(record, profile_hash, WIRE_U64), EXTRA(record, control, WIRE_STRING)};
static const struct wire_field state_extra[] = {
    EXTRA(record_state, cause, WIRE_U8),
    EXTRA(record_state, over, WIRE_U8),
    EXTRA(record_state, wall_ms, WIRE_U64),
};
static const struct wire_field process_extra[] = {
    EXTRA(record_process, announce, WIRE_STRING),
    EXTRA(record_process, nonce, WIRE_U64),
    EXTRA(record_process, ready, WIRE_U8),
    EXTRA(record_process, spawned, WIRE_U8),
    EXTRA(record_process, done, WIRE_U8),
};
static const struct wire_field road_extra[] = {
    EXTRA(record_road, base_bytes, WIRE_U64),
    EXTRA(record_road, dense_base_bytes, WIRE_U64),
    EXTRA(record_road, evaluation_base_bytes, WIRE_U64),
};
static const struct wire_field ledger_extra[] = {EXTRA(record_ledger, from_step, WIRE_U64)};
static const struct wire_field sample_extra[] = {EXTRA(tables_sample, wall_ms, WIRE_U64),
                                                 EXTRA(tables_sample, process, WIRE_STRING)};

static const struct table tables[TABLE_COUNT] = {
    [TABLE_HEAD] = {.name = "head", .key = "", .order = "rowid", EXTRAS(head_extra)},
    [TABLE_STATE] = {.name = "state", .key = "\"run\"", .order = "rowid", .type = WIRE_RUN_STATE,
                     .row = offsetof(struct record_state, row), EXTRAS(state_extra)},
    [TABLE_PROCESSES] = {.name = "processes", .key = "\"process\"", .order = "\"role\", \"replica\", \"stage\", \"process\"",
                         .type = WIRE_PROCESS_ROW, .row = offsetof(struct record_process, row), EXTRAS(process_extra)},
    [TABLE_ROADS] = {.name = "roads", .key = "\"from\", \"to\", \"lane\"", .order = "\"from\", \"to\", \"lane\"",
                     .type = WIRE_ROAD_ROW, .row = offsetof(struct record_road, row), EXTRAS(road_extra)},
    [TABLE_KNOBS] = {.name = "knobs", .key = "\"name\"", .order = "\"name\"", .type = WIRE_KNOB_ROW,
                     .row = offsetof(struct record_knob, row)},
    [TABLE_LEDGER] = {.name = "ledger", .key = "\"id\"", .order = "\"id\" DESC", .type = WIRE_LEDGER_ROW,
                      .row = offsetof(struct record_ledger, row), EXTRAS(ledger_extra), .keep = TABLES_KEEP_ROWS},
    [TABLE_EVENTS] = {.name = "events", .key = "\"id\"", .order = "\"id\" DESC", .type = WIRE_EVENT_ROW,
                      .row = offsetof(struct record_event, row), .keep = TABLES_KEEP_ROWS},
    [TABLE_ANCHOR] = {.name = "anchor", .key = "\"host\"", .order = "rowid", .type = WIRE_ANCHOR_ROW,
                      .row = offsetof(struct record_anchor, row)},
    [TABLE_METERS] = {.name = "meters", .key = "\"matrix_class\"", .order = "\"matrix_class\"", .type = WIRE_METER_ROW,
                      .row = offsetof(struct record_meter, row)},
    [TABLE_HOSTS] = {.name = "hosts", .key = "\"host\"", .order = "rowid", .type = WIRE_HOST_ROW, .row = offsetof(struct record_host, row)},
    [TABLE_SPECTRA] = {.name = "spectra", .key = "\"layer\", \"matrix_class\"", .order = "rowid", .type = WIRE_SPECTRUM_ROW,
                       .row = offsetof(struct record_spectrum, row)},
    [TABLE_SAMPLES] = {.name = "samples", .key = "", .order = "rowid", .type = WIRE_SAMPLE,
                       .row = offsetof(struct tables_sample, row), EXTRAS(sample_extra), .keep = TABLES_KEEP_SAMPLES},
    [TABLE_ROAD_SAMPLES] = {.name = "road_samples", .key = "", .order = "rowid", .type = WIRE_ROAD_SAMPLE,
                            .row = offsetof(struct tables_sample, row), EXTRAS(sample_extra), .keep = TABLES_KEEP_SAMPLES},
    [TABLE_HOST_SAMPLES] = {.name = "host_samples", .key = "", .order = "rowid", .type = WIRE_HOST_ROW,
                            .row = offsetof(struct tables_sample, row), EXTRAS(sample_extra), .keep = TABLES_KEEP_STATES},
    [TABLE_ANCHOR_SAMPLES] = {.name = "anchor_samples", .key = "", .order = "rowid", .type = WIRE_ANCHOR_ROW,
                              .row = offsetof(struct tables_sample, row), EXTRAS(sample_extra), .keep = TABLES_KEEP_STATES},
};

const struct table *tables_get(enum table_id id)
{
    return &tables[id];
}

static size_t wire_columns(const struct table *table)
{
    return table->type ? wire_find((uint16_t)table->type)->field_count : 0;
}

size_t tables_columns(enum table_id id)
{
    return wire_columns(&tables[id]) + tables[id].extra_count;
}

/* Column i of a table, and where it is in a row. */
static const struct wire_field *column(const struct table *table, size_t i, size_t *offset)
{
    size_t wire = wire_columns(table);
    const struct wire_field *field = i < wire ? &wire_find((uint16_t)table->type)->fields[i] : &table->extra[i - wire];
    *offset = field->offset + (i < wire ? table->row : 0);
    return field;
}

void tables_schema(struct buf *sql, int *number)
{
    static const char *const types[] = {
        [WIRE_U8] = "INTEGER",  [WIRE_U16] = "INTEGER", [WIRE_U32] = "INTEGER", [WIRE_U64] = "INTEGER",
        [WIRE_I32] = "INTEGER", [WIRE_F32] = "REAL",    [WIRE_F64] = "REAL",    [WIRE_STRING] = "TEXT",
    };
    for (int t = 0; t < TABLE_COUNT; t++) {
        size_t offset;
        buf_format(sql, "CREATE TABLE %s(", tables[t].name);
        for (size_t i = 0; i < tables_columns((enum table_id)t); i++) {
            const struct wire_field *field = column(&tables[t], i, &offset);
            buf_format(sql, "%s\"%s\" %s", i ? "," : "", field->name, types[field->kind]);
        }
        if (tables[t].key[0])
            buf_format(sql, ",PRIMARY KEY(%s)", tables[t].key);
        buf_format(sql, ");\n");
    }
    *number = (int)(hash_bytes(buf_peek(sql), buf_used(sql)) & 0x3fffffff) | 1;
}

static void bind_field(sqlite3_stmt *statement, int index, const struct wire_field *field, const char *at)
{
    uint64_t number = 0;
    double real;
    float narrow;
    switch (field->kind) {
    case WIRE_STRING:
        sqlite3_bind_text(statement, index, at, -1, SQLITE_STATIC);
        return;
    case WIRE_F64:
        memcpy(&real, at, sizeof real);
        sqlite3_bind_double(statement, index, real); /* NaN becomes NULL: unknown */
        return;
    case WIRE_F32:
        memcpy(&narrow, at, sizeof narrow);
        sqlite3_bind_double(statement, index, (double)narrow);
        return;
    default:
        memcpy(&number, at, field->size);
        sqlite3_bind_int64(statement, index, (sqlite3_int64)number);
    }
}

void tables_bind(enum table_id id, const void *row, sqlite3_stmt *statement)
{
    for (size_t i = 0; i < tables_columns(id); i++) {
        size_t offset;
        const struct wire_field *field = column(&tables[id], i, &offset);
        bind_field(statement, (int)i + 1, field, (const char *)row + offset);
    }
}

static void take_field(sqlite3_stmt *statement, int column, const struct wire_field *field, char *at)
{
    bool unknown = sqlite3_column_type(statement, column) == SQLITE_NULL;
    double real = unknown ? (double)NAN : sqlite3_column_double(statement, column);
    float narrow = (float)real;
    sqlite3_int64 number = sqlite3_column_int64(statement, column);
    const unsigned char *text = sqlite3_column_text(statement, column);
    switch (field->kind) {
    case WIRE_STRING:
        record_text(at, field->size, "%s", text ? (const char *)text : "");
        return;
    case WIRE_F64:
        memcpy(at, &real, sizeof real);
        return;
    case WIRE_F32:
        memcpy(at, &narrow, sizeof narrow);
        return;
    default:
        memcpy(at, &number, field->size);
    }
}

void tables_take(enum table_id id, sqlite3_stmt *statement, void *row)
{
    for (size_t i = 0; i < tables_columns(id); i++) {
        size_t offset;
        const struct wire_field *field = column(&tables[id], i, &offset);
        take_field(statement, (int)i, field, (char *)row + offset);
    }
}
