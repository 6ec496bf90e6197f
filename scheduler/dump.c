#include "scheduler/dump.h"

#include <sqlite3.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define BUSY_MS 2000

static int complain(sqlite3 *db, const char *path, struct why *why)
{
    return why_set(why, ERR_INVALID, "%s: cannot be read as a journal: %s", path, sqlite3_errmsg(db));
}

static void print_text(sqlite3_stmt *row, int column, FILE *out)
{
    size_t bytes = (size_t)sqlite3_column_bytes(row, column);
    char *harmless = mem_new(4 * bytes + 1);
    text_harmless((const char *)sqlite3_column_text(row, column), bytes, harmless, 4 * bytes + 1);
    fprintf(out, "\"%s\"", harmless);
    mem_free(harmless);
}

static void print_value(sqlite3_stmt *row, int column, FILE *out)
{
    switch (sqlite3_column_type(row, column)) {
    case SQLITE_INTEGER:
        fprintf(out, "%lld", (long long)sqlite3_column_int64(row, column));
        break;
    case SQLITE_FLOAT:
        fprintf(out, "%.17g", sqlite3_column_double(row, column));
        break;
    case SQLITE_TEXT:
        print_text(row, column, out);
        break;
    case SQLITE_BLOB:
        fprintf(out, "%d bytes", sqlite3_column_bytes(row, column));
        break;
    default:
        fputs("null", out);
    }
}

/* The name comes from the file, which anybody may have written: it is quoted as SQL wants it. */
static int print_table(sqlite3 *db, const char *path, const char *name, FILE *out, struct why *why)
{
    sqlite3_stmt *row = NULL;
    char shown[200], *sql = sqlite3_mprintf("SELECT * FROM \"%w\"", name);
    int rc = sqlite3_prepare_v2(db, sql, -1, &row, NULL);
    sqlite3_free(sql);
    text_harmless(name, strlen(name), shown, sizeof shown);
    while (rc == SQLITE_OK && (rc = sqlite3_step(row)) == SQLITE_ROW) {
        fputs(shown, out);
        for (int i = 0; i < sqlite3_column_count(row); i++) {
            char column[200];
            text_harmless(sqlite3_column_name(row, i), strlen(sqlite3_column_name(row, i)), column, sizeof column);
            fprintf(out, " %s=", column);
            print_value(row, i, out);
        }
        fputc('\n', out);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(row);
    return rc == SQLITE_DONE ? 0 : complain(db, path, why);
}

int dump_journal(const char *path, FILE *out, struct why *why)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *names = NULL;
    int err = 0, rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_busy_timeout(db, BUSY_MS);
        rc = sqlite3_prepare_v2(db, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid", -1, &names, NULL);
    }
    while (rc == SQLITE_OK && !err && (rc = sqlite3_step(names)) == SQLITE_ROW) {
        err = print_table(db, path, (const char *)sqlite3_column_text(names, 0), out, why);
        rc = SQLITE_OK;
    }
    if (!err && rc != SQLITE_DONE)
        err = complain(db, path, why);
    sqlite3_finalize(names);
    sqlite3_close(db);
    return err;
}
