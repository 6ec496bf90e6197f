#include "scheduler/history.h"

#include <math.h>
#include <sqlite3.h>

#include "scheduler/tables.h"
#include "ssh/base/mem.h"
#include "ssh/wire/wire.h"

#define BUSY_MS 2000
#define LOSSES 4000  /* of the whole run, about */
#define SAMPLES 4096 /* newest, of all processes */
#define RATES_MS 260000

/* Every replica has losses and norms of its own: what the run is judged by is their mean. */
static const char losses[] =
    "SELECT step, kind, avg(loss), avg(gradient_norm) FROM samples WHERE loss IS NOT NULL AND (kind = ?1 OR "
    "step % max(1, (SELECT max(step) FROM samples) / ?2) = 0) GROUP BY kind, step ORDER BY kind, step";
static const char samples[] =
    "SELECT wall_ms, process, step, kind, loss, gradient_norm, learning_rate, mask_rate, tokens, step_ns, compute_ns, wait_act_ns, "
    "wait_grad_ns, wait_stamp_ns, wait_send_ns, wait_data_ns, wait_sync_ns, pack_ns, began_wall_ns, timeline FROM samples "
    "WHERE rowid > (SELECT max(rowid) FROM samples) - ?1 ORDER BY rowid";
static const char rates[] =
    "SELECT wall_ms, process, peer, lane, (sent_bytes - lag(sent_bytes) OVER w) * 1000.0 / (wall_ms - lag(wall_ms) OVER w) "
    "FROM road_samples WHERE wall_ms > (SELECT max(wall_ms) FROM road_samples) - ?1 "
    "WINDOW w AS (PARTITION BY process, peer, lane ORDER BY rowid) ORDER BY wall_ms";

#define STATES 2000 /* of hosts, of the anchor: about as many, evenly over the time that the samples are of */

static const char *const states[] = {
    "SELECT * FROM host_samples WHERE rowid IN (SELECT min(rowid) FROM host_samples WHERE wall_ms >= ?1 GROUP BY process, wall_ms / ?2) "
    "ORDER BY wall_ms",
    "SELECT * FROM anchor_samples WHERE rowid IN (SELECT min(rowid) FROM anchor_samples WHERE wall_ms >= ?1 GROUP BY process, wall_ms / ?2) "
    "ORDER BY wall_ms"};
static const char span[] =
    "SELECT min(wall_ms), max(wall_ms) FROM (SELECT wall_ms FROM samples WHERE rowid > (SELECT max(rowid) FROM samples) - ?1)";

static double real_of(sqlite3_stmt *row, int column)
{
    return sqlite3_column_type(row, column) == SQLITE_NULL ? NAN : sqlite3_column_double(row, column);
}

static void print_loss(sqlite3_stmt *row, FILE *out)
{
    fprintf(out, "loss %lld %d %.9g %.9g\n", (long long)sqlite3_column_int64(row, 0), sqlite3_column_int(row, 1), real_of(row, 2),
            real_of(row, 3));
}

static void print_sample(sqlite3_stmt *row, FILE *out)
{
    fprintf(out, "step %lld %s %lld %d", (long long)sqlite3_column_int64(row, 0), (const char *)sqlite3_column_text(row, 1),
            (long long)sqlite3_column_int64(row, 2), sqlite3_column_int(row, 3));
    for (int i = 4; i < 8; i++)
        fprintf(out, " %.9g", real_of(row, i));
    for (int i = 8; i < 19; i++)
        fprintf(out, " %lld", (long long)sqlite3_column_int64(row, i));
    const char *timeline = (const char *)sqlite3_column_text(row, 19);
    fprintf(out, " %s\n", timeline && timeline[0] ? timeline : "-");
}

