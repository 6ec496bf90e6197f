#include "scheduler/journal.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "scheduler/tables.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"

#define QUEUE 4096        /* samples of a kind between two writes */
#define PRUNE_EVERY 64    /* writes */
#define BUSY_MS 50        /* somebody reads with sqlite3: a short wait, else the next write does it */
#define FREE_MIN_BYTES (256 * 1024)
#define SCHEMA_BYTES (32 * 1024)

struct queue {
    struct tables_sample *samples; /* [QUEUE], a ring of first..first+count */
    size_t first, count;
};

struct journal {
    sqlite3 *db;
    char path[1024];
    sqlite3_stmt *put[TABLE_COUNT];
    struct queue queues[2]; /* steps, roads */
    uint64_t seen;          /* version of the record that is on disk */
    uint64_t lost;
    uint64_t stated_ms;     /* when hosts and anchor were kept last, by the wall clock */
    unsigned writes;
};

/* ---- failures in words ---- */

static bool is_full(int number)
{
    return number == ENOSPC || number == EDQUOT || number == EFBIG;
}

/* SQLITE_FULL is only ENOSPC; a quota or a file size limit is an I/O error, and the file that failed (the database or its
 * log) knows which. The shared memory beside them does not: there the free room decides. */
static bool disk_is_full(const struct journal *journal, int rc)
{
    struct statvfs disk;
    int number = 0;
    sqlite3_file *log = NULL;
    if (rc == SQLITE_FULL || is_full(sqlite3_system_errno(journal->db)))
        return true;
    if (sqlite3_file_control(journal->db, "main", SQLITE_FCNTL_LAST_ERRNO, &number) == SQLITE_OK && is_full(number))
        return true;
    if (sqlite3_file_control(journal->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK && log && log->pMethods &&
        log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &number) == SQLITE_OK && is_full(number))
        return true;
    char folder[sizeof journal->path];
    snprintf(folder, sizeof folder, "%s", journal->path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    return (rc & 0xff) == SQLITE_IOERR && statvfs(folder, &disk) == 0 &&
           (uint64_t)disk.f_bavail * disk.f_frsize < FREE_MIN_BYTES;
}

static int fail(struct journal *journal, int rc, struct why *why)
{
    if (disk_is_full(journal, rc))
        return why_set(why, ERR_FULL, "%s: disk full: free space or set XDG_STATE_HOME elsewhere", journal->path);
    if (rc == SQLITE_NOTADB || rc == SQLITE_CORRUPT)
        return why_set(why, ERR_INVALID, "%s: is not a journal, or damaged (%s); move it away", journal->path,
                       sqlite3_errmsg(journal->db));
    if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED)
        return why_set(why, ERR_AGAIN, "%s: another program holds it; it is written when that ends", journal->path);
    return why_set(why, ERR_SYSTEM, "%s: %s", journal->path, sqlite3_errmsg(journal->db));
}

