/*
 * `kedge stop` (order.h): "stopped" is said only when no process, socket or lock of the run is left, here and on its hosts.
 *
 * First by order: kedged stops the workers, then the agents, then itself, and says meanwhile what it waits for. When kedged
 * is dead, or does not get through in its own deadlines, by hand: ssh/launch/clean.h. Ctrl-C leaves at any time; what was
 * ordered goes on.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "console/command.h"
#include "console/draft.h"
#include "console/order.h"
#include "console/visit.h"
#include "console/words.h"
#include "ssh/base/child.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/launch/clean.h"
#include "ssh/launch/nonce.h"
#include "ssh/launch/script.h"
#include "ssh/launch/sweep.h"

#define GPU_DEADLINE_NS (60 * CLOCK_SECOND)
#define NOW_GRACE_NS (500 * CLOCK_MS)

struct stopping {
    char folder[RUNS_PATH];
    const char *run;
    uint64_t run_id, grace_ns, step;
    bool step_known, now, forget;
    char said[WIRE_TEXT]; /* the newest line about what is awaited */
};

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000L * 1000L}, NULL);
}

static void on_change(struct client *client, enum wire_type type, const void *row, void *arg)
{
    struct stopping *stopping = arg;
    const struct wire_run_state *run = row;
    (void)client;
    if (type != WIRE_RUN_STATE)
        return;
    stopping->step = run->step;
    stopping->step_known = true;
    if (run->phase == PHASE_STOPPING && run->reason[0] && strcmp(run->reason, stopping->said) != 0) {
        snprintf(stopping->said, sizeof stopping->said, "%s", run->reason);
        printf("%s\n", stopping->said);
        fflush(stdout);
    }
}

static bool never(struct client *client, void *arg)
{
    (void)client, (void)arg;
    return false;
}

/* The polite way. Any failure is no failure of `stop`: the other way follows, and it is said why. False when no scheduler lived
 * that could be asked. */
static bool stop_by_order(struct stopping *stopping)
{
    struct visit visit;
    struct why why = {0};
    const struct client_callbacks callbacks = {.changed = on_change};
    int err = visit_begin(&visit, stopping->run, true, &callbacks, stopping, &why);
    if (!err && !client_is_live(visit.client)) {
        visit_end(&visit);
        return false;
    }
    if (!err) {
        err = client_order(visit.client, stopping->now ? ORDER_STOP_NOW : ORDER_STOP, "", "", NULL, &why);
        if (!err || err == ERR_GONE)
            err = client_wait(visit.client, never, NULL, 4 * stopping->grace_ns + 5 * CLOCK_SECOND, &why);
        visit_end(&visit);
    }
    if (err != ERR_GONE) /* gone: kedged is done, that is what we wait for */
        printf("kedged does not get it done (%s): ending the processes directly\n", why.text);
    return true;
}

static void print_living(const struct clean *clean, struct stopping *stopping)
{
    char line[WIRE_TEXT];
    snprintf(line, sizeof line, "waiting for %s (pid %ld)%s", clean->living[0].name, (long)clean->living[0].pid,
             clean->killed_ns ? ", killed" : "");
    if (strcmp(line, stopping->said) == 0)
        return;
    snprintf(stopping->said, sizeof stopping->said, "%s", line);
    printf("%s\n", line);
    fflush(stdout);
}

/* After the order everybody is on the way out: a moment to finish before anybody is signalled. */
static bool leaves_alone(const struct stopping *stopping)
{
    if (!stopping->folder[0])
        return true;
    struct holder *living = mem_array(HOLDERS_MOST, sizeof *living);
    size_t count = 0;
    for (int i = 0; i < 40; i++) {
        count = holders_find(stopping->folder, stopping->run_id, living, HOLDERS_MOST);
        if (!count)
            break;
        sleep_ms(50);
    }
    mem_free(living);
    return count == 0;
}

static int stop_by_hand(struct stopping *stopping, int *ended, struct why *why)
{
    struct clean *clean = mem_new(sizeof *clean);
    clean_init(clean, stopping->folder, stopping->run_id, stopping->now ? NOW_GRACE_NS : stopping->grace_ns);
    int err;
    while ((err = clean_step(clean, clock_now_ns(), why)) == ERR_AGAIN) {
        if (clock_now_ns() - clean->began_ns > 500 * CLOCK_MS)
            print_living(clean, stopping);
        sleep_ms(50);
    }
    *ended = clean->ended;
    mem_free(clean);
    return err;
}

/* The memory of this machine's GPUs, as of the hosts'. */
static int await_gpus(const struct stopping *stopping, const struct profile *profile, struct why *why)
{
    int err = 0, held = 0;
    for (int64_t i = 0; i < profile->host_count && !err; i++) {
        const struct profile_host *host = &profile->hosts[i];
        char *path = mem_format("%s/gpu@%s", stopping->folder, host->name), said[200] = "";
        if (host->kind == HOST_LOCAL && access(path, F_OK) == 0) {
            char *wait = script_gpu(host->name), *script = mem_format("R=$1; %s", wait);
            const char *const argv[] = {"/bin/sh", "-c", script, "sh", stopping->folder, NULL};
            err = child_output(argv, false, said, sizeof said, GPU_DEADLINE_NS, &(int){0}, why);
            mem_free(script);
            mem_free(wait);
        }
        if (!err && sscanf(said, "holds %d", &held) == 1)
            err = why_set(why, ERR_TIMEOUT, "all processes are gone, but the GPUs here hold %d MiB more than before the run: somebody else's "
                          "program (nvidia-smi lists them), or a driver that hangs; 'kedge stop %s --forget' does not wait for it", held, stopping->run);
        mem_free(path);
    }
    return err;
}

