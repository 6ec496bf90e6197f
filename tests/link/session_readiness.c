/* Whatever a socket may do at a session: it gives and takes a byte at a time and refuses every call first; it does as it likes, on many
 * throws of the dice; it dies behind any byte. The login and a command come through, or the session says why it is down; nothing hangs,
 * nothing is told twice. $READINESS_SEEDS asks for more throws. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/session/exec.h"
#include "tests/helpers/ends.h"
#include "tests/helpers/flaky.h"
#include "tests/helpers/server.h"

struct outcome {
    bool done;
    int err;
    char reason[SESSION_REASON], output[200];
};

static void on_done(struct exec *exec, int err, const char *reason, void *arg)
{
    struct outcome *outcome = arg;
    assert_false(outcome->done);
    outcome->done = true;
    outcome->err = err;
    snprintf(outcome->reason, sizeof outcome->reason, "%s", reason);
    snprintf(outcome->output, sizeof outcome->output, "%s", exec_output(exec, NULL));
    exec_free(exec);
}

static struct road *dial(void)
{
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%u", server.port);
    return road_tcp_dial(loop, address, &(struct why){0});
}

/* A login and a command with input and output over this road: did it all come through? Else there is a reason. */
static bool comes_through(struct road *road, char reason[SESSION_REASON])
{
    struct caller caller;
    struct outcome outcome = {0};
    caller_init(&caller, loop, &server);
    caller_over(&caller, road);
    exec_run(caller.session, "a test", "cat", "some words", 10, 1000, 20 * CLOCK_SECOND, on_done, &outcome);
    bool up = caller_up(&caller);
    assert_true(loop_until(loop, &outcome.done, 60 * CLOCK_SECOND)); /* a session that is down ends its commands */
    if (outcome.err == 0)
        assert_string_equal(outcome.output, "some words");
    else
        assert_true(outcome.reason[0] != '\0');
    snprintf(reason, SESSION_REASON, "%s", up ? outcome.reason : caller.reason);
    caller_end(&caller);
    return up && outcome.err == 0;
}

static void a_byte_at_a_time(void **unused)
{
    char reason[SESSION_REASON];
    (void)unused;
    for (uint64_t seed = 1; seed <= 2; seed++)
        if (!comes_through(road_stingy(loop, dial(), seed), reason))
            fail_msg("%s", reason);
}

static void many_throws_of_the_dice(void **unused)
{
    const char *asked = getenv("READINESS_SEEDS");
    uint64_t seeds = asked ? strtoull(asked, NULL, 10) : 12;
    char reason[SESSION_REASON];
    (void)unused;
    for (uint64_t seed = 100; seed < 100 + seeds; seed++)
        if (!comes_through(road_flaky(loop, dial(), seed), reason))
            fail_msg("seed %d: %s", (int)seed, reason);
}

static void it_dies_behind_any_byte(void **unused)
{
    char reason[SESSION_REASON];
    bool through = false;
    unsigned died = 0;
    (void)unused;
    for (uint64_t bytes = 1; !through && bytes < 20000; bytes += bytes / 5 + 7) {
        const struct slow_settings cut = {.cut_after_bytes = bytes};
        through = comes_through(road_flaky(loop, road_slow(loop, dial(), &cut), bytes), reason);
        died += !through;
        if (!through && !strstr(reason, "was cut") && !strstr(reason, "closed the connection") && !strstr(reason, "is lost"))
            fail_msg("cut behind byte %d: %s", (int)bytes, reason);
    }
    assert_true(died >= 15);
    assert_true(through); /* the last one was behind all that is sent */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_byte_at_a_time),
        cmocka_unit_test(many_throws_of_the_dice),
        cmocka_unit_test(it_dies_behind_any_byte),
    };
    if (!sshd_is_here()) {
        printf("no sshd here (openssh-server): nobody was logged in to\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, server_begin, server_end);
}
