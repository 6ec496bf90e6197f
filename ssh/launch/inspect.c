#include "ssh/launch/inspect.h"

#include <gnu/libc-version.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/inspect_facts.h"
#include "ssh/launch/script.h"
#include "ssh/session/exec.h"
#include "ssh/session/reach.h"

#define PINGS 5
#define LINE_BYTES 200
#define REFUSED_MOST 3 /* connections that are refused: a host that boots */

enum state {
    STATE_LOGIN,   /* the first session → FACTS, OVER */
    STATE_FACTS,   /* the script's answer → PINGS, OVER */
    STATE_PINGS,   /* the echo of a line, five times → AGAIN, OVER */
    STATE_AGAIN,   /* the second session → LISTENING, OVER */
    STATE_LISTENING, /* a port on the host, and somebody who dials it → OVER */
    STATE_OVER,
};

struct visited {
    struct inspect *inspect;
    struct inspect_host found;
    enum state state;
    struct reach_settings settings;
    struct reach *first, *second;
    struct exec *exec, *dial; /* dial: this host dials another one's port */
    struct road *road;        /* pings, then the listener */
    struct loop_timer *timer;
    struct visited *asker;    /* whose port we dial */
    bool stands;
    char line[LINE_BYTES];
    size_t used;
    int pings, tries;
    uint64_t again_ns;        /* of STATE_LOGIN: when the next try is due; 0 = none */
    char why_not[128];
    uint64_t began_ns, sent_ns;
    double sent_wall;
};

struct inspect {
    struct loop *loop;
    const struct profile *profile;
    struct inspect_needs needs;
    struct inspect_callbacks callbacks;
    void *arg;
    struct visited visited[PROFILE_HOSTS];
    struct inspect_host listed[PROFILE_HOSTS];
    int count, left;
};

static void move_to(struct visited *visited, enum state state, const char *phase)
{
    visited->state = state;
    snprintf(visited->found.phase, sizeof visited->found.phase, "%s", phase);
    if (visited->inspect->callbacks.changed)
        visited->inspect->callbacks.changed(&visited->found, visited->inspect->arg);
}

static void finish(struct visited *visited)
{
    struct inspect *inspect = visited->inspect;
    if (visited->state == STATE_OVER)
        return;
    visited->found.done = true;
    loop_timer_unset(visited->timer);
    if (visited->road)
        road_want(visited->road, false, false);
    move_to(visited, STATE_OVER, "done");
    if (--inspect->left == 0)
        inspect->callbacks.done(inspect->arg); /* may free all */
}

static void fail(struct visited *visited, int err, const char *reason)
{
    if (visited->state == STATE_LOGIN)
        visited->found.err = err ? err : ERR_GONE;
    inspect_problem(&visited->found, "%s", reason);
    finish(visited);
}

static double wall_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- connect-back ---- */

static struct visited *find_dialler(struct visited *visited)
{
    struct inspect *inspect = visited->inspect;
    int self = (int)(visited - inspect->visited);
    for (int i = 1; i < inspect->count; i++) {
        struct visited *other = &inspect->visited[(self + i) % inspect->count];
        if (other->first && reach_is_up(other->first) && !other->asker)
            return other;
    }
    return visited->asker ? NULL : visited; /* alone: from itself, which at least says whether the port can be taken */
}

static void on_dialled(struct exec *exec, int err, const char *reason, void *arg)
{
    struct visited *dialler = arg, *visited = dialler->asker;
    (void)exec;
    dialler->asker = NULL;
    visited->found.port = err ? PORT_NOT_REACHED : PORT_REACHED;
    if (err)
        inspect_problem(&visited->found, "nobody reaches %s (tried from host %s: %s): that port must be open in the firewall, or be mapped and "
                        "named by listen = 0.0.0.0:PORT and announce = HOST:PORT", visited->found.port_address, dialler->found.host->name,
                        reason);
    finish(visited);
}

