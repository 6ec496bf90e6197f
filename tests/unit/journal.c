/* The journal: what is written comes back, a killed writer leaves the last whole transaction, a full disk is said and
 * survived. */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "scheduler/journal.h"
#include "scheduler/tables.h"
#include "ssh/base/log.h"
#include "tests/helpers/dice.h"
#include "tests/helpers/message.h"
#include "tests/helpers/place.h"

#define RUN UINT64_C(0xfedcba9876543210)

static struct place place;
static struct record *record;

static int set_up(void **state)
{
    (void)state;
    record = record_new();
    return place_init(&place);
}

static int tear_down(void **state)
{
    (void)state;
    record_free(record);
    place_clear(&place);
    return 0;
}

static struct journal *open_journal(uint64_t run_id, bool *adopted)
{
    struct why why = {0};
    struct journal *journal;
    if (journal_open(place.folder, run_id, record, adopted, &journal, &why) < 0)
        fail_msg("%s", why.text);
    return journal;
}

static void write_journal(struct journal *journal)
{
    struct why why = {0};
    if (journal_write(journal, record, &why) < 0)
        fail_msg("%s", why.text);
}

/* A random row of the wire in the record's row. What is unknown comes back as such, not with the bits that it had. */
static void fill(struct dice *dice, enum wire_type type, void *row)
{
    const struct wire_message *message = wire_find((uint16_t)type);
    char *made = message_random(dice, message, 0);
    for (size_t i = 0; i < message->field_count; i++) {
        char *at = made + message->fields[i].offset;
        double wide = 0;
        float narrow = 0;
        memcpy(&wide, at, message->fields[i].kind == WIRE_F64 ? sizeof wide : 0);
        memcpy(&narrow, at, message->fields[i].kind == WIRE_F32 ? sizeof narrow : 0);
        if (isnan(wide))
            memcpy(at, &(double){(double)NAN}, sizeof wide);
        if (isnan(narrow))
            memcpy(at, &(float){NAN}, sizeof narrow);
    }
    memcpy(row, made, message->struct_bytes);
    message_free(message, made);
}

static void begin_record(void)
{
    struct wire_run_state *state = &record->state.row;
    snprintf(state->run, sizeof state->run, "laptop");
    state->run_id = RUN;
    state->phase = PHASE_TRAINING;
    record_touch(record, &record->state.version);
}

static void fill_record(struct dice *dice)
{
    fill(dice, WIRE_RUN_STATE, &record->state.row);
    begin_record();
    record->state.row.loss = (double)NAN;
    record->state.cause = CAUSE_DRIFT;
    record->state.wall_ms = 123456789;
    record->profile_hash = UINT64_MAX - 5;
    snprintf(record->control, sizeof record->control, "127.0.0.1:4711");
    for (int i = 0; i < 4; i++) {
        struct record_process *process = &record->processes[record->process_count++];
        fill(dice, WIRE_PROCESS_ROW, &process->row);
        snprintf(process->row.process, sizeof process->row.process, "p%d", i);
        process->row.role = ROLE_STAGE;
        process->row.replica = 0;
        process->row.stage = (uint16_t)i;
        process->row.heard_ns_ago = UINT64_MAX;
        snprintf(process->announce, sizeof process->announce, "host:%d", i);
        process->nonce = dice_u64(dice);
        process->ready = READY_LOADED;
        process->spawned = i % 2;
        process->done = 1;
        record_touch(record, &process->version);
    }
    struct record_host *host = &record->hosts[record->host_count++];
    fill(dice, WIRE_HOST_ROW, &host->row);
    record_touch(record, &host->version);
    struct record_spectrum *spectrum = &record->spectra[record->spectrum_count++];
    fill(dice, WIRE_SPECTRUM_ROW, &spectrum->row);
    record_touch(record, &spectrum->version);
    struct record_road *road = record_road(record, "p0", "p1", LANE_ACT);
    road->row.bytes_per_second = 1.25;
    road->base_bytes = 77;
    record_touch(record, &road->version);
    struct record_knob *knob = &record->knobs[record->knob_count++];
    fill(dice, WIRE_KNOB_ROW, &knob->row);
    record_touch(record, &knob->version);
    for (int i = 0; i < 3; i++) {
        struct record_ledger *ledger = record_add_ledger(record);
        uint64_t id = ledger->row.id;
        fill(dice, WIRE_LEDGER_ROW, &ledger->row);
        ledger->row.id = id;
        ledger->from_step = 12;
    }
    for (int i = 0; i < RECORD_EVENTS + 5; i++) {
        struct record_event *event = record_add_event(record);
        uint64_t id = event->row.id;
        fill(dice, WIRE_EVENT_ROW, &event->row);
        event->row.id = id;
    }
}