static int run_sql(struct journal *journal, const char *sql, struct why *why)
{
    int rc = sqlite3_exec(journal->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : fail(journal, rc, why);
}

/* ---- the schema ---- */

static int create(struct journal *journal, struct why *why)
{
    struct buf sql, schema;
    int number;
    buf_init(&schema, SCHEMA_BYTES);
    buf_init(&sql, SCHEMA_BYTES + 200);
    tables_schema(&schema, &number);
    buf_format(&sql, "BEGIN;");
    buf_put(&sql, buf_peek(&schema), buf_used(&schema));
    buf_format(&sql, "PRAGMA user_version=%d;COMMIT;", number);
    buf_put(&sql, "", 1);
    int err = run_sql(journal, (const char *)buf_peek(&sql), why);
    buf_clear(&schema);
    buf_clear(&sql);
    return err;
}

static int check_schema(struct journal *journal, struct why *why)
{
    sqlite3_stmt *statement = NULL;
    struct buf schema;
    int number = 0, ours;
    int rc = sqlite3_prepare_v2(journal->db, "PRAGMA user_version", -1, &statement, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW)
        number = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    if (rc != SQLITE_ROW)
        return fail(journal, rc, why);
    buf_init(&schema, SCHEMA_BYTES);
    tables_schema(&schema, &ours);
    buf_clear(&schema);
    if (number == 0)
        return why_set(why, ERR_ABSENT, "%s: is empty", journal->path);
    if (number != ours)
        return why_set(why, ERR_INVALID, "%s: was written by another version of kedge, which can read it", journal->path);
    return 0;
}

/* ---- writing ---- */

static int prepare(struct journal *journal, struct why *why)
{
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        struct buf sql;
        buf_init(&sql, 4096);
        buf_format(&sql, "INSERT OR REPLACE INTO %s VALUES(", tables_get((enum table_id)t)->name);
        for (size_t i = 0; i < tables_columns((enum table_id)t); i++)
            buf_format(&sql, i ? ",?" : "?");
        buf_format(&sql, ")");
        int rc = sqlite3_prepare_v3(journal->db, (const char *)buf_peek(&sql), (int)buf_used(&sql),
                                    SQLITE_PREPARE_PERSISTENT, &journal->put[t], NULL);
        buf_clear(&sql);
        if (rc != SQLITE_OK)
            return fail(journal, rc, why);
    }
    return 0;
}

static int put_row(struct journal *journal, enum table_id id, const void *row)
{
    sqlite3_stmt *statement = journal->put[id];
    tables_bind(id, row, statement);
    int rc = sqlite3_step(statement);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* All rows of a kind that are newer than what is on disk; `version` is the first member of each. */
static int put_newer(struct journal *journal, enum table_id id, const void *rows, size_t count, size_t bytes_each)
{
    for (size_t i = 0; i < count; i++) {
        const char *row = (const char *)rows + i * bytes_each;
        uint64_t version;
        memcpy(&version, row, sizeof version);
        int rc = version > journal->seen ? put_row(journal, id, row) : SQLITE_OK;
        if (rc != SQLITE_OK)
            return rc;
    }
    return SQLITE_OK;
}

static int put_queue(struct journal *journal, enum table_id id, const struct queue *queue)
{
    for (size_t i = 0; i < queue->count; i++) {
        int rc = put_row(journal, id, &queue->samples[(queue->first + i) % QUEUE]);
        if (rc != SQLITE_OK)
            return rc;
    }
    return SQLITE_OK;
}

/* How hosts and the anchor were, once a second: what is looked back at (kedge's replay) was on all of them at the same time. */
static int put_states(struct journal *journal, const struct record *record)
{
    struct tables_sample sample = {.wall_ms = clock_wall_ms()};
    int rc = SQLITE_OK;
    if (sample.wall_ms - journal->stated_ms < 1000) /* a clock that was set back keeps one, too */
        return SQLITE_OK;
    for (size_t i = 0; i < record->host_count && rc == SQLITE_OK; i++) {
        record_text(sample.process, sizeof sample.process, "%s", record->hosts[i].row.host);
        sample.row.host = record->hosts[i].row;
        rc = put_row(journal, TABLE_HOST_SAMPLES, &sample);
    }
    record_text(sample.process, sizeof sample.process, "anchor");
    sample.row.anchor = record->anchor.row;
    return rc == SQLITE_OK && record->anchor.row.host[0] ? put_row(journal, TABLE_ANCHOR_SAMPLES, &sample) : rc;
}

static int prune(struct journal *journal)
{
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        char sql[160];
        const struct table *table = tables_get((enum table_id)t);
        if (table->keep == 0)
            continue;
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE rowid <= (SELECT max(rowid) FROM %s) - %ld", table->name,
                 table->name, table->keep);
        int rc = sqlite3_exec(journal->db, sql, NULL, NULL, NULL);
        if (rc != SQLITE_OK)
            return rc;
    }
    return SQLITE_OK;
}

