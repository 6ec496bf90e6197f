/*
 * The real kedged, alone: started as the console starts it, looked at through its socket, with the test in the place of
 * agents and workers. Start, refusals, kill -9 and adoption, stop, the record afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/link/cert.h"
#include "tests/helpers/ends.h"
#include "tests/helpers/place.h"

#define RUN UINT64_C(0x00c0ffee00c0ffee)
#define PATIENCE_NS (30 * CLOCK_SECOND)

static struct place place;
static struct loop *loop;
static char line[1024]; /* what kedged said on stdout */
static char address[WIRE_ADDRESS];
static pid_t kedged;

struct actor { /* a console, an agent or a worker */
    struct end end;
    struct wire_run_state state;
    bool ended, replied, spawned, started, stopped, assigned;
    struct wire_reply reply;
    int events;
    bool journal_failed, journal_works; /* events say so */
};

static struct actor console, agents[2], workers[2];

/* ---- the folder ---- */

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(place_file(&place, name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_profile(const char *security, const char *listen)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "[run]\nname = alone\nsteps = 50\ntimeout = 4s\nlisten = %s\n[data]\npath = /etc/hostname\n[pipeline]\nstages = 2\n"
        "[link]\nsecurity = %s\n[host a]\nkind = local\n[host b]\nkind = local\n",
        listen, security);
    write_file("run.ini", text);
}

static bool exists(const char *name)
{
    struct stat about;
    return lstat(place_file(&place, name), &about) == 0;
}

static int set_up(void **state)
{
    (void)state;
    if (place_init(&place) != 0)
        return -1;
    assert_int_equal(file_make_folders(place_file(&place, "log"), 0700, NULL), 0);
    write_profile("plain", "127.0.0.1:0");
    write_file("run.id", "00c0ffee00c0ffee\n");
    loop = loop_new(NULL);
    memset(&console, 0, sizeof console);
    memset(agents, 0, sizeof agents);
    memset(workers, 0, sizeof workers);
    kedged = 0;
    return loop ? 0 : -1;
}

static void actor_free(struct actor *actor)
{
    end_free(&actor->end, loop);
    memset(actor, 0, sizeof *actor);
}

static int tear_down(void **state)
{
    (void)state;
    if (kedged > 0) {
        kill(kedged, SIGKILL);
        waitpid(kedged, NULL, 0);
    }
    actor_free(&console);
    for (int i = 0; i < 2; i++) {
        actor_free(&agents[i]);
        actor_free(&workers[i]);
    }
    loop_free(loop);
    place_clear(&place);
    return 0;
}

/* ---- the program ---- */

static void become_kedged(const char *const *arguments, int out, uint64_t file_limit)
{
    char folder[1024], program[1100];
    struct rlimit limit = {file_limit, file_limit};
    if (file_program_folder(folder, sizeof folder, NULL) < 0)
        _exit(120);
    snprintf(program, sizeof program, "%s/../../kedged", folder);
    if (file_limit > 0)
        setrlimit(RLIMIT_FSIZE, &limit);
    dup2(out, STDOUT_FILENO);
    execv(program, (char *const *)(uintptr_t)arguments);
    _exit(121);
}

static pid_t start(const char *const *arguments, uint64_t file_limit)
{
    int ends[2];
    size_t used = 0;
    ssize_t got;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        become_kedged(arguments, ends[1], file_limit);
    close(ends[1]);
    /* kedged lets go of the pipe when it has said its line: this is also the proof of it. */
    while ((got = read(ends[0], line + used, sizeof line - 1 - used)) > 0)
        used += (size_t)got;
    line[used] = '\0';
    line[strcspn(line, "\n")] = '\0';
    close(ends[0]);
    return child;
}

static void start_kedged(void)
{
    const char *const arguments[] = {"kedged", "--folder", place.folder, NULL};
    kedged = start(arguments, 0);
    if (strncmp(line, "ready ", 6) != 0)
        fail_msg("'%s'", line);
    snprintf(address, sizeof address, "%.*s", WIRE_ADDRESS - 1, line + 6);
}

static int exit_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void assert_error(const char *words, uint64_t file_limit)
{
    const char *const arguments[] = {"kedged", "--folder", place.folder, NULL};
    pid_t child = start(arguments, file_limit);
    assert_int_equal(exit_of(child), 1);
    if (strncmp(line, "error ", 6) != 0 || !strstr(line, words))
        fail_msg("'%s' is not in '%s'", words, line);
}

