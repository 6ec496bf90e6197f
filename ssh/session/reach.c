#include "ssh/session/reach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/timeouts.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/link/address.h"
#include "ssh/session/alias.h"
#include "ssh/session/channel.h"

#define REACH_HOPS 8 /* sessions on the way, the last one included */
#define ASK_NS (120 * CLOCK_SECOND)

struct reach {
    struct loop *loop;
    struct reach_settings settings;
    struct reach_callbacks callbacks;
    void *arg;
    struct session *hops[REACH_HOPS]; /* in the order of travel */
    int count;
    char host[ADDRESS_HOST];
    bool up, over;
};

void reach_of_destination(const char *destination, uint64_t greet_ns, struct reach_settings *settings)
{
    memset(settings, 0, sizeof *settings);
    snprintf(settings->name, sizeof settings->name, "%s", destination);
    snprintf(settings->destination, sizeof settings->destination, "%s", destination);
    settings->greet_ns = greet_ns;
    settings->silent_ns = 2 * greet_ns;
    settings->ask_ns = ASK_NS;
}

void reach_of_host(const struct profile *profile, const struct profile_host *host, struct reach_settings *settings)
{
    struct reach_settings made;
    struct timeouts timeouts = timeouts_derive(profile->timeout_ns);
    reach_of_destination(host->ssh[0] ? host->ssh : host->name, timeouts.greet_ns, &made);
    snprintf(made.name, sizeof made.name, "%s", host->name);
    snprintf(made.identity, sizeof made.identity, "%s", host->identity);
    snprintf(made.pin, sizeof made.pin, "%s", host->host_key);
    memcpy(made.save, settings->save, sizeof made.save);
    made.accept_new = settings->accept_new;
    *settings = made;
}

/* ---- what the sessions say ---- */

static void on_up(struct session *session, void *arg)
{
    struct reach *reach = arg;
    if (reach->over || session != reach->hops[reach->count - 1])
        return;
    reach->up = true;
    if (reach->callbacks.up)
        reach->callbacks.up(reach, reach->arg);
}

/* The first that goes down takes the others with it, and knows why. */
static void on_down(struct session *session, int err, const char *reason, void *arg)
{
    struct reach *reach = arg;
    char text[SESSION_REASON + 100];
    if (reach->over)
        return;
    reach->over = true;
    reach->up = false;
    if (session == reach->hops[reach->count - 1])
        snprintf(text, sizeof text, "%s", reason);
    else
        snprintf(text, sizeof text, "%s is behind jump host %s", reach->settings.name, reason);
    reach->callbacks.down(reach, err, text, reach->arg); /* may free us */
}

static void on_ask(struct session *session, const struct session_question *question, void *arg)
{
    struct reach *reach = arg;
    reach->callbacks.ask(session, question, reach->arg);
}

/* ---- the way ---- */

static void add_identities(const struct reach *reach, const struct alias *alias, bool last, struct session_settings *settings)
{
    int used = 0;
    if (last && reach->settings.identity[0]) {
        snprintf(settings->identities[used], KNOWN_PLACE, "%s", reach->settings.identity);
        used++;
    }
    for (int i = 0; i < ALIAS_IDENTITIES && used < SESSION_IDENTITIES && alias->identities[i][0]; i++) {
        snprintf(settings->identities[used], KNOWN_PLACE, "%s", alias->identities[i]);
        settings->optional[used++] = true; /* ssh names its defaults the same way, whether they exist or not */
    }
}

static void fill_settings(const struct reach *reach, const struct alias *alias, const char *name, bool last,
                          struct session_settings *settings)
{
    const char *agent = getenv("SSH_AUTH_SOCK");
    *settings = (struct session_settings){.port = alias->port,
                                          .greet_ns = reach->settings.greet_ns,
                                          .silent_ns = reach->settings.silent_ns,
                                          .ask_ns = reach->settings.ask_ns};
    snprintf(settings->name, sizeof settings->name, "%s", name);
    memcpy(settings->host, alias->host, sizeof settings->host);
    memcpy(settings->user, alias->user, sizeof settings->user);
    memcpy(settings->policy.files, alias->known, sizeof settings->policy.files);
    memcpy(settings->policy.save, reach->settings.save, sizeof settings->policy.save);
    settings->policy.accept_new = reach->settings.accept_new;
    if (last)
        snprintf(settings->policy.pin, sizeof settings->policy.pin, "%.79s", reach->settings.pin); /* a pin has 50 letters */
    snprintf(settings->agent_socket, sizeof settings->agent_socket, "%s", agent ? agent : "");
    add_identities(reach, alias, last, settings);
}

