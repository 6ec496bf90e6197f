#include "console/client.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiles/profile.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/base/version.h"
#include "ssh/launch/prepare.h"
#include "ssh/launch/runs.h"
#include "ssh/launch/nonce.h"
#include "ssh/launch/script.h"
#include "ssh/link/link.h"
#include "ssh/session/exec.h"

#define QUEUE_MAX_BYTES (64 * 1024) /* a console says little */
#define BRIDGE_WORDS_NS (500 * CLOCK_MS)

struct client {
    struct loop *loop;
    struct link *link;
    struct client_settings settings;
    struct client_callbacks callbacks;
    void *arg;
    struct state state;
    struct wire_reply reply; /* the newest */
    uint32_t last_request;
    bool live, down;
    struct reach *reach;     /* to the host of a run elsewhere, NULL = here */
    uint64_t heard_ns;
    char down_reason[700];
    int down_err;
    struct loop_watch *words_watch; /* the road is lost, and its bridge may yet say why */
    struct loop_timer *words_timer;
    pid_t bridge;            /* our child, 0 = none */
    int bridge_words;        /* what it says on standard error, −1 = none */
};

/* ---- link callbacks ---- */

static int on_up(struct link *link, const struct wire_hello *peer, void *arg, struct why *why)
{
    struct client *client = arg;
    struct wire_watch watch = {.follow = client->settings.follow, .from_event = client->settings.from_event};
    size_t length = strlen(peer->program), ending = strlen(WIRE_RECORD);
    client->heard_ns = clock_now_ns();
    client->live = length < ending || strcmp(peer->program + length - ending, WIRE_RECORD) != 0;
    if (peer->role != ROLE_SCHEDULER)
        return why_set(why, ERR_INVALID, "%s answered instead of a scheduler", peer->name);
    return link_send(link, WIRE_WATCH, &watch, 0, 0);
}

static int on_message(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                      struct why *why)
{
    struct client *client = arg;
    const struct wire_message *message = wire_find(header->type);
    (void)link;
    client->heard_ns = clock_now_ns();
    if (!message || strcmp(message->direction, "S→C") != 0)
        return why_set(why, ERR_INVALID, "message type %d is not for a console", header->type);
    void *row = mem_new(message->struct_bytes);
    int err = wire_decode(header->type, payload, bytes, row, why);
    bool unasked = !err && message->type == WIRE_REPLY && ((struct wire_reply *)row)->request == 0;
    if (!err && message->type == WIRE_REPLY)
        client->reply = *(struct wire_reply *)row;
    else if (!err)
        err = state_apply(&client->state, message->type, row, clock_now_ns(), why);
    if (!err && client->callbacks.changed && !unasked)
        client->callbacks.changed(client, message->type, row, client->arg);
    mem_free(row);
    return err;
}

/* The bridge's own complaint says more than "closed". */
static void read_bridge_words(struct client *client)
{
    char words[400], harmless[400];
    ssize_t got = read(client->bridge_words, words, sizeof words - 1);
    if (got <= 0)
        return;
    words[got] = '\0';
    char *end = strchr(words, '\n');
    text_harmless(words, end ? (size_t)(end - words) : (size_t)got, harmless, sizeof harmless);
    const char *text = strncmp(harmless, "kedged: ", 8) == 0 ? harmless + 8 : harmless;
    snprintf(client->down_reason, sizeof client->down_reason, "%s", text);
}

static void go_down(struct client *client)
{
    client->down = true;
    loop_watch_free(client->words_watch);
    loop_timer_free(client->words_timer);
    client->words_watch = NULL;
    client->words_timer = NULL;
    if (client->callbacks.down)
        client->callbacks.down(client, client->down_err, client->down_reason, client->arg);
}

static void on_words(int fd, bool readable, bool writable, void *arg)
{
    (void)fd, (void)readable, (void)writable;
    read_bridge_words(arg);
    go_down(arg);
}

static void on_no_words(void *arg)
{
    go_down(arg);
}