/* "port 4711": where the listener is, and so how others reach it. */
static void take_port(struct visited *visited)
{
    const char *said = visited->found.host->announce, *host = said[0] ? said : reach_host(visited->first);
    const char *listen = visited->found.host->listen;
    char shown[200], *script;
    uint64_t port;
    if (strncmp(visited->line, "port ", 5) != 0 || text_to_u64(visited->line + 5, &port) != 0) {
        if (strncmp(visited->line, "error ", 6) == 0)
            inspect_problem(&visited->found, "cannot listen on %s: %s", listen,
                            text_harmless(visited->line + 6, strlen(visited->line + 6), shown, sizeof shown));
        finish(visited);
        return;
    }
    bool whole = said[0] && strchr(said, ':') && said[strlen(said) - 1] != ']';
    if (whole)
        snprintf(visited->found.port_address, sizeof visited->found.port_address, "%s", said);
    else if (!said[0] && strncmp(listen, "0.0.0.0:", 8) != 0 && strncmp(listen, "[::]:", 5) != 0)
        snprintf(visited->found.port_address, sizeof visited->found.port_address, "%.*s:%" PRIu64, (int)(strrchr(listen, ':') - listen),
                 listen, port);
    else
        snprintf(visited->found.port_address, sizeof visited->found.port_address, "%.120s:%" PRIu64, host, port);
    struct visited *dialler = find_dialler(visited);
    if (!dialler) {
        finish(visited);
        return;
    }
    dialler->asker = visited;
    snprintf(visited->found.port_from, sizeof visited->found.port_from, "%s", dialler->found.host->name);
    script = inspect_dial_script(visited->found.port_address);
    exec_free(dialler->dial);
    dialler->dial = exec_run(reach_session(dialler->first), "dialling", script, NULL, 0, 4096, 2 * visited->settings.greet_ns, on_dialled,
                             dialler);
    mem_free(script);
}

static void on_listener(void *arg);

static void listen_there(struct visited *visited)
{
    if (visited->found.host->listen[0] == '[') {
        inspect_note(&visited->found, "its port was not tried: that is done for IPv4 addresses only");
        finish(visited);
        return;
    }
    char *script = inspect_listen_script(visited->found.host->listen, (unsigned)(3 * visited->settings.greet_ns / CLOCK_SECOND) + 1);
    move_to(visited, STATE_LISTENING, "trying its port");
    road_free(visited->road);
    visited->stands = false;
    visited->used = 0;
    visited->road = exec_road(reach_session(visited->second), script, visited->settings.greet_ns);
    road_on_ready(visited->road, on_listener, visited);
    road_want(visited->road, true, false);
    loop_timer_set(visited->timer, 3 * visited->settings.greet_ns);
    mem_free(script);
}

/* One line of a road into visited->line. 1 = whole, 0 = not yet, negative = the end. */
static int read_line(struct visited *visited, struct why *why)
{
    uint8_t byte;
    ssize_t got = visited->stands ? 0 : road_start(visited->road, why);
    if (got == 0)
        visited->stands = true;
    while (got == 0 && (got = road_read(visited->road, &byte, 1, why)) == 1) {
        if (byte == '\n') {
            visited->line[visited->used] = '\0';
            visited->used = 0;
            return 1;
        }
        if (visited->used < sizeof visited->line - 1)
            visited->line[visited->used++] = (char)byte;
        got = 0;
    }
    return got == ERR_AGAIN ? 0 : (int)got;
}

static void on_listener(void *arg)
{
    struct visited *visited = arg;
    struct why why = {0};
    int got = read_line(visited, &why);
    if (got == 0) {
        road_want(visited->road, true, false);
        return;
    }
    road_want(visited->road, false, false);
    if (got < 0) { /* no perl there: not known */
        inspect_note(&visited->found, "its port was not tried: there is no perl there to listen");
        finish(visited);
        return;
    }
    take_port(visited);
}

/* ---- the second login ---- */

static void on_second_up(struct reach *reach, void *arg)
{
    struct visited *visited = arg;
    (void)reach;
    visited->found.second_login_ns = clock_now_ns() - visited->began_ns;
    listen_there(visited);
}

static void on_second_down(struct reach *reach, int err, const char *reason, void *arg)
{
    struct visited *visited = arg;
    char text[SESSION_REASON + 100];
    (void)reach;
    if (visited->state == STATE_OVER)
        return;
    snprintf(text, sizeof text, "a second login failed, so a session that breaks could not be replaced: %s", reason);
    fail(visited, err, text);
}

static void on_ask(struct session *session, const struct session_question *question, void *arg)
{
    struct visited *visited = arg;
    visited->inspect->callbacks.ask(session, question, visited->inspect->arg);
}

