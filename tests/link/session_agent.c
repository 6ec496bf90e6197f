/* Who we are, by an ssh-agent: the right key in it, a wrong one, none, and no agent; one that never answers. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/ends.h"
#include "tests/helpers/server.h"

static pid_t keeper;

/* An agent of our own, ended with us. */
static pid_t start_agent(const char *socket)
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("ssh-agent", "ssh-agent", "-D", "-a", socket, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 500 && access(socket, F_OK) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    return child;
}

static int agent_does(const char *words)
{
    char *command = mem_format("cd '%s' && SSH_AUTH_SOCK='%s/agent.sock' ssh-add -q %s >/dev/null 2>&1", server.place.folder,
                               server.place.folder, words);
    int status = system(command);
    mem_free(command);
    return status;
}

static int begin(void **unused)
{
    if (server_begin(unused) != 0 || sshd_keygen(&server, "-t ed25519 -N '' -C stranger -f wrong") != 0 ||
        sshd_keygen(&server, "-t ecdsa -N '' -C curve -f curve") != 0)
        return -1;
    char *add = mem_format("cat '%s/curve.pub' >>'%s/authorized_keys'", server.place.folder, server.place.folder);
    int status = system(add);
    mem_free(add);
    keeper = start_agent(place_file(&server.place, "agent.sock"));
    return status;
}

static int end(void **unused)
{
    kill(keeper, SIGKILL);
    waitpid(keeper, NULL, 0);
    return server_end(unused);
}

/* Nothing but the agent. */
static void init(struct caller *caller)
{
    caller_init(caller, loop, &server);
    caller->settings.identities[0][0] = '\0';
    snprintf(caller->settings.agent_socket, KNOWN_PLACE, "%s", place_file(&server.place, "agent.sock"));
}

static void says(const struct caller *caller, const char *words)
{
    if (!strstr(caller->reason, words)) {
        fprintf(stderr, "'%s' does not say '%s'\n", caller->reason, words);
        sshd_print_log(&server);
        fail();
    }
}

static void the_right_key_in_the_agent(void **unused)
{
    static const char *const keys[] = {"id", "curve"};
    (void)unused;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct caller caller;
        assert_int_equal(agent_does("-D"), 0);
        assert_int_equal(agent_does("wrong"), 0); /* in front: the second one is the right one */
        assert_int_equal(agent_does(keys[i]), 0);
        init(&caller);
        caller_dial(&caller);
        if (!caller_up(&caller))
            says(&caller, "up");
        caller_end(&caller);
    }
}

static void an_encrypted_file_that_the_agent_has_open(void **unused)
{
    struct caller caller;
    (void)unused;
    assert_int_equal(sshd_keygen(&server, "-t ed25519 -N '' -f locked"), 0);
    char *add = mem_format("cat '%s/locked.pub' >>'%s/authorized_keys'", server.place.folder, server.place.folder);
    assert_int_equal(system(add), 0);
    mem_free(add);
    assert_int_equal(agent_does("-D"), 0);
    assert_int_equal(agent_does("locked"), 0);
    assert_int_equal(sshd_keygen(&server, "-p -P '' -N secret -f locked"), 0);
    init(&caller);
    snprintf(caller.settings.identities[0], KNOWN_PLACE, "%s", place_file(&server.place, "locked"));
    caller_dial(&caller);
    if (!caller_up(&caller)) /* and nobody was asked: there is nobody */
        says(&caller, "up");
    caller_end(&caller);
}

static void a_wrong_key_is_named_by_its_comment(void **unused)
{
    struct caller caller;
    (void)unused;
    assert_int_equal(agent_does("-D"), 0);
    assert_int_equal(agent_does("wrong"), 0);
    init(&caller);
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    assert_int_equal(caller.err, ERR_REFUSED);
    says(&caller, "accepts none of our keys");
    says(&caller, "agent's 'stranger' (ssh-ed25519 sha256:");
    caller_end(&caller);
}

static void an_empty_agent_and_none(void **unused)
{
    struct caller caller;
    (void)unused;
    assert_int_equal(agent_does("-D"), 0);
    init(&caller);
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    assert_int_equal(caller.err, ERR_REFUSED);
    says(&caller, "there is none to offer");
    caller_end(&caller);
    init(&caller);
    snprintf(caller.settings.agent_socket, KNOWN_PLACE, "%s", place_file(&server.place, "nobody.sock"));
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    assert_int_equal(caller.err, ERR_REFUSED);
    says(&caller, "the ssh-agent cannot be asked");
    caller_end(&caller);
}

/* A socket that takes the question and keeps silent, as a forwarded agent over a dead road does. */
static void an_agent_that_is_silent_has_a_deadline(void **unused)
{
    struct caller caller;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)unused;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", place_file(&server.place, "mute.sock"));
    int mute = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(mute, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(mute, 5), 0);
    init(&caller);
    snprintf(caller.settings.agent_socket, KNOWN_PLACE, "%s", address.sun_path);
    caller.settings.ask_ns = CLOCK_SECOND;
    snprintf(caller.settings.identities[0], KNOWN_PLACE, "%s", place_file(&server.place, "id"));
    caller_dial(&caller);
    if (!caller_up(&caller)) /* the key file does it then */
        says(&caller, "up");
    caller_end(&caller);
    close(mute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_key_in_the_agent),
        cmocka_unit_test(an_encrypted_file_that_the_agent_has_open),
        cmocka_unit_test(a_wrong_key_is_named_by_its_comment),
        cmocka_unit_test(an_empty_agent_and_none),
        cmocka_unit_test(an_agent_that_is_silent_has_a_deadline),
    };
    if (!sshd_is_here() || access("/usr/bin/ssh-agent", X_OK) != 0) {
        puts("there is no sshd or no ssh-agent here; keys of an agent would have been offered");
        return 77;
    }
    return cmocka_run_group_tests(tests, begin, end);
}
