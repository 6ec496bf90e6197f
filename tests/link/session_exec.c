/* Commands over a real sshd: what comes out, how it ended, and that many of them, cut roads and dead peers do not hold
 * anybody. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/session/channel.h"
#include "ssh/session/exec.h"
#include "tests/helpers/ends.h"
#include "tests/helpers/flaky.h"
#include "tests/helpers/server.h"

struct outcome {
    struct exec *exec;
    bool done;
    int err, status;
    char reason[1300], output[4096];
    size_t bytes;
};

static void on_done(struct exec *exec, int err, const char *reason, void *arg)
{
    struct outcome *outcome = arg;
    outcome->done = true;
    outcome->err = err;
    outcome->status = exec_status(exec);
    snprintf(outcome->reason, sizeof outcome->reason, "%s", reason);
    const char *output = exec_output(exec, &outcome->bytes);
    snprintf(outcome->output, sizeof outcome->output, "%s", output);
    exec_free(exec);
    outcome->exec = NULL;
}

static void run(struct outcome *outcome, struct session *session, const char *command, const char *input)
{
    memset(outcome, 0, sizeof *outcome);
    outcome->exec =
        exec_run(session, "a test", command, input, input ? strlen(input) : 0, 1 << 20, 20 * CLOCK_SECOND, on_done, outcome);
}

static void connect_to(struct caller *caller, struct sshd *sshd)
{
    caller_init(caller, loop, sshd);
    caller_dial(caller);
    if (!caller_up(caller)) {
        fprintf(stderr, "%s\n", caller->reason);
        sshd_print_log(sshd);
        fail();
    }
}

static void output_status_and_errors(void **unused)
{
    static const struct {
        const char *command, *input;
        int err, status;
        const char *output, *reason;
    } rows[] = {
        {"echo hello", NULL, 0, 0, "hello\n", "host one is done (a test)"},
        {"cat", "some input", 0, 0, "some input", ""},
        {"echo 'quo\"tes' \"it's\" \\$HOME", NULL, 0, 0, "quo\"tes it's $HOME\n", ""},
        {"echo before; echo oops >&2; exit 3", NULL, ERR_INVALID, 3, "before\n", "ended"},
        {"echo last words >&2; kill -9 $$", NULL, ERR_INVALID, -1, "", "signal KILL: last words"},
        {"exit 255", NULL, ERR_INVALID, 255, "", "status 255"},
        {"true", NULL, 0, 0, "", ""},
    };
    struct caller caller;
    (void)unused;
    connect_to(&caller, &server);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct outcome outcome;
        run(&outcome, caller.session, rows[i].command, rows[i].input);
        assert_true(loop_until(loop, &outcome.done, 20 * CLOCK_SECOND));
        assert_int_equal(outcome.err, rows[i].err);
        assert_int_equal(outcome.status, rows[i].status);
        assert_string_equal(outcome.output, rows[i].output);
        if (strcmp(rows[i].reason, "ended") == 0)
            assert_string_equal(outcome.reason, "host one had the command end with status 3: oops (a test)");
        else
            assert_non_null(strstr(outcome.reason, rows[i].reason));
    }
    caller_end(&caller);
}

static void a_deadline_and_too_much_output(void **unused)
{
    struct caller caller;
    struct outcome outcome = {0};
    (void)unused;
    connect_to(&caller, &server);
    outcome.exec = exec_run(caller.session, "waiting", "sleep 3", NULL, 0, 100, 300 * CLOCK_MS, on_done, &outcome);
    assert_true(loop_until(loop, &outcome.done, 5 * CLOCK_SECOND));
    assert_int_equal(outcome.err, ERR_TIMEOUT);
    memset(&outcome, 0, sizeof outcome);
    outcome.exec = exec_run(caller.session, "a flood", "yes", NULL, 0, 100000, 20 * CLOCK_SECOND, on_done, &outcome);
    assert_true(loop_until(loop, &outcome.done, 5 * CLOCK_SECOND));
    assert_int_equal(outcome.err, ERR_FULL);
    run(&outcome, caller.session, "echo still here", NULL); /* the session goes on */
    assert_true(loop_until(loop, &outcome.done, 20 * CLOCK_SECOND));
    assert_string_equal(outcome.output, "still here\n");
    caller_end(&caller);
}

static void a_talking_login_shell(void **unused)
{
    struct sshd noisy;
    struct caller caller;
    struct outcome outcome;
    (void)unused;
    assert_int_equal(sshd_start(&noisy, "ForceCommand printf 'Welcome to GPU cloud!\\n*** kedge:0123456789abcdef\\nno line "
                                        "end'; echo err >&2; "
                                        "eval \"$SSH_ORIGINAL_COMMAND\"\nBanner /etc/os-release"),
                     0);
    connect_to(&caller, &noisy);
    run(&outcome, caller.session, "cat; echo x", "through the noise ");
    assert_true(loop_until(loop, &outcome.done, 20 * CLOCK_SECOND));
    assert_int_equal(outcome.err, 0);
    assert_string_equal(outcome.output, "through the noise x\n");
    caller_end(&caller);
    sshd_stop(&noisy);
}