static void kill_kedged(void)
{
    kill(kedged, SIGKILL);
    assert_int_equal(exit_of(kedged), -SIGKILL);
    kedged = 0;
}

/* ---- actors ---- */

static int on_message(struct end *end, const struct frame_header *header, const uint8_t *payload, size_t bytes)
{
    struct actor *actor = end->user;
    _Alignas(max_align_t) uint8_t row[4096];
    struct why why = {0};
    if (wire_decode(header->type, payload, bytes, row, &why) < 0)
        fail_msg("%s", why.text);
    if (header->type == WIRE_RUN_STATE)
        memcpy(&actor->state, row, sizeof actor->state);
    if (header->type == WIRE_REPLY)
        memcpy(&actor->reply, row, sizeof actor->reply);
    actor->ended |= header->type == WIRE_STATE_END;
    actor->replied |= header->type == WIRE_REPLY;
    actor->spawned |= header->type == WIRE_SPAWN;
    actor->assigned |= header->type == WIRE_ASSIGN;
    actor->started |= header->type == WIRE_START;
    actor->stopped |= header->type == WIRE_STOP;
    actor->events += header->type == WIRE_EVENT_ROW;
    if (header->type == WIRE_EVENT_ROW) {
        const struct wire_event_row *event = (const void *)row;
        bool journal = strcmp(event->code, "journal") == 0;
        if (journal && event->level == EVENT_ALERT && actor->journal_failed)
            fail_msg("said twice: %s", event->text);
        actor->journal_failed |= journal && event->level == EVENT_ALERT && strstr(event->text, "run.db: disk full");
        actor->journal_works |= journal && event->level == EVENT_INFO && strstr(event->text, "written again");
    }
    return 0;
}

static void begin(struct actor *actor, struct road *road, enum wire_role role, const char *name, const char *host)
{
    struct link_settings settings = ends_settings(name);
    settings.run_id = RUN;
    settings.hello.role = (uint8_t)role;
    settings.heartbeat_ns = CLOCK_SECOND / 4;
    snprintf(settings.hello.host, sizeof settings.hello.host, "%s", host);
    if (role == ROLE_STAGE)
        snprintf(settings.hello.announce, sizeof settings.hello.announce, "127.0.0.1:1");
    actor_free(actor);
    actor->end.on_message = on_message;
    actor->end.user = actor;
    assert_non_null(road);
    end_begin(&actor->end, loop, road, &settings);
}

static void look(void)
{
    struct wire_watch watch = {.follow = 1};
    begin(&console, road_unix_dial(loop, place_file(&place, "kedged.sock"), NULL), ROLE_CONSOLE, "console", "");
    assert_true(loop_until(loop, &console.end.is_up, PATIENCE_NS));
    assert_int_equal(link_send(console.end.link, WIRE_WATCH, &watch, 0, 0), 0);
    assert_true(loop_until(loop, &console.ended, PATIENCE_NS));
}

static void dial(struct actor *actor, enum wire_role role, const char *name, const char *host)
{
    begin(actor, road_tcp_dial(loop, address, NULL), role, name, host);
    assert_true(loop_until(loop, &actor->end.is_up, PATIENCE_NS));
}

static void dial_agents(void)
{
    dial(&agents[0], ROLE_AGENT, "agent@a", "a");
    dial(&agents[1], ROLE_AGENT, "agent@b", "b");
}

static void dial_workers(void)
{
    dial(&workers[0], ROLE_STAGE, "r0s0", "a");
    dial(&workers[1], ROLE_STAGE, "r0s1", "b");
}

static void wait_phase(enum run_phase phase)
{
    for (int i = 0; i < 1000 && console.state.phase != phase; i++)
        loop_for(loop, 30 * CLOCK_MS);
    assert_int_equal(console.state.phase, phase);
}

static void form(void)
{
    dial_agents();
    assert_true(loop_until(loop, &agents[0].spawned, PATIENCE_NS) && loop_until(loop, &agents[1].spawned, PATIENCE_NS));
    dial_workers();
    for (int i = 0; i < 2; i++) {
        assert_true(loop_until(loop, &workers[i].assigned, PATIENCE_NS));
        for (uint8_t state = READY_LOADED; state <= READY_ROADS; state++)
            link_send(workers[i].end.link, WIRE_READY, &(struct wire_ready){.state = state}, 0, 0);
    }
    assert_true(loop_until(loop, &workers[0].started, PATIENCE_NS) && loop_until(loop, &workers[1].started, PATIENCE_NS));
}

