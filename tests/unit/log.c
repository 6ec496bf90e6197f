/* The log: its lines cannot be forged, mixed or endless, its files are bounded, and a full disk stops nothing. */
#include <errno.h>
#include <pthread.h>
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/version.h"
#include "tests/helpers/place.h"

#define LINE "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z (error|warn|info|debug|trace) [^ ]+: "
#define LONGEST 2001 /* with its newline */

static struct place place;
static regex_t line_form;

static int set_up(void **state)
{
    (void)state;
    log_set_level(LOG_INFO);
    return place_init(&place);
}

static int tear_down(void **state)
{
    (void)state;
    log_close();
    place_clear(&place);
    return 0;
}

static char *content(const char *name)
{
    uint8_t *data = NULL;
    size_t bytes;
    assert_int_equal(file_read(place_file(&place, name), (size_t)64 << 20, &data, &bytes, NULL), 0);
    assert_int_equal(strlen((char *)data), bytes);
    return (char *)data;
}

/* Calls `each` (may be NULL) for every line; each must have the form and a bounded length. Returns their number. */
static int check_lines(char *text, void (*each)(const char *line, void *arg), void *arg)
{
    int count = 0;
    while (*text) {
        char *end = strchr(text, '\n');
        assert_non_null(end);
        *end = 0;
        assert_true(end - text < LONGEST);
        if (regexec(&line_form, text, 0, NULL, 0) != 0)
            fail_msg("not a log line: %s", text);
        if (each)
            each(text, arg);
        text = end + 1;
        count++;
    }
    return count;
}

static void open_log(size_t max_bytes)
{
    assert_int_equal(log_open(place_file(&place, "log"), "tester", max_bytes, NULL), 0);
}