static void login_again(struct visited *visited)
{
    const struct reach_callbacks callbacks = {
        .up = on_second_up, .down = on_second_down, .ask = visited->inspect->callbacks.ask ? on_ask : NULL};
    struct why why = {0};
    move_to(visited, STATE_AGAIN, "logging in once more");
    loop_timer_unset(visited->timer); /* the session has its own deadlines */
    visited->began_ns = clock_now_ns();
    visited->second = reach_new(visited->inspect->loop, &visited->settings, &callbacks, visited, &why);
    if (!visited->second)
        fail(visited, why.err, why.text);
}

/* ---- clock and round trip: a line there, its time back ---- */

static void send_ping(struct visited *visited)
{
    visited->sent_ns = clock_now_ns();
    visited->sent_wall = wall_seconds();
    if (road_write(visited->road, (const uint8_t *)"\n", 1, &(struct why){0}) != 1)
        login_again(visited);
}

static void take_pong(struct visited *visited)
{
    uint64_t took_ns = clock_now_ns() - visited->sent_ns;
    char *end;
    double theirs = strtod(visited->line, &end), ours = (visited->sent_wall + wall_seconds()) / 2;
    if (end == visited->line || !isfinite(theirs))
        return;
    if (!visited->found.rtt_ns || took_ns < visited->found.rtt_ns) { /* the quickest answer knows the time best */
        visited->found.rtt_ns = took_ns;
        visited->found.offset_seconds = theirs - ours;
        visited->found.has_offset = true;
    }
}

static void on_ping_road(void *arg)
{
    struct visited *visited = arg;
    struct why why = {0};
    int got;
    bool first = !visited->stands;
    while ((got = read_line(visited, &why)) == 1) {
        take_pong(visited);
        if (++visited->pings == PINGS) {
            inspect_judge_clock(&visited->found);
            login_again(visited);
            return;
        }
        send_ping(visited);
    }
    if (got < 0) {
        fail(visited, why.err, why.text);
        return;
    }
    if (first && visited->stands)
        send_ping(visited);
    road_want(visited->road, true, false);
}

static void begin_pings(struct visited *visited)
{
    move_to(visited, STATE_PINGS, "comparing clocks");
    visited->road = exec_road(reach_session(visited->first), "while read -r x; do date +%s.%N; done", visited->settings.greet_ns);
    road_on_ready(visited->road, on_ping_road, visited);
    road_want(visited->road, true, false);
    loop_timer_set(visited->timer, 2 * visited->settings.greet_ns);
}

/* ---- facts ---- */

static void on_facts(struct exec *exec, int err, const char *reason, void *arg)
{
    struct visited *visited = arg;
    if (err) {
        fail(visited, err, reason);
        return;
    }
    inspect_read_facts(exec_output(exec, NULL), &visited->found);
    inspect_judge(&visited->found, &visited->inspect->needs, gnu_get_libc_version());
    begin_pings(visited);
}

/* Some other host, as this one would reach it. */
static const char *peer_of(const struct visited *visited)
{
    const struct inspect *inspect = visited->inspect;
    int self = (int)(visited - inspect->visited);
    const struct visited *peer = &inspect->visited[(self + 1) % inspect->count];
    return peer != visited && peer->first ? reach_host(peer->first) : "";
}

static void on_first_up(struct reach *reach, void *arg)
{
    struct visited *visited = arg;
    const struct inspect *inspect = visited->inspect;
    const struct profile_host *host = visited->found.host;
    const char *room = host->disk_budget && inspect->needs.room_script ? inspect->needs.room_script : ":";
    char *facts = inspect_facts_script(peer_of(visited)), *both = mem_format("%s; %s", facts, room),
         *script = script_of_run(inspect->profile->name, both);
    visited->found.room.run = inspect->needs.run_kib[host - inspect->profile->hosts];
    visited->found.login_ns = clock_now_ns() - visited->began_ns;
    move_to(visited, STATE_FACTS, "looking");
    visited->exec = exec_run(reach_session(reach), "looking at it", script, NULL, 0, 16384, 3 * visited->settings.greet_ns, on_facts,
                             visited);
    mem_free(script);
    mem_free(both);
    mem_free(facts);
}

static void on_first_down(struct reach *reach, int err, const char *reason, void *arg)
{
    struct visited *visited = arg;
    (void)reach;
    if (visited->state == STATE_LOGIN && err == ERR_GONE && visited->tries < REFUSED_MOST) { /* it may boot; a key that is refused stays refused */
        visited->again_ns = clock_now_ns() + (CLOCK_SECOND << visited->tries++);
        snprintf(visited->why_not, sizeof visited->why_not, "%.120s", reason);
        loop_timer_set(visited->timer, 0);
    } else if (visited->state != STATE_OVER) {
        fail(visited, err, reason);
    }
}

