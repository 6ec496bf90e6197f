/* Programs that are started to outlive us: their first line, their failure to say one, and that they have a session of their own. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/launch/start.h"
#include "tests/helpers/place.h"

struct outcome {
    struct loop *loop;
    int count, err;
    char text[700];
};

static void on_done(int err, const char *text, void *arg)
{
    struct outcome *outcome = arg;
    outcome->count++;
    outcome->err = err;
    snprintf(outcome->text, sizeof outcome->text, "%s", text);
}

/* Start `sh -c script` and wait for what comes of it. */
static void run_script(struct place *place, const char *script, uint64_t deadline_ns, struct outcome *outcome)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    struct why why = {0};
    memset(outcome, 0, sizeof *outcome);
    outcome->loop = loop_new(&why);
    struct start *start = start_new(outcome->loop, argv, "00000000000000aa", place_file(place, "log"), deadline_ns, on_done,
                                    outcome, &why);
    assert_non_null(start);
    for (int i = 0; i < 200 && !outcome->count; i++)
        loop_run_once(outcome->loop, 50 * CLOCK_MS);
    start_free(start);
    loop_free(outcome->loop);
}

static void one_line_decides(void **unused)
{
    static const struct {
        const char *script;
        int err;
        const char *text;
    } rows[] = {
        {"echo ready 127.0.0.1:4711", 0, "127.0.0.1:4711"},
        {"echo ready", 0, ""},
        {"printf 're'; sleep 0.1; printf 'ady in two parts\\n'", 0, "in two parts"},
        {"echo 'error the port is taken by \"x\" (pid 7)'", ERR_REFUSED, "the port is taken by \"x\" (pid 7)"},
        {"printf 'error \\033[31mred\\n'", ERR_REFUSED, "\\x1b[31mred"},
        {"echo hello", ERR_INVALID, "sh said 'hello' instead of being ready: is it of this version?"},
        {"exec sleep 1 >/dev/null", ERR_GONE, NULL},
    };
    struct place place;
    (void)unused;
    assert_int_equal(place_init(&place), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct outcome outcome;
        run_script(&place, rows[i].script, 10 * CLOCK_SECOND, &outcome);
        assert_int_equal(outcome.count, 1);
        assert_int_equal(outcome.err, rows[i].err);
        if (rows[i].text)
            assert_string_equal(outcome.text, rows[i].text);
    }
    place_clear(&place);
}

static void a_flood_is_bounded(void **unused)
{
    struct place place;
    struct outcome outcome;
    (void)unused;
    assert_int_equal(place_init(&place), 0);
    run_script(&place, "head -c 100000 /dev/zero | tr '\\0' x", 10 * CLOCK_SECOND, &outcome);
    assert_int_equal(outcome.err, ERR_INVALID);
    place_clear(&place);
}

static void silence_has_a_deadline(void **unused)
{
    struct place place;
    struct outcome outcome;
    (void)unused;
    assert_int_equal(place_init(&place), 0);
    run_script(&place, "sleep 1", 100 * CLOCK_MS, &outcome);
    assert_int_equal(outcome.err, ERR_TIMEOUT);
    assert_non_null(strstr(outcome.text, "was not ready within"));
    place_clear(&place);
}

static void it_is_on_its_own(void **unused)
{
    struct place place;
    struct outcome outcome;
    uint8_t *log;
    size_t bytes;
    long session = -1;
    char mark[32] = "", in[64] = "";
    int ours = dup2(STDOUT_FILENO, 57); /* not close-on-exec: a careless one */
    (void)unused;
    assert_int_equal(ours, 57);
    assert_int_equal(place_init(&place), 0);
    run_script(&place,
               "set -- $(sed 's/.*) //' /proc/self/stat); echo last words >&2; ls /proc/$$/fd >&2;"
               "echo ready $4 $KEDGE_RUN $(readlink /proc/$$/fd/0)",
               10 * CLOCK_SECOND, &outcome);
    assert_int_equal(outcome.err, 0);
    assert_int_equal(sscanf(outcome.text, "%ld %31s %63s", &session, mark, in), 3);
    assert_true(session > 0 && session != getsid(0));
    assert_string_equal(mark, "00000000000000aa");
    assert_string_equal(in, "/dev/null");
    assert_int_equal(file_read(place_file(&place, "log"), 4096, &log, &bytes, NULL), 0);
    assert_non_null(strstr((char *)log, "last words")); /* standard error is kept */
    assert_null(strstr((char *)log, "57"));             /* and no descriptor of ours is inherited */
    close(ours);
    mem_free(log);
    place_clear(&place);
}

static void a_missing_program_is_said_at_once(void **unused)
{
    const char *const argv[] = {"/nonexistent/kedged", NULL};
    struct why why = {0};
    struct loop *loop = loop_new(&why);
    (void)unused;
    assert_null(start_new(loop, argv, "1", "/dev/null", CLOCK_SECOND, on_done, NULL, &why));
    assert_int_equal(why.err, ERR_ABSENT);
    assert_non_null(strstr(why.text, "/nonexistent/kedged"));
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line_decides), cmocka_unit_test(a_flood_is_bounded), cmocka_unit_test(silence_has_a_deadline),
        cmocka_unit_test(it_is_on_its_own), cmocka_unit_test(a_missing_program_is_said_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