static void on_down(struct link *link, int err, const char *reason, void *arg)
{
    struct client *client = arg;
    (void)link;
    client->down_err = err;
    if (!client->down_reason[0])
        snprintf(client->down_reason, sizeof client->down_reason, "%s", reason);
    if (client->state.complete || client->bridge_words < 0) {
        go_down(client);
        return;
    }
    client->words_watch = loop_watch_new(client->loop, client->bridge_words, on_words, client); /* it may come a moment later */
    client->words_timer = loop_timer_new(client->loop, on_no_words, client);
    loop_watch_want(client->words_watch, true, false);
    loop_timer_set(client->words_timer, BRIDGE_WORDS_NS);
}

/* ---- life ---- */

static void client_begin(struct client *client, struct loop *loop, struct road *road, const struct client_settings *settings)
{
    static const struct link_callbacks link_callbacks = {.up = on_up, .message = on_message, .down = on_down};
    struct link_settings link = {
        .run_id = settings->run_id,
        .incarnation = (uint32_t)getpid(),
        .hello = {.version = WIRE_VERSION, .role = ROLE_CONSOLE, .program = "kedge " KEDGE_VERSION, .name = "console",
                  .pid = (uint32_t)getpid()},
        .heartbeat_ns = settings->timeouts.heartbeat_ns,
        .silent_ns = settings->timeouts.silent_ns,
        .greet_ns = settings->timeouts.greet_ns,
        .queue_max_bytes = QUEUE_MAX_BYTES,
    };
    client->loop = loop;
    client->settings = *settings;
    client->live = true;
    state_init(&client->state);
    client->link = link_new(loop, road, &link, &link_callbacks, client);
}

struct client *client_new(struct loop *loop, struct road *road, const struct client_settings *settings,
                          const struct client_callbacks *callbacks, void *arg)
{
    struct client *client = mem_new(sizeof *client);
    client->callbacks = *callbacks;
    client->arg = arg;
    client->bridge_words = -1;
    client_begin(client, loop, road, settings);
    return client;
}

static void become_bridge(const char *program, const char *folder, int road, int words)
{
    const char *const argv[] = {program, "bridge", "--folder", folder, NULL};
    dup2(road, STDIN_FILENO);
    dup2(road, STDOUT_FILENO);
    dup2(words, STDERR_FILENO);
    execv(program, (char *const *)(uintptr_t)argv);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", program, strerror(errno));
    _exit(127);
}

/* A child that speaks for the run; its standard error is kept for the reason of a failure. */
static struct road *open_bridge(struct loop *loop, const char *folder, pid_t *bridge, int *bridge_words, struct why *why)
{
    char program[RUNS_PATH];
    int ends[2], words[2];
    if (prepare_sibling("kedged", program, sizeof program, why) != 0)
        return NULL;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        why_errno(why, "cannot make a pipe for kedged bridge");
        return NULL;
    }
    if (pipe2(words, O_CLOEXEC | O_NONBLOCK) != 0) {
        why_errno(why, "cannot make a pipe for kedged bridge");
        goto close_ends;
    }
    pid_t child = fork();
    if (child < 0) {
        why_errno(why, "cannot run %s", program);
        goto close_words;
    }
    if (child == 0)
        become_bridge(program, folder, ends[1], words[1]);
    close(ends[1]);
    close(words[1]);
    *bridge = child;
    *bridge_words = words[0];
    int second = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return road_fd(loop, ends[0], second, "kedged bridge");
close_words:
    close(words[0]);
    close(words[1]);
close_ends:
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

/* Why the host is lost is better known to the session than to the road that it carried. */
static void on_reach_down(struct reach *reach, int err, const char *reason, void *arg)
{
    struct client *client = arg;
    (void)reach, (void)err;
    snprintf(client->down_reason, sizeof client->down_reason, "%s", reason);
}

static void on_reach_ask(struct session *session, const struct session_question *question, void *arg)
{
    struct client *client = arg;
    client->callbacks.ask(session, question, client->arg);
}