static void a_login_shell_that_never_comes_to_it(void **unused)
{
    static const char *const commands[] = {"ForceCommand yes noise", "ForceCommand echo This account is closed; exit 1"};
    static const char *const words[] = {"talks without end", "ended instead of running our command; it said: This account "
                                                             "is closed"};
    (void)unused;
    for (int i = 0; i < 2; i++) {
        struct sshd odd;
        struct caller caller;
        struct outcome outcome;
        assert_int_equal(sshd_start(&odd, commands[i]), 0);
        connect_to(&caller, &odd);
        run(&outcome, caller.session, "echo x", NULL);
        assert_true(loop_until(loop, &outcome.done, 20 * CLOCK_SECOND));
        assert_int_equal(outcome.err, ERR_INVALID);
        if (!strstr(outcome.reason, words[i])) {
            fprintf(stderr, "%s\n", outcome.reason);
            fail();
        }
        caller_end(&caller);
        sshd_stop(&odd);
    }
}

/* An echo of bytes that know their place, as a stream in both directions at once. */
struct echo {
    struct road *road;
    uint64_t total, sent, received;
    bool finished, done, wrong;
    char reason[700];
};

static uint8_t byte_at(uint64_t place)
{
    return (uint8_t)(place * 2654435761u >> 13);
}

static void on_echo(void *arg)
{
    struct echo *echo = arg;
    uint8_t bytes[20000];
    struct why why = {0};
    int err = road_start(echo->road, &why);
    if (err == ERR_AGAIN)
        return;
    ssize_t got = err;
    while (!err && (got = road_read(echo->road, bytes, sizeof bytes, &why)) > 0)
        for (ssize_t i = 0; i < got; i++)
            echo->wrong |= bytes[i] != byte_at(echo->received++);
    if (err || (got < 0 && got != ERR_AGAIN)) {
        echo->done = true;
        snprintf(echo->reason, sizeof echo->reason, "%s", why.text);
        road_want(echo->road, false, false);
        return;
    }
    while (echo->sent < echo->total) {
        size_t count = echo->total - echo->sent < sizeof bytes ? (size_t)(echo->total - echo->sent) : sizeof bytes;
        for (size_t i = 0; i < count; i++)
            bytes[i] = byte_at(echo->sent + i);
        ssize_t sent = road_write(echo->road, bytes, count, &(struct why){0});
        if (sent < 0)
            break;
        echo->sent += (uint64_t)sent;
    }
    if (echo->sent == echo->total && !echo->finished) {
        road_finish(echo->road, &why);
        echo->finished = true;
    }
    road_want(echo->road, true, echo->sent < echo->total);
}

static void echo_begin(struct echo *echo, struct session *session, uint64_t total)
{
    memset(echo, 0, sizeof *echo);
    echo->total = total;
    echo->road = exec_road(session, "exec cat", 20 * CLOCK_SECOND);
    road_on_ready(echo->road, on_echo, echo);
    road_want(echo->road, true, true);
}

static void echo_check(struct echo *echo)
{
    if (!loop_until(loop, &echo->done, 60 * CLOCK_SECOND) || echo->received != echo->total || echo->wrong) {
        fprintf(stderr, "%s: %llu sent, %llu back of %llu%s\n", echo->reason, (unsigned long long)echo->sent,
                (unsigned long long)echo->received, (unsigned long long)echo->total, echo->wrong ? ", wrong bytes" : "");
        fail();
    }
    road_free(echo->road);
}

static void streams_both_ways_side_by_side(void **unused)
{
    struct caller caller;
    struct echo echoes[6];
    (void)unused;
    connect_to(&caller, &server);
    for (int i = 0; i < 6; i++)
        echo_begin(&echoes[i], caller.session, 700000u * (unsigned)i);
    for (int i = 0; i < 6; i++)
        echo_check(&echoes[i]);
    caller_end(&caller);
}

