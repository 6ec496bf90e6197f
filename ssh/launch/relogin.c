#include "ssh/launch/relogin.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/launch/errand.h"
#include "ssh/launch/runs.h"

#define FIRST_ROUND 16 /* the first round takes this part of a period */
#define LATE_MOST 4    /* periods */

struct asked {
    struct relogin *relogin;
    struct reach_settings reach;
    struct errand *errand;
    struct loop_timer *timer;
    int failures;     /* in a row */
    bool needs_person;
};

struct relogin {
    struct loop *loop;
    uint64_t period_ns;
    relogin_cb *cb;
    void *arg;
    struct asked *hosts;
    int count;
};

static uint64_t pause_ns(const struct asked *asked)
{
    uint64_t period_ns = asked->relogin->period_ns;
    if (!asked->failures)
        return period_ns;
    int doublings = asked->failures > 4 ? 4 : asked->failures;
    uint64_t late_ns = (period_ns / 4) << doublings; /* half a period after the first failure */
    return late_ns < LATE_MOST * period_ns ? late_ns : LATE_MOST * period_ns;
}

static void on_done(struct errand *errand, int err, const char *reason, const char *output, size_t bytes, void *arg)
{
    struct asked *asked = arg;
    (void)output, (void)bytes;
    bool final = err == ERR_REFUSED;
    asked->errand = NULL;
    asked->failures = err ? asked->failures + 1 : 0;
    if (err && asked->needs_person) {
        errand_free(errand);
        return; /* and the timer stays unset */
    }
    loop_timer_set(asked->timer, pause_ns(asked));
    if (!err || final || asked->failures > 1)
        asked->relogin->cb(asked->reach.name, err, reason, asked->relogin->arg);
    errand_free(errand); /* last: the reason is its own */
}

static void on_ask(struct session *session, const struct session_question *question, void *arg)
{
    struct asked *asked = arg;
    (void)question; /* a host key that was accepted once, too */
    asked->needs_person = true;
    session_answer(session, NULL);
}

static void on_timer(void *arg)
{
    static const struct errand_callbacks callbacks = {.done = on_done, .ask = on_ask};
    struct asked *asked = arg;
    const struct errand_settings settings = {
        .reach = asked->reach, .what = "logging in anew", .script = ":", .most_bytes = 4096, .deadline_ns = 4 * asked->reach.greet_ns};
    asked->needs_person = false;
    asked->errand = errand_new(asked->relogin->loop, &settings, &callbacks, asked);
}

struct relogin *relogin_new(struct loop *loop, const struct profile *profile, uint64_t period_ns, relogin_cb *cb, void *arg)
{
    struct relogin *relogin = mem_new(sizeof *relogin);
    *relogin = (struct relogin){.loop = loop, .period_ns = period_ns, .cb = cb, .arg = arg};
    relogin->hosts = mem_array(PROFILE_HOSTS, sizeof *relogin->hosts);
    for (int64_t i = 0; i < profile->host_count; i++) {
        if (profile->hosts[i].kind != HOST_SSH)
            continue;
        struct asked *asked = &relogin->hosts[relogin->count++];
        asked->relogin = relogin;
        runs_known_hosts(asked->reach.save, sizeof asked->reach.save);
        reach_of_host(profile, &profile->hosts[i], &asked->reach);
        asked->timer = loop_timer_new(loop, on_timer, asked);
    }
    for (int i = 0; i < relogin->count; i++)
        loop_timer_set(relogin->hosts[i].timer, (uint64_t)i * (period_ns / FIRST_ROUND) / (uint64_t)relogin->count);
    if (relogin->count)
        return relogin;
    relogin_free(relogin);
    return NULL;
}

void relogin_free(struct relogin *relogin)
{
    if (!relogin)
        return;
    for (int i = 0; i < relogin->count; i++) {
        errand_free(relogin->hosts[i].errand);
        loop_timer_free(relogin->hosts[i].timer);
    }
    mem_free(relogin->hosts);
    mem_free(relogin);
}