static int add_hop(struct reach *reach, const struct alias *alias, const char *name, bool last, struct why *why)
{
    const struct session_callbacks callbacks = {.up = on_up, .down = on_down, .ask = reach->callbacks.ask ? on_ask : NULL};
    struct session_settings *settings = mem_new(sizeof *settings);
    struct road *road;
    char address[ADDRESS_HOST + 16];
    fill_settings(reach, alias, name, last, settings);
    if (reach->count) /* its first wait is for the hosts before it, which may have something to ask */
        settings->greet_ns = settings->greet_ns * (uint64_t)(reach->count + 1) + (callbacks.ask ? settings->ask_ns : 0);
    snprintf(address, sizeof address, strchr(alias->host, ':') ? "[%s]:%u" : "%s:%u", alias->host, alias->port);
    if (reach->count)
        road = channel_tunnel(reach->hops[reach->count - 1], alias->host, alias->port, reach->settings.greet_ns);
    else
        road = road_tcp_dial(reach->loop, address, why);
    if (road)
        reach->hops[reach->count++] = session_new(reach->loop, road, settings, &callbacks, reach);
    mem_free(settings);
    return road ? 0 : why->err;
}

/* As `ssh -J a,b`: the first jump host by its own way, each other one from the one before it. */
static int walk(struct reach *reach, const char *destination, const char *name, int depth, struct why *why)
{
    struct alias *alias = mem_new(sizeof *alias);
    int err = depth < REACH_HOPS ? alias_resolve(destination, NULL, alias, why) : ERR_FULL;
    bool first = reach->count == 0;
    for (int i = 0; i < alias->jump_count && !err && (first || depth == 0); i++)
        err = walk(reach, alias->jumps[i], alias->jumps[i], depth + 1, why);
    if (err == ERR_FULL || (!err && reach->count == REACH_HOPS))
        err = why_set(why, ERR_FULL, "the way to %s has more than %d jump hosts: do they name each other in ~/.ssh/config?",
                      reach->settings.name, REACH_HOPS - 1);
    if (!err)
        err = add_hop(reach, alias, name, depth == 0, why);
    if (!err && depth == 0)
        memcpy(reach->host, alias->host, sizeof reach->host);
    mem_free(alias);
    return err;
}

struct reach *reach_new(struct loop *loop, const struct reach_settings *settings, const struct reach_callbacks *callbacks,
                        void *arg, struct why *why)
{
    struct reach *reach = mem_new(sizeof *reach);
    *reach = (struct reach){.loop = loop, .settings = *settings, .callbacks = *callbacks, .arg = arg};
    if (walk(reach, settings->destination, settings->name, 0, why) != 0) {
        reach_free(reach);
        return NULL;
    }
    return reach;
}

void reach_free(struct reach *reach)
{
    if (!reach)
        return;
    while (reach->count) /* the last one first: it travels inside the others */
        session_free(reach->hops[--reach->count]);
    mem_free(reach);
}

struct session *reach_session(struct reach *reach)
{
    return reach->hops[reach->count - 1];
}

const char *reach_host(const struct reach *reach)
{
    return reach->host;
}

bool reach_is_up(const struct reach *reach)
{
    return reach->up;
}

const char *reach_phase(const struct reach *reach, char *out, size_t size)
{
    for (int i = 0; i < reach->count; i++) {
        const struct session *hop = reach->hops[i];
        const char *phase = session_phase_name(session_get_phase(hop));
        if (session_get_phase(hop) == SESSION_UP && i + 1 < reach->count)
            continue;
        if (i + 1 < reach->count)
            snprintf(out, size, "%s (jump host %s)", phase, session_get_settings(hop)->name);
        else
            snprintf(out, size, "%s", phase);
        break;
    }
    return out;
}