#define SAME(TYPE, one, other) assert_true(message_same(wire_find(TYPE), one, other))

static void all_comes_back(void **state)
{
    (void)state;
    struct dice dice = {.state = 5};
    bool adopted = true;
    struct journal *journal = open_journal(RUN, &adopted);
    assert_false(adopted);
    fill_record(&dice);
    write_journal(journal);
    assert_false(record->urgent);
    journal_close(journal);
    struct record *old = record;
    record = record_new();
    journal = open_journal(RUN, &adopted);
    assert_true(adopted);
    SAME(WIRE_RUN_STATE, &record->state.row, &old->state.row);
    assert_true(isnan(record->state.row.loss));
    assert_true(record->state.cause == CAUSE_DRIFT && record->state.wall_ms == 123456789 && record->state.over == 0);
    assert_true(record->profile_hash == UINT64_MAX - 5);
    assert_string_equal(record->control, "127.0.0.1:4711");
    assert_int_equal(record->process_count, 4);
    for (int i = 0; i < 4; i++) {
        const struct record_process *one = &record->processes[i], *other = &old->processes[i];
        SAME(WIRE_PROCESS_ROW, &one->row, &other->row);
        assert_true(one->nonce == other->nonce && one->ready == other->ready && one->spawned == other->spawned &&
                    one->done == 1);
        assert_string_equal(one->announce, other->announce);
    }
    assert_int_equal(record->road_count, 1);
    SAME(WIRE_ROAD_ROW, &record->roads[0].row, &old->roads[0].row);
    assert_int_equal(record->roads[0].base_bytes, 77);
    SAME(WIRE_KNOB_ROW, &record->knobs[0].row, &old->knobs[0].row);
    assert_int_equal(record->host_count, 1);
    SAME(WIRE_HOST_ROW, &record->hosts[0].row, &old->hosts[0].row);
    assert_int_equal(record->spectrum_count, 1);
    SAME(WIRE_SPECTRUM_ROW, &record->spectra[0].row, &old->spectra[0].row);
    assert_int_equal(record->newest_ledger, 3);
    for (uint64_t id = 1; id <= 3; id++) {
        SAME(WIRE_LEDGER_ROW, &record_find_ledger(record, id)->row, &record_find_ledger(old, id)->row);
        assert_int_equal(record_find_ledger(record, id)->from_step, 12);
    }
    assert_int_equal(record->newest_event, RECORD_EVENTS + 5);
    for (uint64_t id = 6; id <= RECORD_EVENTS + 5; id++)
        SAME(WIRE_EVENT_ROW, &record_find_event(record, id)->row, &record_find_event(old, id)->row);
    journal_close(journal);
    record_free(old);
}