/* ---- hosts over SSH ---- */

struct sweeping {
    const struct stopping *stopping;
    bool done;
    int hosts, ended, forgotten;
    struct why why;
};

static void on_host(const struct profile_host *host, int err, int ended, const char *reason, void *arg)
{
    struct sweeping *sweeping = arg;
    if (!err)
        sweeping->hosts++;
    if (err && sweeping->stopping->forget) {
        printf("%s: it is forgotten\n", reason);
        nonce_set_left(sweeping->stopping->folder, host->name, false, NULL);
        sweeping->forgotten++;
    }
    if (!err && ended)
        printf("host %s: %d processes that were left are ended\n", host->name, ended);
    sweeping->ended += ended;
    fflush(stdout);
}

static void on_swept(int err, const char *reason, void *arg)
{
    struct sweeping *sweeping = arg;
    sweeping->done = true;
    if (err && !sweeping->stopping->forget)
        why_set(&sweeping->why, err, "%s", reason);
}

/* What was said here is true of the hosts too: they are looked at, and what is left is ended. */
static int sweep_hosts(struct loop *loop, const struct stopping *stopping, const struct profile *profile, struct sweeping *sweeping,
                       struct why *why)
{
    const struct sweep_callbacks callbacks = {.host = on_host, .done = on_swept};
    char known[RUNS_PATH + 16];
    if (!sweep_wanted(profile, NULL))
        return 0;
    runs_known_hosts(known, sizeof known);
    struct sweep *sweep = sweep_new(loop, profile, stopping->folder, stopping->run_id, NULL, stopping->now ? NOW_GRACE_NS : stopping->grace_ns, known,
                                    &callbacks, sweeping);
    while (!sweeping->done)
        loop_run_once(loop, CLOCK_SECOND);
    sweep_free(sweep);
    if (sweeping->why.err)
        return why_set(why, sweeping->why.err, "%s: say 'kedge stop %s' again when it can be reached, or with --forget when it is gone for good",
                       sweeping->why.text, stopping->run);
    return 0;
}

/* A run that is known on its head only has no profile here: one host, reached as it was said. */
static void make_profile(const struct place *place, struct profile *profile)
{
    profile_defaults(profile);
    struct profile_host *host = profile_add_host(profile, "head", NULL);
    snprintf(profile->name, sizeof profile->name, "%s", place->run);
    snprintf(host->ssh, sizeof host->ssh, "%.127s", place->reach.destination);
    host->kind = HOST_SSH;
    profile->timeout_ns = place->timeouts.greet_ns;
}

/* Whatever happened to run.ini, what is here can be ended. */
static void read_profile(const struct place *place, struct profile *profile)
{
    struct why why = {0};
    if (!place->folder[0]) {
        make_profile(place, profile);
        return;
    }
    char *path = mem_format("%s/run.ini", place->folder);
    if (draft_read_quietly(path, profile, &why) != 0) {
        printf("hosts are not looked at: %s\n", why.text);
        profile_defaults(profile);
    }
    mem_free(path);
}

static void say_stopped(const struct stopping *stopping, bool live, int ended, const struct place *place, const struct sweeping *sweeping)
{
    char where[120] = "", forgotten[60] = "";
    if (sweeping->hosts && place->folder[0])
        snprintf(where, sizeof where, ", here or on %d host%s", sweeping->hosts, sweeping->hosts == 1 ? "" : "s");
    else if (sweeping->hosts)
        snprintf(where, sizeof where, " on %.60s", place->reach.name);
    if (sweeping->forgotten)
        snprintf(forgotten, sizeof forgotten, "; %d host%s forgotten", sweeping->forgotten, sweeping->forgotten == 1 ? " is" : "s are");
    if (!live && !ended && !sweeping->ended)
        printf("%s was not running; nothing of it is left%s%s\n", stopping->run, where, forgotten);
    else if (stopping->step_known)
        printf("%s stopped at step %" PRIu64 ": no process, socket or lock is left%s%s\n", stopping->run, stopping->step, where,
               forgotten);
    else
        printf("%s stopped: no process, socket or lock is left%s%s\n", stopping->run, where, forgotten);
}

static int stop_run(struct loop *loop, const struct place *place, struct stopping *stopping, struct why *why)
{
    struct sweeping sweeping = {.stopping = stopping};
    struct profile *profile = mem_new(sizeof *profile);
    int ended = 0, err = 0;
    bool live = place->far || runs_answers(stopping->folder);
    read_profile(place, profile);
    if (live) {
        live = stop_by_order(stopping) || !place->far;
        leaves_alone(stopping);
    }
    if (place->folder[0])
        err = stop_by_hand(stopping, &ended, why);
    if (!err && place->folder[0] && !stopping->forget)
        err = await_gpus(stopping, profile, why);
    if (!err)
        err = sweep_hosts(loop, stopping, profile, &sweeping, why);
    if (!err)
        say_stopped(stopping, live, ended, place, &sweeping);
    mem_free(profile);
    return err;
}

int order_stop(const struct args *args, const struct style *style)
{
    struct why why = {0};
    struct place place;
    struct stopping stopping = {.run = args->words[0], .now = args->options & OPTION_NOW,
                                .forget = args->options & OPTION_FORGET};
    (void)style;
    struct loop *loop = loop_new(&why);
    int err = loop ? place_find(loop, stopping.run, &place, &why) : why.err;
    if (!err) {
        memcpy(stopping.folder, place.folder, sizeof stopping.folder);
        stopping.run_id = place.run_id;
        stopping.grace_ns = place.timeouts.grace_ns;
        err = stop_run(loop, &place, &stopping, &why);
    }
    if (loop)
        loop_free(loop);
    return err ? visit_fail(&why) : EXIT_DONE;
}
