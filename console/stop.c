/*
 * `kedge stop` (order.h): "stopped" is said only when no process, socket or lock of the run is left.
 *
 * First by order: kedged stops the workers, then the agents, then itself, and says meanwhile what it waits for. When kedged
 * is dead, or does not get through in its own deadlines, by hand: ssh/launch/clean.h. Ctrl-C leaves at any time; what was
 * ordered goes on.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "console/command.h"
#include "console/order.h"
#include "console/visit.h"
#include "console/words.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/launch/clean.h"

#define NOW_GRACE_NS (500 * CLOCK_MS)

struct stopping {
    char folder[RUNS_PATH];
    const char *run;
    uint64_t run_id, grace_ns, step;
    bool step_known, now;
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

/* The polite way. Any failure is no failure of `stop`: the other way follows, and it is said why. */
static void stop_by_order(struct stopping *stopping)
{
    struct visit visit;
    struct why why = {0};
    const struct client_callbacks callbacks = {.changed = on_change};
    int err = visit_begin(&visit, stopping->run, true, &callbacks, stopping, &why);
    if (!err) {
        stopping->grace_ns = client_timeouts(visit.client)->grace_ns;
        err = client_order(visit.client, stopping->now ? ORDER_STOP_NOW : ORDER_STOP, "", "", NULL, &why);
        if (!err || err == ERR_GONE)
            err = client_wait(visit.client, never, NULL, 4 * stopping->grace_ns + 5 * CLOCK_SECOND, &why);
        visit_end(&visit);
    }
    if (err == ERR_GONE)
        return; /* kedged is done: that is what we wait for */
    printf("kedged does not get it done (%s): ending the processes directly\n", why.text);
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

int order_stop(const struct args *args, const struct style *style)
{
    struct why why = {0};
    struct stopping stopping = {.run = args->words[0], .now = args->options & OPTION_NOW, .grace_ns = 10 * CLOCK_SECOND};
    int ended = 0;
    (void)style;
    if (runs_find(stopping.run, stopping.folder, sizeof stopping.folder, &why) != 0 ||
        runs_read_id(stopping.folder, &stopping.run_id, &why) != 0)
        return visit_fail(&why);
    bool live = runs_answers(stopping.folder);
    if (live) {
        stop_by_order(&stopping);
        leaves_alone(&stopping);
    }
    if (stop_by_hand(&stopping, &ended, &why) != 0)
        return visit_fail(&why);
    if (!live && !ended)
        printf("%s was not running; nothing of it is left\n", stopping.run);
    else if (stopping.step_known)
        printf("%s stopped at step %" PRIu64 ": no process, socket or lock is left\n", stopping.run, stopping.step);
    else
        printf("%s stopped: no process, socket or lock is left\n", stopping.run);
    return EXIT_DONE;
}