static int write_all(struct journal *journal, struct record *record)
{
    int rc = sqlite3_exec(journal->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK && journal->seen == 0)
        rc = put_row(journal, TABLE_HEAD, record);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_STATE, &record->state, 1, sizeof record->state);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_PROCESSES, record->processes, record->process_count, sizeof record->processes[0]);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_ROADS, record->roads, record->road_count, sizeof record->roads[0]);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_KNOBS, record->knobs, record->knob_count, sizeof record->knobs[0]);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_LEDGER, record->ledger, RECORD_LEDGER, sizeof record->ledger[0]);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_EVENTS, record->events, RECORD_EVENTS, sizeof record->events[0]);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_ANCHOR, &record->anchor, 1, sizeof record->anchor);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_METERS, record->meters, MATRIX_CLASSES, sizeof record->meters[0]);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_HOSTS, record->hosts, record->host_count, sizeof record->hosts[0]);
    if (rc == SQLITE_OK)
        rc = put_newer(journal, TABLE_SPECTRA, record->spectra, record->spectrum_count, sizeof record->spectra[0]);
    if (rc == SQLITE_OK)
        rc = put_queue(journal, TABLE_SAMPLES, &journal->queues[0]);
    if (rc == SQLITE_OK)
        rc = put_queue(journal, TABLE_ROAD_SAMPLES, &journal->queues[1]);
    if (rc == SQLITE_OK)
        rc = put_states(journal, record);
    if (rc == SQLITE_OK && journal->writes % PRUNE_EVERY == PRUNE_EVERY - 1)
        rc = prune(journal);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(journal->db, "COMMIT", NULL, NULL, NULL);
    return rc;
}

int journal_write(struct journal *journal, struct record *record, struct why *why)
{
    uint64_t version = record->version;
    int rc = write_all(journal, record);
    if (rc != SQLITE_OK) {
        int err = fail(journal, rc, why);
        if (!sqlite3_get_autocommit(journal->db))
            sqlite3_exec(journal->db, "ROLLBACK", NULL, NULL, NULL);
        return err;
    }
    uint64_t now_ms = clock_wall_ms();
    if (now_ms - journal->stated_ms >= 1000)
        journal->stated_ms = now_ms;
    journal->writes++;
    journal->seen = version;
    journal->queues[0].count = journal->queues[1].count = 0;
    record->urgent = false;
    return 0;
}

static struct tables_sample *add(struct journal *journal, struct queue *queue, const char *process)
{
    if (queue->count == QUEUE) {
        queue->first = (queue->first + 1) % QUEUE;
        queue->count--;
        journal->lost++;
    }
    struct tables_sample *sample = &queue->samples[(queue->first + queue->count++) % QUEUE];
    *sample = (struct tables_sample){.wall_ms = clock_wall_ms()};
    record_text(sample->process, sizeof sample->process, "%s", process);
    return sample;
}

void journal_add_sample(struct journal *journal, const char *process, const struct wire_sample *sample)
{
    add(journal, &journal->queues[0], process)->row.step = *sample;
}

void journal_add_road_sample(struct journal *journal, const char *process, const struct wire_road_sample *sample)
{
    add(journal, &journal->queues[1], process)->row.road = *sample;
}

uint64_t journal_lost_samples(const struct journal *journal)
{
    return journal->lost;
}

/* ---- reading ---- */

typedef void *place_cb(struct record *record, sqlite3_stmt *statement);

static void *place_head(struct record *record, sqlite3_stmt *statement)
{
    (void)statement;
    return record;
}

static void *place_state(struct record *record, sqlite3_stmt *statement)
{
    (void)statement;
    return &record->state;
}

static void *place_process(struct record *record, sqlite3_stmt *statement)
{
    (void)statement;
    return record->process_count < RECORD_PROCESSES ? &record->processes[record->process_count++] : NULL;
}

static void *place_road(struct record *record, sqlite3_stmt *statement)
{
    (void)statement;
    return record->road_count < RECORD_ROADS ? &record->roads[record->road_count++] : NULL;
}