struct client *client_open_far(struct loop *loop, const struct reach_settings *reach, const char *folder, const char *run,
                               const struct client_settings *settings, const struct client_callbacks *callbacks, void *arg,
                               struct why *why)
{
    const struct reach_callbacks on = {.down = on_reach_down, .ask = callbacks->ask ? on_reach_ask : NULL};
    struct client *client = mem_new(sizeof *client);
    client->callbacks = *callbacks;
    client->arg = arg;
    client->bridge_words = -1;
    client->reach = reach_new(loop, reach, &on, client, why);
    if (!client->reach) {
        mem_free(client);
        return NULL;
    }
    char *guard = nonce_guard(folder, reach->name);
    char *words = mem_format("%s[ -x \"$R/bin/kedged\" ] || { echo \"kedged: the programs of the run are not in $R/bin\" >&2; exit 1; }; "
                             "LD_LIBRARY_PATH=\"$R/bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" "
                             "exec \"$R/bin/kedged\" bridge --folder \"$R\"", guard);
    char *script = script_of_run(run, words);
    struct client_settings patient = *settings;
    patient.timeouts.greet_ns = 4 * settings->timeouts.greet_ns + (callbacks->ask ? reach->ask_ns : 0); /* the login is part of it */
    struct road *road = exec_road(reach_session(client->reach), script, settings->timeouts.greet_ns);
    exec_explain(road);
    client_begin(client, loop, road, &patient);
    client->settings.timeouts = settings->timeouts;
    mem_free(script);
    mem_free(words);
    mem_free(guard);
    return client;
}

/* The run's deadlines; true when its scheduler is on another host, with the way there. */
static bool read_profile(const char *folder, struct timeouts *timeouts, struct reach_settings *reach, char run[64])
{
    struct profile *profile = mem_new(sizeof *profile);
    struct complaints complaints;
    char *path = mem_format("%s/run.ini", folder);
    const struct profile_host *head = NULL;
    profile_defaults(profile);
    *timeouts = timeouts_derive(profile->timeout_ns);
    complaints_init(&complaints);
    if (profile_read(path, profile, &complaints, NULL, 0) == 0) {
        *timeouts = timeouts_derive(profile->timeout_ns);
        head = profile_head(profile);
    }
    if (head) {
        memset(reach, 0, sizeof *reach);
        reach_of_host(profile, head, reach);
        runs_known_hosts(reach->save, sizeof reach->save); /* what was accepted at the start is known */
        memcpy(run, profile->name, sizeof profile->name);
    }
    complaints_clear(&complaints);
    mem_free(path);
    mem_free(profile);
    return head;
}

struct client *client_open(struct loop *loop, const char *folder, bool follow, uint64_t from_event,
                           const struct client_callbacks *callbacks, void *arg, struct why *why)
{
    struct client_settings settings = {.follow = follow, .from_event = from_event};
    struct reach_settings reach;
    struct road *road;
    char run[64];
    pid_t bridge = 0;
    int bridge_words = -1;
    if (runs_read_id(folder, &settings.run_id, why) != 0)
        return NULL;
    if (read_profile(folder, &settings.timeouts, &reach, run))
        return client_open_far(loop, &reach, folder, run, &settings, callbacks, arg, why);
    bool live = runs_answers(folder);
    if (live) {
        char *path = mem_format("%s/kedged.sock", folder);
        road = road_unix_dial(loop, path, why);
        mem_free(path);
    } else {
        road = open_bridge(loop, folder, &bridge, &bridge_words, why);
    }
    if (!road)
        return NULL;
    struct client *client = client_new(loop, road, &settings, callbacks, arg);
    client->bridge = bridge;
    client->bridge_words = bridge_words;
    return client;
}

/* It has nothing to lose: it speaks for a record. Waiting until it ends by itself would be waiting for a stranger. */
static void end_bridge(pid_t bridge)
{
    kill(bridge, SIGKILL);
    waitpid(bridge, NULL, 0);
}

void client_free(struct client *client)
{
    if (!client)
        return;
    link_free(client->link);
    reach_free(client->reach);
    loop_watch_free(client->words_watch);
    loop_timer_free(client->words_timer);
    if (client->bridge_words >= 0)
        close(client->bridge_words);
    if (client->bridge > 0)
        end_bridge(client->bridge);
    state_clear(&client->state);
    mem_free(client);
}

struct state *client_state(struct client *client)
{
    return &client->state;
}

bool client_is_live(const struct client *client)
{
    return client->live;
}

uint64_t client_heard_ns_ago(const struct client *client)
{
    return client->heard_ns ? clock_now_ns() - client->heard_ns : UINT64_MAX;
}