static void print_rate(sqlite3_stmt *row, FILE *out)
{
    double rate = real_of(row, 4);
    if (isfinite(rate) && rate >= 0) /* a road that stands anew counts from 0 */
        fprintf(out, "rate %lld %s %s %d %.6g\n", (long long)sqlite3_column_int64(row, 0),
                (const char *)sqlite3_column_text(row, 1), (const char *)sqlite3_column_text(row, 2), sqlite3_column_int(row, 3),
                rate);
}

/* "row WALL_MS TYPE HEX": a row of the language as it was then. */
static void print_state(enum table_id table, sqlite3_stmt *row, FILE *out)
{
    struct tables_sample sample = {.wall_ms = 0};
    struct buf encoded;
    struct why why = {0};
    enum wire_type type = tables_get(table)->type;
    buf_init(&encoded, 64 * 1024);
    tables_take(table, row, &sample);
    if (wire_encode((uint16_t)type, &sample.row, &encoded, &why) == 0) {
        fprintf(out, "row %llu %d ", (unsigned long long)sample.wall_ms, (int)type);
        for (size_t i = 0; i < buf_used(&encoded); i++)
            fprintf(out, "%02x", ((const uint8_t *)buf_peek(&encoded))[i]);
        fputc('\n', out);
    }
    buf_clear(&encoded);
}

static void print_host(sqlite3_stmt *row, FILE *out)
{
    print_state(TABLE_HOST_SAMPLES, row, out);
}

static void print_anchor(sqlite3_stmt *row, FILE *out)
{
    print_state(TABLE_ANCHOR_SAMPLES, row, out);
}

static int print_rows(sqlite3 *db, const char *sql, const long long *numbers, int count, void (*print)(sqlite3_stmt *, FILE *), FILE *out)
{
    sqlite3_stmt *row = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &row, NULL);
    for (int i = 0; rc == SQLITE_OK && i < count; i++)
        rc = sqlite3_bind_int64(row, i + 1, numbers[i]);
    while (rc == SQLITE_OK && (rc = sqlite3_step(row)) == SQLITE_ROW) {
        print(row, out);
        rc = ferror(out) ? SQLITE_IOERR : SQLITE_OK;
    }
    sqlite3_finalize(row);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Since when, and milliseconds between two. */
static int find_span(sqlite3 *db, long long numbers[2])
{
    sqlite3_stmt *row = NULL;
    int rc = sqlite3_prepare_v2(db, span, -1, &row, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int(row, 1, SAMPLES);
    if (rc == SQLITE_OK && (rc = sqlite3_step(row)) == SQLITE_ROW) {
        long long from = sqlite3_column_int64(row, 0), to = sqlite3_column_int64(row, 1);
        numbers[0] = from - 5000;
        numbers[1] = (to - from) / STATES > 1000 ? (to - from) / STATES : 1000;
        rc = SQLITE_OK;
    }
    sqlite3_finalize(row);
    return rc;
}

int history_print(const char *folder, FILE *out, struct why *why)
{
    sqlite3 *db = NULL;
    char *path = mem_format("%s/run.db", folder);
    const long long thinned[] = {STAMP_EVALUATE, LOSSES}, newest[] = {SAMPLES}, window[] = {RATES_MS};
    long long since[2] = {0, 1000};
    int err = 0, rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_busy_timeout(db, BUSY_MS);
    if (rc == SQLITE_OK)
        rc = print_rows(db, losses, thinned, 2, print_loss, out);
    if (rc == SQLITE_OK)
        rc = print_rows(db, samples, newest, 1, print_sample, out);
    if (rc == SQLITE_OK)
        rc = print_rows(db, rates, window, 1, print_rate, out);
    if (rc == SQLITE_OK)
        rc = find_span(db, since);
    for (int i = 0; i < 2 && rc == SQLITE_OK; i++)
        rc = print_rows(db, states[i], since, 2, i ? print_anchor : print_host, out);
    if (rc != SQLITE_OK)
        err = why_set(why, ERR_INVALID, "%s: cannot be read as a journal: %s", path, db ? sqlite3_errmsg(db) : "out of memory");
    sqlite3_close(db);
    mem_free(path);
    return err;
}
