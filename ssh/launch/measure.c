#include "ssh/launch/measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/inspect_facts.h"
#include "ssh/session/exec.h"

#define AT_ONCE 8
#define TAKES_S 40 /* at most, for the scripts: a listener that waits for its port, both directions and the pings of a slow road */

struct running {
    struct measure *measure;
    struct measure_pair *pair;
    int listener, dialler;   /* hosts; which of the two */
    bool tried_other;        /* the other way round was tried before */
    struct road *road;       /* to the listener */
    bool stands;
    char line[200];
    size_t used;
    struct exec *exec;       /* of the dialler */
    struct loop_timer *timer;
};

struct measure {
    struct loop *loop;
    const struct measure_host *hosts;
    struct measure_pair *pairs;
    int host_count, count, left;
    uint64_t greet_ns;
    measure_cb *cb;
    void *arg;
    struct running running[AT_ONCE];
    struct loop_timer *next;
};

static void clear(struct running *running)
{
    exec_free(running->exec);
    road_free(running->road);
    running->exec = NULL;
    running->road = NULL;
    running->stands = false;
    running->used = 0;
    loop_timer_unset(running->timer);
}

static void finish(struct running *running, const char *reason)
{
    struct measure *measure = running->measure;
    struct measure_pair *pair = running->pair;
    snprintf(pair->reason, sizeof pair->reason, "%s", reason);
    pair->done = true;
    measure->left--;
    running->pair = NULL;
    loop_timer_set(measure->next, 0); /* what ended is freed then */
    measure->cb(pair, measure->left, measure->arg); /* may free all */
}

static void listen_there(struct running *running);

/* Whoever listens may be the one that nobody reaches: then the other one does. */
static void fail(struct running *running, const char *reason)
{
    char text[MEASURE_WORD];
    int other = running->dialler;
    if (running->tried_other || !running->measure->hosts[other].reached) {
        snprintf(text, sizeof text, "%.200s", reason);
        finish(running, text);
        return;
    }
    running->dialler = running->listener;
    running->listener = other;
    running->tried_other = true;
    clear(running);
    listen_there(running);
}

/* "rtt 0.000120 up 123456 down 123456": seconds, bytes a second; up is from the dialler. */
static void on_measured(struct exec *exec, int err, const char *reason, void *arg)
{
    struct running *running = arg;
    struct measure_pair *pair = running->pair;
    double rtt, up, down;
    if (err) {
        fail(running, reason);
        return;
    }
    if (sscanf(exec_output(exec, NULL), "rtt %lf up %lf down %lf", &rtt, &up, &down) != 3 || !(rtt > 0) || !(up > 0) || !(down > 0) ||
        rtt > 1000 || up > 1e12 || down > 1e12) {
        finish(running, "it was answered with something else than numbers");
        return;
    }
    bool dialled_forward = running->dialler == pair->one;
    pair->rtt_ns = (uint64_t)(rtt * 1e9) + 1;
    pair->forward = dialled_forward ? up : down;
    pair->backward = dialled_forward ? down : up;
    finish(running, "");
}

static void dial(struct running *running, uint64_t port)
{
    const struct measure_host *listener = &running->measure->hosts[running->listener];
    const struct measure_host *dialler = &running->measure->hosts[running->dialler];
    const char *colon = strrchr(listener->reached_at, ':');
    char address[200];
    if (listener->mapped || !colon)
        snprintf(address, sizeof address, "%s", listener->reached_at);
    else
        snprintf(address, sizeof address, "%.*s:%" PRIu64, (int)(colon - listener->reached_at), listener->reached_at, port);
    char *script = inspect_measure_script("dial", address, TAKES_S);
    running->exec = exec_run(dialler->session, "measuring a road", script, NULL, 0, 4096, running->measure->greet_ns + TAKES_S * CLOCK_SECOND,
                             on_measured, running);
    mem_free(script);
}

