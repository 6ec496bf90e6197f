#include "scheduler/history.h"

#include <math.h>
#include <sqlite3.h>

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

static int print_rows(sqlite3 *db, const char *sql, const int *numbers, int count, void (*print)(sqlite3_stmt *, FILE *), FILE *out)
{
    sqlite3_stmt *row = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &row, NULL);
    for (int i = 0; rc == SQLITE_OK && i < count; i++)
        rc = sqlite3_bind_int(row, i + 1, numbers[i]);
    while (rc == SQLITE_OK && (rc = sqlite3_step(row)) == SQLITE_ROW) {
        print(row, out);
        rc = ferror(out) ? SQLITE_IOERR : SQLITE_OK;
    }
    sqlite3_finalize(row);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int history_print(const char *folder, FILE *out, struct why *why)
{
    sqlite3 *db = NULL;
    char *path = mem_format("%s/run.db", folder);
    const int thinned[] = {STAMP_EVALUATE, LOSSES}, newest[] = {SAMPLES}, window[] = {RATES_MS};
    int err = 0, rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_busy_timeout(db, BUSY_MS);
    if (rc == SQLITE_OK)
        rc = print_rows(db, losses, thinned, 2, print_loss, out);
    if (rc == SQLITE_OK)
        rc = print_rows(db, samples, newest, 1, print_sample, out);
    if (rc == SQLITE_OK)
        rc = print_rows(db, rates, window, 1, print_rate, out);
    if (rc != SQLITE_OK)
        err = why_set(why, ERR_INVALID, "%s: cannot be read as a journal: %s", path, db ? sqlite3_errmsg(db) : "out of memory");
    sqlite3_close(db);
    mem_free(path);
    return err;
}