static void *place_knob(struct record *record, sqlite3_stmt *statement)
{
    (void)statement;
    return record->knob_count < RECORD_KNOBS ? &record->knobs[record->knob_count++] : NULL;
}

static void *place_ledger(struct record *record, sqlite3_stmt *statement)
{
    uint64_t id = (uint64_t)sqlite3_column_int64(statement, 0);
    if (record->newest_ledger == 0)
        record->newest_ledger = id;
    return id > 0 && record->newest_ledger - id < RECORD_LEDGER ? &record->ledger[id % RECORD_LEDGER] : NULL;
}

static void *place_event(struct record *record, sqlite3_stmt *statement)
{
    uint64_t id = (uint64_t)sqlite3_column_int64(statement, 0);
    if (record->newest_event == 0)
        record->newest_event = id;
    return id > 0 && record->newest_event - id < RECORD_EVENTS ? &record->events[id % RECORD_EVENTS] : NULL;
}

static void *place_anchor(struct record *record, sqlite3_stmt *statement)
{
    (void)statement;
    return &record->anchor;
}

static void *place_meter(struct record *record, sqlite3_stmt *statement)
{
    size_t class = 0; /* in the order of the table, which is that of the classes */
    (void)statement;
    while (class < MATRIX_CLASSES && record->meters[class].version)
        class++;
    return class < MATRIX_CLASSES ? &record->meters[class] : NULL;
}

static void *place_host(struct record *record, sqlite3_stmt *statement)
{
    (void)statement;
    return record->host_count < PROFILE_HOSTS ? &record->hosts[record->host_count++] : NULL;
}

static void *place_spectrum(struct record *record, sqlite3_stmt *statement)
{
    (void)statement;
    return record->spectrum_count < RECORD_SPECTRA ? &record->spectra[record->spectrum_count++] : NULL;
}

static int read_table(struct journal *journal, enum table_id id, place_cb *place, struct record *record, struct why *why)
{
    char sql[160];
    sqlite3_stmt *statement = NULL;
    snprintf(sql, sizeof sql, "SELECT * FROM %s ORDER BY %s LIMIT %d", tables_get(id)->name, tables_get(id)->order,
             RECORD_EVENTS);
    int rc = sqlite3_prepare_v2(journal->db, sql, -1, &statement, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(statement);
        void *row = rc == SQLITE_ROW ? place(record, statement) : NULL;
        if (row) {
            tables_take(id, statement, row);
            if (id != TABLE_HEAD)
                record_touch(record, row); /* `version` is the first member */
        }
    }
    int err = rc == SQLITE_DONE ? 0 : fail(journal, rc, why);
    sqlite3_finalize(statement);
    return err;
}

static int read_all(struct journal *journal, struct record *record, struct why *why)
{
    static place_cb *const places[] = {
        [TABLE_HEAD] = place_head,    [TABLE_STATE] = place_state, [TABLE_PROCESSES] = place_process,
        [TABLE_ROADS] = place_road,   [TABLE_KNOBS] = place_knob,  [TABLE_LEDGER] = place_ledger,
        [TABLE_EVENTS] = place_event, [TABLE_ANCHOR] = place_anchor, [TABLE_METERS] = place_meter,
        [TABLE_HOSTS] = place_host, [TABLE_SPECTRA] = place_spectrum,
    };
    int err = check_schema(journal, why);
    for (size_t t = 0; t < sizeof places / sizeof *places && err == 0; t++)
        err = read_table(journal, (enum table_id)t, places[t], record, why);
    if (err == 0 && record->state.row.phase == 0)
        err = why_set(why, ERR_ABSENT, "%s: holds no run", journal->path);
    return err;
}

/* ---- opening ---- */

static struct journal *journal_new(const char *folder)
{
    struct journal *journal = mem_new(sizeof *journal);
    snprintf(journal->path, sizeof journal->path, "%s/run.db", folder);
    for (size_t i = 0; i < 2; i++)
        journal->queues[i].samples = mem_array(QUEUE, sizeof(struct tables_sample));
    return journal;
}