static void on_listener(void *arg)
{
    struct running *running = arg;
    struct why why = {0};
    uint8_t byte;
    uint64_t port;
    ssize_t got = running->stands ? 0 : road_start(running->road, &why);
    running->stands |= got == 0;
    while (got == 0 && !running->exec && (got = road_read(running->road, &byte, 1, &why)) == 1) {
        got = 0;
        if (byte != '\n') {
            if (running->used < sizeof running->line - 1)
                running->line[running->used++] = (char)byte;
            continue;
        }
        running->line[running->used] = '\0';
        if (strncmp(running->line, "port ", 5) == 0 && text_to_u64(running->line + 5, &port) == 0)
            dial(running, port);
        else
            got = ERR_INVALID;
    }
    if (got < 0 && got != ERR_AGAIN && !running->exec) {
        char text[200], shown[120];
        snprintf(text, sizeof text, "%s cannot listen: %.100s", running->measure->hosts[running->listener].name,
                 running->used ? text_harmless(running->line, running->used, shown, sizeof shown) : why.text);
        fail(running, text);
        return;
    }
    road_want(running->road, !running->exec, false); /* how it ends is the dialler's news */
}

static void on_listen_deadline(void *arg)
{
    struct running *running = arg;
    if (running->pair && !running->exec)
        fail(running, "its listener does not start");
}

static void listen_there(struct running *running)
{
    const struct measure_host *listener = &running->measure->hosts[running->listener];
    char *script = inspect_measure_script("listen", listener->listen, TAKES_S);
    running->road = exec_road(listener->session, script, running->measure->greet_ns);
    road_on_ready(running->road, on_listener, running);
    road_want(running->road, true, false);
    loop_timer_set(running->timer, 2 * running->measure->greet_ns);
    mem_free(script);
}

static bool is_busy(const struct measure *measure, int host)
{
    for (int i = 0; i < AT_ONCE; i++)
        if (measure->running[i].pair && (measure->running[i].pair->one == host || measure->running[i].pair->other == host))
            return true;
    return false;
}

/* Who could not take part: said without being tried. */
static bool say_impossible(const struct measure *measure, struct measure_pair *pair)
{
    const struct measure_host *one = &measure->hosts[pair->one], *other = &measure->hosts[pair->other];
    if (!one->session || !other->session)
        snprintf(pair->reason, sizeof pair->reason, "nobody is logged in on %.100s", one->session ? other->name : one->name);
    else if (!one->reached && !other->reached)
        snprintf(pair->reason, sizeof pair->reason, "neither %.100s nor %.100s is reached by others", one->name, other->name);
    return pair->reason[0];
}

static void begin_pair(struct running *running, struct measure_pair *pair)
{
    const struct measure_host *hosts = running->measure->hosts;
    clear(running);
    running->pair = pair;
    running->tried_other = false;
    running->listener = hosts[pair->other].reached ? pair->other : pair->one; /* downstream listens, as it will */
    running->dialler = running->listener == pair->one ? pair->other : pair->one;
    listen_there(running);
}

static void on_next(void *arg)
{
    struct measure *measure = arg;
    for (int i = 0; i < measure->count && measure->left; i++) {
        struct measure_pair *pair = &measure->pairs[i];
        struct running *free_one = NULL;
        bool under_way = false;
        for (int j = 0; j < AT_ONCE; j++) {
            under_way |= measure->running[j].pair == pair;
            if (!measure->running[j].pair)
                free_one = &measure->running[j];
        }
        if (pair->done || under_way)
            continue;
        if (say_impossible(measure, pair)) {
            pair->done = true;
            loop_timer_set(measure->next, 0);
            measure->left--;
            measure->cb(pair, measure->left, measure->arg); /* may free all */
            return;
        }
        if (free_one && !is_busy(measure, pair->one) && !is_busy(measure, pair->other))
            begin_pair(free_one, pair);
    }
}

struct measure *measure_new(struct loop *loop, const struct measure_host *hosts, int host_count, struct measure_pair *pairs, int count,
                            uint64_t greet_ns, measure_cb *cb, void *arg)
{
    struct measure *measure = mem_new(sizeof *measure);
    *measure = (struct measure){.loop = loop, .hosts = hosts, .host_count = host_count, .pairs = pairs, .count = count, .left = count,
                                .greet_ns = greet_ns, .cb = cb, .arg = arg};
    BUG_IF(count < 1);
    for (int i = 0; i < AT_ONCE; i++) {
        measure->running[i].measure = measure;
        measure->running[i].timer = loop_timer_new(loop, on_listen_deadline, &measure->running[i]);
    }
    measure->next = loop_timer_new(loop, on_next, measure);
    loop_timer_set(measure->next, 0);
    return measure;
}

void measure_free(struct measure *measure)
{
    if (!measure)
        return;
    for (int i = 0; i < AT_ONCE; i++) {
        clear(&measure->running[i]);
        loop_timer_free(measure->running[i].timer);
    }
    loop_timer_free(measure->next);
    mem_free(measure);
}