/* The road gives and takes as it likes, from the first byte of the greeting on; sshd wants new keys every 300 KB. */
static void short_reads_and_writes_everywhere(void **unused)
{
    struct sshd rekeying;
    (void)unused;
    assert_int_equal(sshd_start(&rekeying, "RekeyLimit 300K"), 0);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct caller caller;
        struct echo echoes[3];
        struct outcome outcome;
        char address[64];
        caller_init(&caller, loop, &rekeying);
        snprintf(address, sizeof address, "127.0.0.1:%u", rekeying.port);
        caller_over(&caller, road_flaky(loop, road_tcp_dial(loop, address, &(struct why){0}), seed));
        if (!caller_up(&caller)) {
            fprintf(stderr, "seed %d: %s\n", (int)seed, caller.reason);
            fail();
        }
        for (int i = 0; i < 3; i++)
            echo_begin(&echoes[i], caller.session, seed % 2 ? 350000 : 1000);
        run(&outcome, caller.session, "cat; exit 7", "words");
        for (int i = 0; i < 3; i++)
            echo_check(&echoes[i]);
        assert_true(loop_until(loop, &outcome.done, 20 * CLOCK_SECOND));
        assert_int_equal(outcome.status, 7);
        assert_string_equal(outcome.output, "words");
        caller_end(&caller);
    }
    sshd_stop(&rekeying);
}

static void leaving_in_the_middle(void **unused)
{
    (void)unused;
    for (int i = 0; i < 12; i++) { /* at different points: before up, while opening, while streaming */
        struct caller caller;
        struct echo echo;
        caller_init(&caller, loop, &server);
        caller_dial(&caller);
        echo_begin(&echo, caller.session, 10000000);
        loop_for(loop, (uint64_t)i * 15 * CLOCK_MS);
        if (i % 3 == 0) {
            session_free(caller.session); /* the channel stays with its owner */
            caller.session = NULL;
            loop_until(loop, &echo.done, 5 * CLOCK_SECOND);
            assert_true(echo.done);
            road_free(echo.road);
        } else if (i % 3 == 1) {
            road_free(echo.road);
            loop_for(loop, (uint64_t)(i % 2) * 50 * CLOCK_MS);
        } else {
            road_free(echo.road);
            session_close(caller.session, CLOCK_SECOND);
            assert_true(loop_until(loop, &caller.is_down, 3 * CLOCK_SECOND));
            assert_int_equal(caller.err, 0);
        }
        caller_end(&caller);
    }
}

static void sshd_killed_in_each_phase(void **unused)
{
    enum { TIMES = 16 };
    struct sshd mortal;
    struct caller caller;
    int up = 0;
    (void)unused;
    assert_int_equal(sshd_start(&mortal, ""), 0);
    uint64_t began_ns = clock_now_ns();
    connect_to(&caller, &mortal);
    uint64_t login_ns = clock_now_ns() - began_ns;
    caller_end(&caller);
    for (int i = 0; i < TIMES; i++) { /* from the first byte to twice the time that a login takes */
        struct echo echo;
        caller_init(&caller, loop, &mortal);
        caller_dial(&caller);
        echo_begin(&echo, caller.session, UINT64_C(1) << 40);
        loop_for(loop, (uint64_t)i * 2 * login_ns / TIMES);
        up += caller.is_up;
        for (int tries = 0; tries < 40 && !caller.is_down; tries++) { /* at first sshd may not have taken the call yet */
            sshd_kill_sessions(&mortal);
            loop_until(loop, &caller.is_down, CLOCK_SECOND / 2);
        }
        if (!caller.is_down || caller.err != ERR_GONE || !strstr(caller.reason, "closed the connection")) {
            fprintf(stderr, "%d: %s\n", i, caller.reason);
            fail();
        }
        assert_true(loop_until(loop, &echo.done, CLOCK_SECOND));
        road_free(echo.road);
        caller_end(&caller);
    }
    assert_true(up < TIMES);
    sshd_stop(&mortal);
}

static void a_refused_connection_and_a_black_hole(void **unused)
{
    struct sshd gone;
    struct caller caller;
    (void)unused;
    assert_int_equal(sshd_start(&gone, ""), 0);
    sshd_kill_listener(&gone);
    caller_init(&caller, loop, &gone);
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    assert_int_equal(caller.err, ERR_GONE);
    assert_non_null(strstr(caller.reason, "cannot be reached: Connection refused"));
    caller_end(&caller);

    /* A stopped listener: the kernel answers, sshd does not. */
    assert_int_equal(sshd_keygen(&gone, "-t ed25519 -N '' -f unused"), 0);
    sshd_again(&gone);
    kill(gone.pid, SIGSTOP);
    caller_init(&caller, loop, &gone);
    caller.settings.greet_ns = 700 * CLOCK_MS;
    uint64_t began_ns = clock_now_ns();
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    assert_int_equal(caller.err, ERR_TIMEOUT);
    assert_non_null(strstr(caller.reason, "does not answer: nothing for 700 ms while greeting"));
    assert_true(clock_now_ns() - began_ns < 3 * CLOCK_SECOND);
    began_ns = clock_now_ns();
    caller_end(&caller);
    assert_true(clock_now_ns() - began_ns < CLOCK_SECOND);
    kill(gone.pid, SIGCONT);
    sshd_stop(&gone);
}