/* "not yet", and how long until the next try. */
static bool waits_for_next_try(struct visited *visited)
{
    uint64_t now_ns = clock_now_ns();
    char text[200], left[32];
    if (!visited->again_ns)
        return false;
    if (now_ns >= visited->again_ns) {
        visited->again_ns = 0;
        reach_free(visited->first);
        visited->first = NULL;
        return false;
    }
    snprintf(text, sizeof text, "not yet (%s): again in %s", visited->why_not,
             text_from_duration(visited->again_ns - now_ns + CLOCK_SECOND / 2, left, sizeof left));
    move_to(visited, STATE_LOGIN, text);
    loop_timer_set(visited->timer, visited->again_ns - now_ns < CLOCK_SECOND ? visited->again_ns - now_ns : CLOCK_SECOND);
    return true;
}

static void on_timer(void *arg)
{
    struct visited *visited = arg;
    char text[200], phase[160];
    if (visited->state == STATE_LISTENING) {
        finish(visited);
    } else if (visited->state == STATE_PINGS) {
        fail(visited, ERR_TIMEOUT, "it does not answer any more");
    } else if (visited->state == STATE_LOGIN && waits_for_next_try(visited)) {
        return;
    } else if (!visited->first) {
        const struct reach_callbacks callbacks = {
            .up = on_first_up, .down = on_first_down, .ask = visited->inspect->callbacks.ask ? on_ask : NULL};
        struct why why = {0};
        visited->began_ns = clock_now_ns();
        visited->first = reach_new(visited->inspect->loop, &visited->settings, &callbacks, visited, &why);
        if (visited->first)
            loop_timer_set(visited->timer, 300 * CLOCK_MS);
        else
            fail(visited, why.err, why.text);
    } else if (visited->state == STATE_LOGIN) {
        snprintf(text, sizeof text, "%s", reach_phase(visited->first, phase, sizeof phase));
        if (strcmp(text, visited->found.phase) != 0)
            move_to(visited, STATE_LOGIN, text);
        loop_timer_set(visited->timer, 300 * CLOCK_MS);
    }
}

/* ---- life ---- */

struct inspect *inspect_new(struct loop *loop, const struct profile *profile, bool accept_new, const char *save, const struct inspect_needs *needs,
                            const struct inspect_callbacks *callbacks, void *arg)
{
    struct inspect *inspect = mem_new(sizeof *inspect);
    *inspect = (struct inspect){.loop = loop, .profile = profile, .needs = *needs, .callbacks = *callbacks, .arg = arg};
    for (int64_t i = 0; i < profile->host_count; i++) {
        if (profile->hosts[i].kind != HOST_SSH)
            continue;
        struct visited *visited = &inspect->visited[inspect->count++];
        *visited = (struct visited){.inspect = inspect, .found.host = &profile->hosts[i]};
        visited->settings.accept_new = accept_new;
        snprintf(visited->settings.save, sizeof visited->settings.save, "%s", save);
        reach_of_host(profile, &profile->hosts[i], &visited->settings);
        visited->timer = loop_timer_new(loop, on_timer, visited);
        loop_timer_set(visited->timer, 0);
        inspect->left++;
    }
    return inspect;
}

const struct inspect_host *inspect_hosts(const struct inspect *inspect, int *count)
{
    struct inspect *mine = (struct inspect *)(uintptr_t)inspect;
    for (int i = 0; i < inspect->count; i++)
        mine->listed[i] = inspect->visited[i].found;
    *count = inspect->count;
    return inspect->listed;
}

struct session *inspect_session(const struct inspect *inspect, int index)
{
    const struct visited *visited = &inspect->visited[index];
    return visited->first && reach_is_up(visited->first) ? reach_session(visited->first) : NULL;
}

void inspect_free(struct inspect *inspect)
{
    if (!inspect)
        return;
    for (int i = 0; i < inspect->count; i++) {
        struct visited *visited = &inspect->visited[i];
        exec_free(visited->exec);
        exec_free(visited->dial);
        road_free(visited->road);
        reach_free(visited->first);
        reach_free(visited->second);
        loop_timer_free(visited->timer);
    }
    mem_free(inspect);
}