static void the_first_lines_tell_the_world(void **state)
{
    (void)state;
    char host[256], expected[400];
    struct stat status;
    open_log(0);
    assert_int_equal(stat(place.path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    char *text = content("log");
    assert_int_equal(gethostname(host, sizeof host), 0);
    snprintf(expected, sizeof expected, "info log: tester %s, pid %ld, host %s\n", KEDGE_VERSION, (long)getpid(), host);
    assert_non_null(strstr(text, expected));
    assert_non_null(strstr(text, "info log: Linux "));
    assert_non_null(strstr(text, "info log: cpu "));
    assert_non_null(strstr(text, "features: "));
    __builtin_cpu_init();
    assert_int_equal(strstr(text, " avx2") != NULL, __builtin_cpu_supports("avx2") != 0);
    assert_int_equal(strstr(text, " avx512f") != NULL, __builtin_cpu_supports("avx512f") != 0);
    assert_int_equal(check_lines(text, NULL, NULL), 3);
    mem_free(text);
}

static void levels_say_volume(void **state)
{
    (void)state;
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    open_log(0);
    for (int level = LOG_ERROR; level <= LOG_TRACE; level++) {
        assert_int_equal(log_level_from_name(names[level]), level);
        log_set_level((enum log_level)level);
        for (int at = LOG_ERROR; at <= LOG_TRACE; at++)
            log_at((enum log_level)at, "topic", "level %d of %d", at, level);
    }
    assert_int_equal(log_level_from_name("loud"), -1);
    assert_int_equal(log_level_from_name(""), -1);
    char *text = content("log");
    for (int level = LOG_ERROR; level <= LOG_TRACE; level++)
        for (int at = LOG_ERROR; at <= LOG_TRACE; at++) {
            char expected[80];
            snprintf(expected, sizeof expected, "Z %s topic: level %d of %d\n", names[at], at, level);
            assert_int_equal(strstr(text, expected) != NULL, at <= level);
        }
    mem_free(text);
}

static void strangers_cannot_forge_lines(void **state)
{
    (void)state;
    open_log(0);
    log_at(LOG_INFO, "link", "peer says %s", "hello\n2026-01-01T00:00:00.000000Z error bug: forged\r\x1b[2J\xff");
    log_at(LOG_INFO, "li\nnk", "topic too");
    char *text = content("log");
    assert_non_null(strstr(text, "peer says hello\\x0a2026-01-01T00:00:00.000000Z error bug: forged\\x0d\\x1b[2J\\xff\n"));
    assert_non_null(strstr(text, "li\\x0ank: topic too\n"));
    assert_int_equal(check_lines(text, NULL, NULL), 5);
    mem_free(text);
}

static void long_lines_are_cut_between_characters(void **state)
{
    (void)state;
    char plain[4000], accents[4001], controls[3000];
    memset(plain, 'p', sizeof plain - 1);
    plain[sizeof plain - 1] = 0;
    for (size_t i = 0; i < 2000; i++)
        memcpy(accents + 2 * i, "é", 3);
    memset(controls, 7, sizeof controls - 1);
    controls[sizeof controls - 1] = 0;
    open_log(0);
    log_at(LOG_INFO, "t", "%s", plain);
    log_at(LOG_INFO, "t", "-%s", accents);
    log_at(LOG_INFO, "t", "%s", accents);
    log_at(LOG_INFO, "t", "%s", controls);
    char *text = content("log"), *at = text;
    for (int i = 0; i < 7; i++) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        if (i >= 3) {
            assert_true(end - at <= 2000 && end - at > 1990);
            assert_memory_equal(end - strlen("…"), "…", strlen("…"));
            assert_true(i != 3 || end - at == 2000);
            assert_true((i != 4 && i != 5) || memcmp(end - strlen("é…"), "é…", strlen("é…")) == 0);
            assert_true(i != 6 || memcmp(end - strlen("\\x07…"), "\\x07…", strlen("\\x07…")) == 0);
        }
        at = end + 1;
    }
    assert_int_equal(*at, 0);
    mem_free(text);
}

/* ---- bounded ---- */

static void files_are_bounded(void **state)
{
    (void)state;
    const size_t limit = 20000;
    struct stat now, old;
    char filler[900];
    memset(filler, 'f', sizeof filler - 1);
    filler[sizeof filler - 1] = 0;
    open_log(limit);
    for (int i = 0; i < 300; i++)
        log_at(LOG_INFO, "t", "%d %s", i, filler);
    assert_int_equal(place_count(&place), 2); /* log and log.1, nothing else */
    assert_int_equal(stat(place_file(&place, "log"), &now), 0);
    assert_int_equal(stat(place_file(&place, "log.1"), &old), 0);
    assert_true((size_t)now.st_size <= limit + LONGEST);
    assert_true((size_t)old.st_size > limit && (size_t)old.st_size <= limit + LONGEST);
    char *text = content("log"), *before = content("log.1");
    assert_non_null(strstr(text, "info log: tester ")); /* each file tells the world */
    assert_non_null(strstr(before, "info log: tester "));
    assert_non_null(strstr(strstr(text, " t: 299 ") ? text : before, " t: 299 "));
    check_lines(text, NULL, NULL);
    check_lines(before, NULL, NULL);
    mem_free(text);
    mem_free(before);
}

static void an_old_log_is_continued(void **state)
{
    (void)state;
    open_log(0);
    log_at(LOG_INFO, "t", "first life");
    log_close();
    open_log(0);
    log_at(LOG_INFO, "t", "second life");
    char *text = content("log");
    char *first = strstr(text, "first life"), *second = strstr(text, "second life");
    assert_true(first && second && first < second);
    assert_int_equal(check_lines(text, NULL, NULL), 8);
    mem_free(text);
}

static void a_log_that_cannot_be_opened_is_refused(void **state)
{
    (void)state;
    struct why why = {0};
    char path[5000];
    assert_int_equal(log_open(place_file(&place, "absent/log"), "tester", 0, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "absent/log"));
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = 0;
    assert_int_equal(log_open(path, "tester", 0, NULL), ERR_INVALID);
}

static void a_full_disk_stops_nothing_and_is_told_later(void **state)
{
    (void)state;
    struct rlimit before, limit;
    struct stat status;
    open_log(0);
    assert_int_equal(stat(place.path, &status), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)status.st_size;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    errno = EINTR;
    for (int i = 0; i < 5; i++)
        log_at(LOG_INFO, "t", "lost %d", i);
    assert_int_equal(errno, EINTR); /* logging does not disturb its caller */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    log_at(LOG_INFO, "t", "again");
    char *text = content("log");
    assert_null(strstr(text, "lost 0"));
    assert_non_null(strstr(text, "warn log: 5 lines before this one could not be written\n"));
    assert_non_null(strstr(text, "info t: again\n"));
    mem_free(text);
}

/* ---- standard error ---- */

static void without_a_file_lines_go_to_stderr(void **state)
{
    (void)state;
    int saved = dup(STDERR_FILENO);
    FILE *file = fopen(place_file(&place, "stderr"), "w");
    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    log_at(LOG_WARN, "t", "closed warn");
    log_at(LOG_INFO, "t", "closed info");
    int err = log_open(NULL, "tester", 0, NULL);
    log_at(LOG_INFO, "t", "open info");
    log_close();
    log_at(LOG_INFO, "t", "closed again");
    dup2(saved, STDERR_FILENO);
    close(saved);
    fclose(file);
    assert_int_equal(err, 0);
    char *text = content("stderr");
    assert_non_null(strstr(text, "closed warn"));
    assert_null(strstr(text, "closed info"));
    assert_non_null(strstr(text, "tester"));
    assert_non_null(strstr(text, "open info"));
    assert_null(strstr(text, "closed again"));
    assert_int_equal(check_lines(text, NULL, NULL), 5);
    mem_free(text);
}

/* ---- threads ---- */

#define THREADS 4
#define LINES_EACH 500

static void *talk(void *arg)
{
    for (int i = 0; i < LINES_EACH; i++)
        log_at(LOG_INFO, "thread", "%d says %d.", *(int *)arg, i);
    return NULL;
}

static void note_line(const char *line, void *arg)
{
    int who, what;
    bool(*seen)[LINES_EACH] = arg;
    const char *said = strstr(line, "thread: ");
    if (!said)
        return;
    assert_int_equal(sscanf(said, "thread: %d says %d.", &who, &what), 2);
    assert_in_range(who, 0, THREADS - 1);
    assert_in_range(what, 0, LINES_EACH - 1);
    assert_false(seen[who][what]);
    assert_true(what == 0 || seen[who][what - 1]);
    seen[who][what] = true;
}

static void threads_do_not_mix_lines(void **state)
{
    (void)state;
    static bool seen[THREADS][LINES_EACH];
    pthread_t threads[THREADS];
    int names[THREADS];
    open_log((size_t)1 << 20);
    for (int i = 0; i < THREADS; i++) {
        names[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &names[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *text = content("log");
    assert_int_equal(check_lines(text, note_line, seen), 3 + THREADS * LINES_EACH);
    mem_free(text);
}

static void threads_and_rotation(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int names[THREADS];
    open_log(1); /* the least that is possible */
    for (int i = 0; i < THREADS; i++) {
        names[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &names[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *text = content("log"), *before = content("log.1");
    check_lines(text, NULL, NULL);
    check_lines(before, NULL, NULL);
    mem_free(text);
    mem_free(before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_lines_tell_the_world),
        TEST(levels_say_volume),
        TEST(strangers_cannot_forge_lines),
        TEST(long_lines_are_cut_between_characters),
        TEST(files_are_bounded),
        TEST(an_old_log_is_continued),
        TEST(a_log_that_cannot_be_opened_is_refused),
        TEST(a_full_disk_stops_nothing_and_is_told_later),
        TEST(without_a_file_lines_go_to_stderr),
        TEST(threads_do_not_mix_lines),
        TEST(threads_and_rotation),
    };
    if (regcomp(&line_form, LINE, REG_EXTENDED | REG_NOSUB) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    regfree(&line_form);
    return failed;
}