static void order(enum order_kind kind, const char *name, const char *value)
{
    struct wire_order message = {.kind = (uint8_t)kind, .request = 5, .who = "test"};
    snprintf(message.name, sizeof message.name, "%s", name);
    snprintf(message.value, sizeof message.value, "%s", value);
    console.replied = false;
    assert_int_equal(link_send(console.end.link, WIRE_ORDER, &message, 0, 0), 0);
    assert_true(loop_until(loop, &console.replied, PATIENCE_NS));
}

/* Agents and workers do as a STOP asks. */
static void obey_stop(void)
{
    for (int i = 0; i < 2; i++) {
        struct wire_process report = {.incarnation = 1, .state = PROCESS_EXITED};
        snprintf(report.process, sizeof report.process, "r0s%d", i);
        assert_true(loop_until(loop, &workers[i].stopped, PATIENCE_NS));
        link_close(workers[i].end.link, 0, "as told", CLOCK_SECOND);
        link_send(agents[i].end.link, WIRE_PROCESS, &report, 0, 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(loop_until(loop, &agents[i].stopped, PATIENCE_NS));
        link_close(agents[i].end.link, 0, "as told", CLOCK_SECOND);
    }
    assert_true(loop_until(loop, &console.end.is_down, PATIENCE_NS));
    assert_int_equal(console.state.phase, PHASE_STOPPED);
    assert_int_equal(console.end.down_err, 0);
    assert_int_equal(exit_of(kedged), 0);
    kedged = 0;
}

static void assert_clean(void)
{
    assert_false(exists("kedged.sock"));
    assert_false(exists("kedged.lock"));
    assert_false(exists("run.db-wal"));
    assert_true(exists("run.db"));
    assert_true(exists("log/kedged.log"));
}

/* ---- tests ---- */

static void stands_and_stops(void **state)
{
    (void)state;
    start_kedged();
    assert_true(exists("kedged.sock"));
    uint8_t *text;
    size_t bytes;
    long pid = 0, start_time = 0;
    unsigned long long run = 0;
    assert_int_equal(file_read(place_file(&place, "kedged.lock"), 200, &text, &bytes, NULL), 0);
    assert_int_equal(sscanf((const char *)text, "%ld %ld %llx", &pid, &start_time, &run), 3);
    mem_free(text);
    assert_true(pid == kedged && start_time > 0 && run == RUN);
    look();
    assert_int_equal(console.state.phase, PHASE_FORMING);
    assert_string_equal(console.state.run, "alone");
    assert_true(console.events > 0);
    assert_error("this run has its kedged already", 0);
    order(ORDER_SET, "mask.rate", "1.5");
    assert_int_equal(console.reply.err, ERR_INVALID);
    order(ORDER_STOP, "", "");
    assert_int_equal(console.reply.err, 0);
    assert_true(loop_until(loop, &console.end.is_down, PATIENCE_NS));
    assert_int_equal(console.state.phase, PHASE_STOPPED);
    assert_non_null(strstr(console.end.down_reason, "run alone is stopped: stopped by test"));
    assert_int_equal(exit_of(kedged), 0);
    kedged = 0;
    assert_clean();
    assert_error("is stopped; 'kedge run' starts it anew", 0);
    assert_clean();
}

static void term_stops(void **state)
{
    (void)state;
    start_kedged();
    kill(kedged, SIGHUP); /* a closed terminal is nothing to it */
    look();
    kill(kedged, SIGTERM);
    assert_true(loop_until(loop, &console.end.is_down, PATIENCE_NS));
    assert_non_null(strstr(console.end.down_reason, "stopped by signal 15 (Terminated)"));
    assert_int_equal(exit_of(kedged), 0);
    kedged = 0;
    assert_clean();
}

static void killed_and_begun_again(void **state)
{
    (void)state;
    char former[WIRE_ADDRESS];
    start_kedged();
    look();
    form();
    wait_phase(PHASE_TRAINING);
    struct wire_sample sample = {.step = 7, .loss = 2.5, .step_ns = 1000, .tokens = 10};
    link_send(workers[1].end.link, WIRE_SAMPLE, &sample, 0, 0);
    while (console.state.step != 7)
        loop_for(loop, 30 * CLOCK_MS);
    order(ORDER_SET, "mask.rate", "0.9");
    assert_string_equal(console.reply.text, "accepted: mask.rate=0.9 from step 9");
    loop_for(loop, 1500 * CLOCK_MS); /* samples are written once a second */
    kill_kedged();
    assert_true(loop_until(loop, &workers[1].end.is_down, PATIENCE_NS));
    assert_true(exists("kedged.sock") && exists("kedged.lock")); /* nobody's any more */
    snprintf(former, sizeof former, "%s", address);
    start_kedged();
    assert_string_equal(address, former);
    look();
    assert_int_equal(console.state.phase, PHASE_TRAINING);
    assert_int_equal(console.state.step, 7);
    assert_true(console.state.loss == 2.5);
    dial_agents();
    dial_workers();
    assert_true(loop_until(loop, &workers[0].started, PATIENCE_NS));
    assert_false(agents[0].spawned || workers[0].assigned);
    sample.step = 8;
    link_send(workers[1].end.link, WIRE_SAMPLE, &sample, 0, 0);
    while (console.state.step != 8)
        loop_for(loop, 30 * CLOCK_MS);
    order(ORDER_STOP, "", "");
    obey_stop();
    assert_clean();
}

static void full_disk_while_running(void **state)
{
    (void)state;
    struct rlimit none = {8192, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    start_kedged();
    look();
    form();
    assert_int_equal(prlimit(kedged, RLIMIT_FSIZE, &none, NULL), 0);
    assert_true(loop_until(loop, &console.journal_failed, PATIENCE_NS));
    loop_for(loop, 2 * CLOCK_SECOND);
    assert_int_equal(console.state.phase, PHASE_TRAINING); /* the run does not mind */
    assert_int_equal(prlimit(kedged, RLIMIT_FSIZE, &all, NULL), 0);
    assert_true(loop_until(loop, &console.journal_works, PATIENCE_NS));
    order(ORDER_STOP, "", "");
    obey_stop();
    assert_clean();
}

static void past_runs_are_served(void **state)
{
    (void)state;
    struct wire_watch watch = {.follow = 0};
    int ends[2];
    start_kedged();
    look();
    form();
    order(ORDER_STOP, "", "");
    obey_stop();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t child = fork();
    if (child == 0) {
        const char *const arguments[] = {"kedged", "bridge", "--folder", place.folder, NULL};
        dup2(ends[1], STDIN_FILENO);
        become_kedged(arguments, ends[1], 0);
    }
    close(ends[1]);
    begin(&console, road_fd(loop, ends[0], ends[0], "bridge"), ROLE_CONSOLE, "console", "");
    assert_true(loop_until(loop, &console.end.is_up, PATIENCE_NS));
    assert_int_equal(link_send(console.end.link, WIRE_WATCH, &watch, 0, 0), 0);
    assert_true(loop_until(loop, &console.ended, PATIENCE_NS));
    assert_int_equal(console.state.phase, PHASE_STOPPED);
    assert_string_equal(console.state.reason, "stopped by test");
    assert_true(console.events >= 8);
    order(ORDER_SET, "mask.rate", "0.9");
    assert_int_equal(console.reply.err, ERR_GONE);
    actor_free(&console);
    assert_int_equal(exit_of(child), 0); /* its stdin ended */
}

static void bridge_joins_the_socket(void **state)
{
    (void)state;
    int ends[2];
    start_kedged();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t child = fork();
    if (child == 0) {
        const char *const arguments[] = {"kedged", "bridge", "--folder", place.folder, NULL};
        dup2(ends[1], STDIN_FILENO);
        become_kedged(arguments, ends[1], 0);
    }
    close(ends[1]);
    struct wire_watch watch = {.follow = 1};
    begin(&console, road_fd(loop, ends[0], ends[0], "bridge"), ROLE_CONSOLE, "console", "");
    assert_true(loop_until(loop, &console.end.is_up, PATIENCE_NS));
    assert_int_equal(link_send(console.end.link, WIRE_WATCH, &watch, 0, 0), 0);
    assert_true(loop_until(loop, &console.ended, PATIENCE_NS));
    assert_int_equal(console.state.phase, PHASE_FORMING);
    order(ORDER_STOP, "", "");
    assert_true(loop_until(loop, &console.end.is_down, PATIENCE_NS));
    assert_non_null(strstr(console.end.down_reason, "run alone is stopped"));
    assert_int_equal(exit_of(child), 0);
    assert_int_equal(exit_of(kedged), 0);
    kedged = 0;
}

static void strangers_are_refused(void **state)
{
    (void)state;
    start_kedged();
    look();
    begin(&workers[0], road_tcp_dial(loop, address, NULL), ROLE_STAGE, "r0s9", "a");
    assert_true(loop_until(loop, &workers[0].end.is_down, PATIENCE_NS));
    assert_non_null(strstr(workers[0].end.down_reason, "'r0s9' on host a is no process of run alone"));
    begin(&workers[0], road_tcp_dial(loop, address, NULL), ROLE_CONSOLE, "console", "");
    assert_true(loop_until(loop, &workers[0].end.is_down, PATIENCE_NS)); /* consoles use the socket */
    begin(&workers[0], road_unix_dial(loop, place_file(&place, "kedged.sock"), NULL), ROLE_AGENT, "agent@a", "a");
    assert_true(loop_until(loop, &workers[0].end.is_down, PATIENCE_NS));
    assert_non_null(strstr(workers[0].end.down_reason, "this socket is for consoles"));
    dial(&agents[0], ROLE_AGENT, "agent@a", "a"); /* and it still takes its own */
}

static void certificates_say_whose_host(void **state)
{
    (void)state;
    char creds[600];
    struct why why = {0};
    snprintf(creds, sizeof creds, "%s/creds", place.folder);
    write_profile("tls", "127.0.0.1:0");
    assert_error("creds", 0); /* nothing was minted yet */
    assert_int_equal(file_make_folders(creds, 0700, NULL), 0);
    assert_int_equal(cert_make_authority(creds, RUN, &why), 0);
    const char *const hosts[] = {"kedged", "a", "b"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(cert_make_host(creds, hosts[i], &why), 0);
    start_kedged();
    struct credentials *a = credentials_load_folder(creds, "a", &why);
    assert_non_null(a);
    begin(&agents[0], road_tls(loop, road_tcp_dial(loop, address, NULL), a, false, NULL), ROLE_AGENT, "agent@a", "a");
    assert_true(loop_until(loop, &agents[0].end.is_up, PATIENCE_NS));
    begin(&agents[1], road_tls(loop, road_tcp_dial(loop, address, NULL), a, false, NULL), ROLE_AGENT, "agent@b", "b");
    assert_true(loop_until(loop, &agents[1].end.is_down, PATIENCE_NS)); /* b's name with a's certificate */
    assert_int_equal(agents[1].end.down_err, ERR_REFUSED);
    begin(&agents[1], road_tcp_dial(loop, address, NULL), ROLE_AGENT, "agent@b", "b");
    assert_true(loop_until(loop, &agents[1].end.is_down, PATIENCE_NS)); /* no certificate at all */
    actor_free(&agents[0]);
    actor_free(&agents[1]);
    credentials_free(a);
}

static void taken(struct road *road, const char *from, void *arg)
{
    (void)from, (void)arg;
    road_free(road);
}

static void newcomers_mistakes(void **state)
{
    (void)state;
    char words[600];
    struct listener *other = listener_tcp(loop, "127.0.0.1:0", taken, NULL, NULL);
    assert_non_null(other);
    write_profile("plain", listener_address(other));
    snprintf(words, sizeof words, "pid %ld", (long)getpid());
    assert_error(words, 0);
    assert_false(exists("kedged.lock") || exists("run.db") || exists("kedged.sock"));
    listener_free(other);
    loop_run_once(loop, 0);
    write_profile("plain", "127.0.0.1:0");
    snprintf(words, sizeof words, "%s/run.db: disk full: free space or set XDG_STATE_HOME elsewhere", place.folder);
    assert_error(words, 8192);
    unlink(place_file(&place, "run.db"));
    write_file("run.ini", "[run]\nname = alone\nstpes = 5\n");
    assert_error("run.ini:3", 0);
    write_file("run.id", "not a number");
    assert_error("run.id: does not hold the 16 hex digits", 0);
    unlink(place_file(&place, "run.id"));
    assert_error("run.id", 0);
    assert_false(exists("kedged.lock") || exists("kedged.sock"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(stands_and_stops),
        TEST(term_stops),
        TEST(killed_and_begun_again),
        TEST(full_disk_while_running),
        TEST(past_runs_are_served),
        TEST(bridge_joins_the_socket),
        TEST(strangers_are_refused),
        TEST(certificates_say_whose_host),
        TEST(newcomers_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
