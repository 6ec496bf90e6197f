/* Uploads to a real sshd that a second session helps, on a thread of its own: it takes part, may fail to get in, may die, and compresses. */
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
#include "ssh/session/orders.h"
#include "ssh/session/twin.h"
#include "ssh/session/upload.h"
#include "tests/helpers/ends.h"
#include "tests/helpers/server.h"

#define FILE_BYTES ((size_t)96 << 20) /* the main session is not through with it before the twin is in */

struct outcome {
    bool done, sent;
    int err;
    char reason[1500];
};

static void on_done(struct upload *upload, int err, bool sent, const char *reason, void *arg)
{
    struct outcome *outcome = arg;
    outcome->done = true;
    outcome->err = err;
    outcome->sent = sent;
    snprintf(outcome->reason, sizeof outcome->reason, "%s", reason);
    upload_free(upload);
}

static void run_here(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run_here(const char *format, ...)
{
    char words[1000], command[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    snprintf(command, sizeof command, "cd '%s' && %s", server.place.folder, words);
    assert_int_equal(system(command), 0);
}

static unsigned logins(void)
{
    uint8_t *text;
    size_t bytes;
    unsigned count = 0;
    assert_int_equal(file_read(place_file(&server.place, "sshd.log"), 4 << 20, &text, &bytes, NULL), 0);
    for (const char *at = (const char *)text; (at = strstr(at, "Accepted publickey")); at++)
        count++;
    mem_free(text);
    return count;
}

/* However slow the road is, a twin helps. */
static struct upload *push(struct session *session, struct outcome *outcome)
{
    static const struct upload_callbacks callbacks = {.done = on_done};
    char from[600], to[600];
    snprintf(from, sizeof from, "%s", place_file(&server.place, "file"));
    snprintf(to, sizeof to, "%s", place_file(&server.place, "goal"));
    const struct upload_settings settings = {
        .local = from, .remote = to, .mode = 0600, .stall_ns = 20 * CLOCK_SECOND, .verify_ns = 60 * CLOCK_SECOND, .twin_rate = 1};
    memset(outcome, 0, sizeof *outcome);
    run_here("rm -f goal goal.part goal.part.list");
    struct upload *upload = upload_new(loop, session, &settings, &callbacks, outcome, &(struct why){0});
    assert_non_null(upload);
    return upload;
}

static void finished(struct outcome *outcome)
{
    if (!loop_until(loop, &outcome->done, 60 * CLOCK_SECOND) || outcome->err || !outcome->sent) {
        sshd_print_log(&server);
        fail_msg("err %d: %s", outcome->err, outcome->reason);
    }
    run_here("cmp file goal");
}

static void a_twin_helps(void **unused)
{
    struct caller caller;
    struct outcome outcome;
    (void)unused;
    server_connect(&caller);
    unsigned before = logins();
    push(caller.session, &outcome);
    finished(&outcome);
    assert_int_equal(logins(), before + 1);
    caller_end(&caller);
}

static void a_twin_that_does_not_get_in_is_no_matter(void **unused)
{
    struct caller caller;
    struct outcome outcome;
    (void)unused;
    server_connect(&caller);
    unsigned before = logins();
    run_here("mv authorized_keys hidden");
    push(caller.session, &outcome);
    finished(&outcome);
    run_here("mv hidden authorized_keys");
    assert_int_equal(logins(), before);
    caller_end(&caller);
}

/* The road of the first session is no plain one: there is nothing to dial once more. */
static void behind_a_filter_there_is_no_twin(void **unused)
{
    struct caller caller;
    struct outcome outcome;
    char address[64];
    (void)unused;
    caller_init(&caller, loop, &server);
    snprintf(address, sizeof address, "127.0.0.1:%u", server.port);
    caller_over(&caller, road_slow(loop, road_tcp_dial(loop, address, &(struct why){0}), &(struct slow_settings){.delay_ns = CLOCK_MS}));
    assert_true(caller_up(&caller));
    unsigned before = logins();
    push(caller.session, &outcome);
    finished(&outcome);
    assert_int_equal(logins(), before);
    caller_end(&caller);
}

/* All sessions die after so long; and the next try ends well. */
static void both_break_off(void **unused)
{
    (void)unused;
    for (uint64_t after_ns = 20 * CLOCK_MS; after_ns <= 320 * CLOCK_MS; after_ns *= 2) {
        struct caller caller;
        struct outcome outcome;
        server_connect(&caller);
        push(caller.session, &outcome);
        for (uint64_t end_ns = clock_now_ns() + after_ns; clock_now_ns() < end_ns;)
            loop_run_once(loop, CLOCK_MS);
        sshd_kill_sessions(&server);
        assert_true(loop_until(loop, &outcome.done, 30 * CLOCK_SECOND));
        assert_true(outcome.err ? outcome.err == ERR_GONE : outcome.sent); /* it may have been quicker */
        caller_end(&caller);
    }
    a_twin_helps(NULL);
}

/* Left at any moment, be it while the twin logs in. */
static void an_upload_with_a_twin_is_left(void **unused)
{
    (void)unused;
    for (uint64_t after_ns = 0; after_ns <= 200 * CLOCK_MS; after_ns += 20 * CLOCK_MS) {
        struct caller caller;
        struct outcome outcome;
        server_connect(&caller);
        struct upload *upload = push(caller.session, &outcome);
        for (uint64_t end_ns = clock_now_ns() + after_ns; clock_now_ns() < end_ns && !outcome.done;)
            loop_run_once(loop, CLOCK_MS);
        if (!outcome.done)
            upload_free(upload);
        caller_end(&caller);
    }
}

/* ---- the twin alone ---- */

struct seen {
    struct twin *twin;
    struct compress *compress;
    unsigned orders; /* left */
    uint64_t at;
    bool ended;
    int err, status;
    char lines[400];
};

#define ORDER_BYTES ((uint64_t)3 << 20)

static bool on_wants(void *arg)
{
    struct seen *seen = arg;
    struct order order = {.begin = seen->at, .bytes = ORDER_BYTES, .compress = seen->compress};
    seen->at += ORDER_BYTES;
    twin_order(seen->twin, seen->orders ? &order : NULL);
    seen->orders -= seen->orders > 0;
    return true;
}

static enum shell_next on_line(const char *line, void *arg)
{
    struct seen *seen = arg;
    snprintf(seen->lines + strlen(seen->lines), sizeof seen->lines - strlen(seen->lines), "%s\n", line);
    return SHELL_ON;
}

static void on_ended(int err, int status, const char *reason, void *arg)
{
    struct seen *seen = arg;
    (void)reason;
    seen->ended = true;
    seen->err = err;
    seen->status = status;
}

static void a_twin_compresses(void **unused)
{
    static const struct sender_callbacks callbacks = {.wants = on_wants, .line = on_line, .ended = on_ended};
    struct caller caller;
    struct source source;
    struct seen seen = {.compress = compress_new("gzip"), .orders = 2};
    unsigned long long sent[2], begin[2], bytes[2];
    (void)unused;
    run_here("seq 1000000 2>/dev/null | head -c %zu >text && rm -f goal && : >goal.part && echo x >goal.part.list", (size_t)(2 * ORDER_BYTES));
    assert_int_equal(source_open(&source, place_file(&server.place, "text"), &(struct why){0}), 0);
    char *prelude = orders_prelude(place_file(&server.place, "goal"), "x", NULL);
    char *orders = orders_take(""), *command = mem_format("%sU=gzip; %s", prelude, orders);
    server_connect(&caller);
    seen.twin = twin_new(loop, caller.session, command, 20 * CLOCK_SECOND, &source, &callbacks, &seen);
    assert_non_null(seen.twin);
    assert_true(loop_until(loop, &seen.ended, 20 * CLOCK_SECOND));
    assert_int_equal(seen.status, 0);
    assert_int_equal(sscanf(seen.lines, "done %llu %llu %llu\ndone %llu %llu %llu\n", &sent[0], &begin[0], &bytes[0], &sent[1], &begin[1],
                            &bytes[1]), 6);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(begin[i], (uint64_t)i * ORDER_BYTES);
        assert_int_equal(bytes[i], ORDER_BYTES);
        assert_true(sent[i] < ORDER_BYTES / 2);
    }
    run_here("cmp text goal.part");
    twin_free(seen.twin);
    compress_free(seen.compress);
    source_close(&source);
    mem_free(command);
    mem_free(orders);
    mem_free(prelude);
    caller_end(&caller);
}

/* Hosts ban who fails again and again. */
static void one_that_was_refused_is_the_last(void **unused)
{
    static const struct sender_callbacks callbacks = {.wants = on_wants, .line = on_line, .ended = on_ended};
    struct caller caller;
    struct source source;
    struct seen seen = {0};
    (void)unused;
    assert_int_equal(source_open(&source, place_file(&server.place, "file"), &(struct why){0}), 0);
    server_connect(&caller);
    run_here("mv authorized_keys hidden");
    seen.twin = twin_new(loop, caller.session, "cat", 20 * CLOCK_SECOND, &source, &callbacks, &seen);
    assert_non_null(seen.twin);
    assert_true(loop_until(loop, &seen.ended, 20 * CLOCK_SECOND));
    run_here("mv hidden authorized_keys");
    assert_int_equal(seen.err, ERR_REFUSED);
    twin_free(seen.twin);
    assert_null(twin_new(loop, caller.session, "cat", 20 * CLOCK_SECOND, &source, &callbacks, &seen));
    source_close(&source);
    caller_end(&caller);
}

static int begin(void **state)
{
    int err = server_begin(state);
    if (!err)
        run_here("head -c %zu /dev/urandom >file", FILE_BYTES);
    return err;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_twin_helps),
        cmocka_unit_test(a_twin_that_does_not_get_in_is_no_matter),
        cmocka_unit_test(behind_a_filter_there_is_no_twin),
        cmocka_unit_test(both_break_off),
        cmocka_unit_test(an_upload_with_a_twin_is_left),
        cmocka_unit_test(a_twin_compresses),
        cmocka_unit_test(one_that_was_refused_is_the_last),
    };
    if (!sshd_is_here()) {
        printf("no sshd here (openssh-server): nothing was sent\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, begin, server_end);
}