static int64_t ask_file(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

static int64_t ask(const char *sql)
{
    return ask_file(place_file(&place, "run.db"), sql);
}

static void samples_are_kept_apart_from_the_record(void **state)
{
    (void)state;
    bool adopted;
    struct journal *journal = open_journal(RUN, &adopted);
    begin_record();
    for (uint64_t step = 1; step <= 50; step++) {
        struct wire_sample sample = {
            .step = step, .loss = step == 7 ? (double)NAN : 1.0 / (double)step, .tokens = UINT64_MAX};
        journal_add_sample(journal, "r0s1", &sample);
    }
    struct wire_road_sample road = {.peer = "r0s1", .lane = LANE_ACT, .sent_bytes = 99};
    journal_add_road_sample(journal, "r0s0", &road);
    write_journal(journal);
    write_journal(journal); /* nothing twice */
    assert_int_equal(ask("SELECT count(*) FROM samples"), 50);
    assert_int_equal(ask("SELECT step FROM samples WHERE loss IS NULL"), 7); /* unknown is not 0 */
    assert_int_equal(ask("SELECT tokens FROM samples WHERE step = 1"), -1);
    assert_int_equal(ask("SELECT sent_bytes FROM road_samples WHERE process = 'r0s0' AND peer = 'r0s1'"), 99);
    journal_close(journal);
}

static void only_changes_are_written(void **state)
{
    (void)state;
    struct dice dice = {.state = 6};
    bool adopted;
    struct journal *journal = open_journal(RUN, &adopted);
    fill_record(&dice);
    write_journal(journal);
    record->processes[1].row.step = 4242;
    record->processes[2].row.step = 4243; /* not touched */
    record_touch(record, &record->processes[1].version);
    write_journal(journal);
    assert_int_equal(ask("SELECT step FROM processes WHERE process = 'p1'"), 4242);
    assert_int_not_equal(ask("SELECT step FROM processes WHERE process = 'p2'"), 4243);
    assert_int_equal(ask("SELECT count(*) FROM head"), 1);
    journal_close(journal);
}

static void oldest_rows_go(void **state)
{
    (void)state;
    bool adopted;
    struct journal *journal = open_journal(RUN, &adopted);
    begin_record();
    for (int round = 0; round < 64; round++) { /* pruning comes with the 64th write */
        for (int i = 0; i < 200; i++)
            record_add_event(record);
        write_journal(journal);
    }
    assert_int_equal(ask("SELECT count(*) FROM events"), TABLES_KEEP_ROWS);
    assert_int_equal(ask("SELECT max(id) FROM events"), 64 * 200);
    journal_close(journal);
}

static void another_run_puts_the_old_one_aside(void **state)
{
    (void)state;
    bool adopted;
    struct journal *journal = open_journal(RUN, &adopted);
    begin_record();
    write_journal(journal);
    journal_close(journal);
    for (int i = 1; i <= 2; i++) {
        record_free(record);
        record = record_new();
        journal = open_journal(RUN + (uint64_t)i, &adopted);
        assert_false(adopted);
        assert_int_equal(record->state.row.phase, 0);
        assert_int_equal(ask_file(place_file(&place, "run.db.1"), "SELECT run_id FROM state"),
                         (int64_t)(RUN + (uint64_t)i - 1));
        begin_record();
        record->state.row.run_id = RUN + (uint64_t)i;
        write_journal(journal);
        journal_close(journal);
    }
    assert_int_equal(place_count(&place), 2); /* no log is left beside the two files */
}

static void a_run_that_is_over_is_not_begun_again(void **state)
{
    (void)state;
    bool adopted;
    struct why why = {0};
    struct journal *journal = open_journal(RUN, &adopted);
    begin_record();
    record->state.row.phase = PHASE_STOPPED;
    record->state.over = 1;
    write_journal(journal);
    journal_close(journal);
    assert_int_equal(journal_open(place.folder, RUN, record, &adopted, &journal, &why), ERR_REFUSED);
    assert_non_null(strstr(why.text, "is stopped; 'kedge run' starts it anew"));
    struct record *past = record_new();
    assert_int_equal(journal_read(place.folder, past, NULL), 0);
    assert_int_equal(past->state.row.phase, PHASE_STOPPED);
    record_free(past);
}

static void what_is_no_journal_is_put_aside(void **state)
{
    (void)state;
    bool adopted;
    struct why why = {0};
    static const char *const texts[] = {
        "", "this is no database, and it is long enough for SQLite to look at its first bytes …………"};
    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < 2; i++) {
        FILE *file = fopen(place_file(&place, "run.db"), "w");
        fputs(texts[i], file);
        fclose(file);
        why.err = 0;
        struct record *past = record_new();
        assert_true(journal_read(place.folder, past, &why) < 0);
        assert_non_null(strstr(why.text, "run.db"));
        record_free(past);
        journal_close(open_journal(RUN, &adopted));
        assert_false(adopted);
        assert_int_equal(access(place_file(&place, "run.db.1"), F_OK), 0);
        unlink(place_file(&place, "run.db"));
    }
}

static void a_folder_without_a_journal(void **state)
{
    (void)state;
    struct why why = {0};
    assert_int_equal(journal_read(place.folder, record, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "run.db"));
    assert_int_equal(place_count(&place), 0);
}

/* ---- kill -9 ---- */

/* Every transaction says its number in five places. */
static void write_for_ever(void)
{
    bool adopted;
    struct journal *journal = open_journal(RUN, &adopted);
    begin_record();
    struct record_process *process = &record->processes[0];
    record->process_count = 1;
    snprintf(process->row.process, sizeof process->row.process, "r0s0");
    process->row.role = ROLE_STAGE;
    for (uint64_t step = record->state.row.step + 1;; step++) {
        struct wire_sample sample = {.step = step};
        for (int i = 0; i < 20; i++)
            journal_add_sample(journal, "r0s0", &sample);
        record->state.row.step = process->row.step = step;
        record_add_ledger(record)->from_step = step;
        record_add_event(record)->row.step = step;
        record_touch(record, &record->state.version);
        record_touch(record, &process->version);
        write_journal(journal);
    }
}