bool client_is_down(const struct client *client)
{
    return client->down;
}

const char *client_down_reason(const struct client *client)
{
    return client->down_reason;
}

const struct timeouts *client_timeouts(const struct client *client)
{
    return &client->settings.timeouts;
}

/* ---- waiting ---- */

int client_wait(struct client *client, bool (*until)(struct client *client, void *arg), void *arg, uint64_t deadline_ns,
                struct why *why)
{
    const uint64_t turn_ns = 200 * CLOCK_MS; /* `until` may watch other things than the road */
    uint64_t begin_ns = clock_now_ns();
    while (!until(client, arg)) {
        uint64_t passed_ns = clock_now_ns() - begin_ns, left_ns = turn_ns;
        if (client->down)
            return why_set(why, ERR_GONE, "%s", client->down_reason);
        if (deadline_ns && passed_ns >= deadline_ns)
            return why_set(why, ERR_TIMEOUT, "the scheduler did not answer in time");
        if (deadline_ns && deadline_ns - passed_ns < left_ns)
            left_ns = deadline_ns - passed_ns;
        loop_run_once(client->loop, left_ns);
    }
    return 0;
}

static bool is_complete(struct client *client, void *arg)
{
    (void)arg;
    return client->state.complete;
}

int client_wait_complete(struct client *client, struct why *why)
{
    uint64_t login_ns = client->reach ? 4 * client->settings.timeouts.greet_ns : 0;
    return client_wait(client, is_complete, NULL, 2 * client->settings.timeouts.greet_ns + login_ns, why);
}

static bool is_replied(struct client *client, void *arg)
{
    (void)arg;
    return client->reply.request == client->last_request;
}

/* user@host, for the ledger. */
static void say_who(char *out, size_t size)
{
    char host[WIRE_NAME] = "?", text[WIRE_NAME * 2];
    const struct passwd *user = getpwuid(getuid());
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%.30s@%.30s", user ? user->pw_name : "?", host);
    text_harmless(text, strlen(text), out, size);
}

int client_send_order(struct client *client, enum order_kind kind, const char *name, const char *value, struct why *why)
{
    struct wire_order order = {.kind = (uint8_t)kind, .request = ++client->last_request};
    say_who(order.who, sizeof order.who);
    if (strlen(name) >= sizeof order.name || strlen(value) >= sizeof order.value)
        return why_set(why, ERR_INVALID, "'%.40s=%.40s' is longer than any setting", name, value);
    snprintf(order.name, sizeof order.name, "%s", name);
    snprintf(order.value, sizeof order.value, "%s", value);
    int err = client->down ? ERR_GONE : link_send(client->link, WIRE_ORDER, &order, 0, 0);
    if (err)
        return why_set(why, err, "the order could not be sent: %s", client->down ? client->down_reason : why_name(err));
    return 0;
}

void client_tell_login(struct client *client, const char *host, int err, const char *reason)
{
    struct wire_order order = {.kind = ORDER_LOGIN};
    if (client->down || !client->live || !client->state.complete)
        return;
    say_who(order.who, sizeof order.who);
    snprintf(order.name, sizeof order.name, "%s", host);
    snprintf(order.value, sizeof order.value, "%s", err ? "shut" : "open");
    if (err)
        text_harmless(reason, strlen(reason), order.text, sizeof order.text);
    link_send(client->link, WIRE_ORDER, &order, 0, 0);
}

int client_order(struct client *client, enum order_kind kind, const char *name, const char *value, struct wire_reply *reply,
                 struct why *why)
{
    int err = client_wait_complete(client, why);
    if (!err)
        err = client_send_order(client, kind, name, value, why);
    if (err)
        return err;
    err = client_wait(client, is_replied, NULL, client->settings.timeouts.greet_ns, why);
    if (err)
        return err;
    if (client->reply.err) /* a number from the wire: only ours mean something to our callers */
        return why_set(why, client->reply.err < 0 && client->reply.err >= ERR_ABSENT ? client->reply.err : ERR_REFUSED, "%s",
                       client->reply.text);
    if (reply)
        *reply = client->reply;
    return 0;
}