static void stop_children(struct sshd *sshd, const char *signal)
{
    char command[200];
    snprintf(command, sizeof command,
             "for p in $(ps -o pid= --ppid %d); do kill -%s $p $(ps -o pid= --ppid $p); done 2>/dev/null", (int)sshd->pid,
             signal);
    if (system(command) != 0)
        return; /* some of them have no children */
}

static void a_session_that_falls_silent(void **unused)
{
    struct sshd frozen;
    struct caller caller;
    struct echo echo;
    (void)unused;
    assert_int_equal(sshd_start(&frozen, ""), 0);
    caller_init(&caller, loop, &frozen);
    caller.settings.silent_ns = 3 * CLOCK_SECOND;
    caller_dial(&caller);
    assert_true(caller_up(&caller));
    loop_for(loop, 5 * CLOCK_SECOND); /* idle is not silent: it answers when asked */
    assert_false(caller.is_down);
    echo_begin(&echo, caller.session, UINT64_C(1) << 40);
    loop_for(loop, 200 * CLOCK_MS);
    stop_children(&frozen, "STOP");
    assert_true(loop_until(loop, &caller.is_down, 9 * CLOCK_SECOND));
    assert_int_equal(caller.err, ERR_TIMEOUT);
    assert_non_null(strstr(caller.reason, "has been silent for"));
    road_free(echo.road);
    uint64_t began_ns = clock_now_ns();
    caller_end(&caller);
    assert_true(clock_now_ns() - began_ns < CLOCK_SECOND);
    stop_children(&frozen, "CONT");
    sshd_stop(&frozen);
}

static void a_key_revoked_while_the_old_session_lives(void **unused)
{
    struct sshd revoking;
    struct caller old, new;
    struct outcome outcome;
    (void)unused;
    assert_int_equal(sshd_start(&revoking, ""), 0);
    connect_to(&old, &revoking);
    assert_int_equal(file_write(place_file(&revoking.place, "authorized_keys"), "\n", 1, 0600, NULL), 0);
    caller_init(&new, loop, &revoking);
    caller_dial(&new);
    assert_false(caller_up(&new));
    assert_int_equal(new.err, ERR_REFUSED);
    assert_non_null(strstr(new.reason, "accepts none of our keys"));
    run(&outcome, old.session, "echo alive", NULL);
    assert_true(loop_until(loop, &outcome.done, 20 * CLOCK_SECOND));
    assert_string_equal(outcome.output, "alive\n");
    caller_end(&old);
    caller_end(&new);
    sshd_stop(&revoking);
}

static void through_another_host(void **unused)
{
    struct sshd far;
    struct caller jump, caller;
    struct outcome outcome;
    struct echo echo;
    (void)unused;
    assert_int_equal(sshd_start(&far, ""), 0);
    connect_to(&jump, &server);
    caller_init(&caller, loop, &far);
    caller_over(&caller, channel_tunnel(jump.session, "127.0.0.1", far.port, 5 * CLOCK_SECOND));
    assert_true(caller_up(&caller));
    run(&outcome, caller.session, "echo $SSH_CONNECTION", NULL);
    echo_begin(&echo, caller.session, 3000000);
    assert_true(loop_until(loop, &outcome.done, 20 * CLOCK_SECOND));
    assert_non_null(strstr(outcome.output, "127.0.0.1"));
    echo_check(&echo);
    session_free(jump.session); /* the far one falls with it */
    jump.session = NULL;
    assert_true(loop_until(loop, &caller.is_down, 5 * CLOCK_SECOND));
    caller_end(&caller);
    caller_end(&jump);
    connect_to(&jump, &server);
    caller_init(&caller, loop, &far);
    sshd_stop(&far);
    caller_over(&caller, channel_tunnel(jump.session, "127.0.0.1", far.port, 5 * CLOCK_SECOND));
    assert_false(caller_up(&caller));
    assert_non_null(strstr(caller.reason, "cannot connect further"));
    caller_end(&caller);
    caller_end(&jump);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_status_and_errors),
        cmocka_unit_test(a_deadline_and_too_much_output),
        cmocka_unit_test(a_talking_login_shell),
        cmocka_unit_test(a_login_shell_that_never_comes_to_it),
        cmocka_unit_test(streams_both_ways_side_by_side),
        cmocka_unit_test(short_reads_and_writes_everywhere),
        cmocka_unit_test(leaving_in_the_middle),
        cmocka_unit_test(sshd_killed_in_each_phase),
        cmocka_unit_test(a_refused_connection_and_a_black_hole),
        cmocka_unit_test(a_session_that_falls_silent),
        cmocka_unit_test(a_key_revoked_while_the_old_session_lives),
        cmocka_unit_test(through_another_host),
    };
    if (!sshd_is_here()) {
        printf("no sshd here (openssh-server): nothing was run\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, server_begin, server_end);
}