static void killed_at_any_moment(void **state)
{
    (void)state;
    struct dice dice = {.state = 77};
    uint64_t last = 0;
    /* A slow machine gets more rounds, and longer ones: the writer must have come some way. */
    for (int round = 0; round < 15 || (last <= 10 && round < 150); round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            write_for_ever();
            _exit(1);
        }
        uint64_t life_ns = (15000000 + dice_below(&dice, 60000000)) * (uint64_t)(1 + round / 15);
        nanosleep(&(struct timespec){.tv_nsec = (long)life_ns}, NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        if (access(place_file(&place, "run.db"), F_OK) != 0)
            continue;
        bool adopted;
        record_free(record);
        record = record_new();
        struct journal *journal = open_journal(RUN, &adopted);
        uint64_t step = record->state.row.step;
        assert_true(step >= last); /* nothing that was there is lost */
        last = step;
        if (adopted && step > 0) {
            assert_int_equal(record->processes[0].row.step, step);
            assert_int_equal(record_find_event(record, record->newest_event)->row.step, step);
            assert_int_equal(record_find_ledger(record, record->newest_ledger)->from_step, step);
            assert_int_equal(ask("SELECT max(step) FROM samples"), step);
            assert_int_equal(ask("SELECT count(*) % 20 FROM samples"), 0);
            assert_int_equal(ask("SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
        }
        journal_close(journal);
    }
    assert_true(last > 10);
}

/* ---- a full disk ---- */

static void put_much(struct journal *journal)
{
    struct wire_sample sample = {.step = 1};
    for (int i = 0; i < 3000; i++)
        journal_add_sample(journal, "r0s0", &sample);
    for (int i = 0; i < 100; i++)
        record_add_event(record);
}

/* Runs in a child. The journal is open when the disk becomes full (full(true)); it is written when there is room again. */
static int fill_disk(void (*full)(bool is))
{
    bool adopted;
    struct why why = {0};
    struct journal *journal = NULL;
    if (journal_open(place.folder, RUN, record, &adopted, &journal, &why) < 0)
        return __LINE__;
    begin_record();
    if (journal_write(journal, record, &why) < 0)
        return __LINE__;
    full(true);
    put_much(journal);
    record->urgent = true;
    for (int i = 0; i < 3; i++) {
        why.err = 0;
        if (journal_write(journal, record, &why) != ERR_FULL)
            return __LINE__;
        if (!strstr(why.text, "run.db: disk full: free space or set XDG_STATE_HOME elsewhere"))
            return __LINE__;
        if (!record->urgent)
            return __LINE__;
    }
    put_much(journal); /* more than the queue holds: the oldest go, and are counted */
    if (journal_lost_samples(journal) != 6000 - 4096)
        return __LINE__;
    full(false);
    why.err = 0;
    if (journal_write(journal, record, &why) < 0)
        return __LINE__;
    journal_close(journal);
    if (ask("SELECT count(*) FROM samples") != 4096 || ask("SELECT count(*) FROM events") != 200)
        return __LINE__;
    return 0;
}

static void limit_files(bool is)
{
    struct rlimit limit = {is ? 96 * 1024 : RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void fill_rest(bool is)
{
    char path[600];
    snprintf(path, sizeof path, "%s/rest", place.folder);
    if (!is) {
        unlink(path);
        return;
    }
    FILE *file = fopen(path, "w");
    static char zeros[4096];
    while (file && fwrite(zeros, 1, sizeof zeros, file) == sizeof zeros && fflush(file) == 0)
        continue;
    if (file)
        fclose(file);
}

static bool mount_small(const char *size)
{
    return unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("tmpfs", place.folder, "tmpfs", 0, size) == 0;
}

static int limited_files(void)
{
    signal(SIGXFSZ, SIG_IGN);
    return fill_disk(limit_files);
}

static int full_disk(void)
{
    return mount_small("size=4m") ? fill_disk(fill_rest) : 77;
}

static int full_at_start(void)
{
    bool adopted;
    struct why why = {0};
    struct journal *journal;
    if (!mount_small("size=8k"))
        return 77;
    fill_rest(true);
    if (journal_open(place.folder, RUN, record, &adopted, &journal, &why) != ERR_FULL)
        return __LINE__;
    char expected[700];
    snprintf(expected, sizeof expected, "%s/run.db: disk full: free space or set XDG_STATE_HOME elsewhere", place.folder);
    return strcmp(why.text, expected) == 0 ? 0 : __LINE__;
}

static void in_a_child(int (*test)(void))
{
    pid_t child = fork();
    int status;
    assert_true(child >= 0);
    if (child == 0)
        _exit(test());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        print_message("a really full disk was not tried: mounting a tmpfs is not permitted here\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

static void file_size_limit(void **state)
{
    (void)state;
    in_a_child(limited_files);
}

static void disk_becomes_full(void **state)
{
    (void)state;
    in_a_child(full_disk);
}

static void disk_is_full_at_start(void **state)
{
    (void)state;
    in_a_child(full_at_start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(all_comes_back),
        TEST(samples_are_kept_apart_from_the_record),
        TEST(only_changes_are_written),
        TEST(oldest_rows_go),
        TEST(another_run_puts_the_old_one_aside),
        TEST(a_run_that_is_over_is_not_begun_again),
        TEST(what_is_no_journal_is_put_aside),
        TEST(a_folder_without_a_journal),
        TEST(killed_at_any_moment),
        TEST(file_size_limit),
        TEST(disk_becomes_full),
        TEST(disk_is_full_at_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