static int connect_db(struct journal *journal, int flags, struct why *why)
{
    int rc = sqlite3_open_v2(journal->path, &journal->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return fail(journal, rc, why);
    sqlite3_busy_timeout(journal->db, BUSY_MS);
    sqlite3_extended_result_codes(journal->db, 0);
    return 0;
}

static void disconnect_db(struct journal *journal)
{
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        sqlite3_finalize(journal->put[t]);
        journal->put[t] = NULL;
    }
    sqlite3_close(journal->db);
    journal->db = NULL;
}

/* run.db and what SQLite keeps beside it become run.db.1 …, which replaces an older one. */
static int put_aside(struct journal *journal, struct why *why)
{
    static const char *const tails[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        char from[sizeof journal->path + 16], to[sizeof journal->path + 16];
        snprintf(from, sizeof from, "%s%s", journal->path, tails[i]);
        snprintf(to, sizeof to, "%s.1%s", journal->path, tails[i]);
        unlink(to);
        if (rename(from, to) < 0 && errno != ENOENT)
            return why_errno(why, "cannot keep %s as %s", from, to);
    }
    return 0;
}

static int begin(struct journal *journal, struct why *why)
{
    int err = connect_db(journal, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, why);
    if (err == 0)
        err = run_sql(journal, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=4194304", why);
    if (err == 0)
        err = create(journal, why);
    return err;
}

/* An old file: is it this run's? 1 = yes and `record` is filled, 0 = no, put it aside. */
static int look(struct journal *journal, uint64_t run_id, struct record *record, struct why *why)
{
    struct why own = {0};
    if (access(journal->path, F_OK) < 0)
        return 0;
    int err = connect_db(journal, SQLITE_OPEN_READWRITE, &own);
    if (err == 0)
        err = read_all(journal, record, &own);
    if (err == ERR_FULL || err == ERR_AGAIN)
        return why_set(why, err, "%s", own.text);
    if (err < 0) {
        log_at(LOG_WARN, "journal", "%s: kept as run.db.1", own.text);
        return 0;
    }
    if (record->state.row.run_id != run_id)
        return 0;
    if (record->state.over)
        return why_set(why, ERR_REFUSED, "run %s (%016llx) is %s; 'kedge run' starts it anew", record->state.row.run,
                       (unsigned long long)run_id, wire_phase_name(record->state.row.phase));
    err = run_sql(journal, "PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=4194304", why);
    return err < 0 ? err : 1;
}

int journal_open(const char *folder, uint64_t run_id, struct record *record, bool *adopted, struct journal **journal,
                 struct why *why)
{
    struct journal *made = journal_new(folder);
    struct record *old = record_new();
    int err = look(made, run_id, old, why);
    if (err == 1) {
        *record = *old;
        made->seen = record->version;
    } else if (err == 0) {
        disconnect_db(made);
        err = put_aside(made, why);
        if (err == 0)
            err = begin(made, why);
    }
    record_free(old);
    bool is_old = err == 1;
    if (err >= 0)
        err = prepare(made, why);
    if (err < 0) {
        journal_close(made);
        return err;
    }
    *adopted = is_old;
    *journal = made;
    return 0;
}

void journal_close(struct journal *journal)
{
    if (!journal)
        return;
    disconnect_db(journal);
    for (size_t i = 0; i < 2; i++)
        mem_free(journal->queues[i].samples);
    mem_free(journal);
}

int journal_read(const char *folder, struct record *record, struct why *why)
{
    struct journal *journal = journal_new(folder);
    int err = 0;
    if (access(journal->path, F_OK) < 0)
        err = why_errno(why, "%s", journal->path);
    if (err == 0)
        err = connect_db(journal, SQLITE_OPEN_READWRITE, why); /* a killed scheduler's log may have to be played back */
    if (err == 0)
        err = read_all(journal, record, why);
    journal_close(journal);
    return err;
}
