#include "ssh/launch/errand.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/session/exec.h"

struct errand {
    struct loop *loop;
    struct errand_settings settings;
    char *what, *script;
    struct errand_callbacks callbacks;
    void *arg;
    struct reach *reach;
    struct exec *exec;
    struct loop_timer *timer; /* the beginning, then the deadline */
    bool begun, over;
};

static void finish(struct errand *errand, int err, const char *reason, const char *output, size_t bytes)
{
    if (errand->over)
        return;
    errand->over = true;
    loop_timer_unset(errand->timer);
    errand->callbacks.done(errand, err, reason, output, bytes, errand->arg); /* may free us */
}

static void on_exec(struct exec *exec, int err, const char *reason, void *arg)
{
    size_t bytes = 0;
    const char *output = err ? "" : exec_output(exec, &bytes);
    finish(arg, err, reason, output, bytes);
}

static void on_down(struct reach *reach, int err, const char *reason, void *arg)
{
    (void)reach;
    finish(arg, err ? err : ERR_GONE, reason, "", 0);
}

static void on_up(struct reach *reach, void *arg)
{
    struct errand *errand = arg;
    errand->exec = exec_run(reach_session(reach), errand->what, errand->script, NULL, 0, errand->settings.most_bytes,
                            errand->settings.deadline_ns, on_exec, errand);
}

static void on_ask(struct session *session, const struct session_question *question, void *arg)
{
    struct errand *errand = arg;
    errand->callbacks.ask(session, question, errand->arg);
}

static void on_timer(void *arg)
{
    struct errand *errand = arg;
    const struct reach_callbacks callbacks = {.up = on_up, .down = on_down, .ask = errand->callbacks.ask ? on_ask : NULL};
    struct why why = {0};
    char text[300], phase[160], waited[32];
    if (errand->begun) {
        snprintf(text, sizeof text, "%s was not done within %s (%s)", errand->settings.reach.name,
                 text_from_duration(errand->settings.deadline_ns, waited, sizeof waited),
                 errand->exec ? errand->what : reach_phase(errand->reach, phase, sizeof phase));
        finish(errand, ERR_TIMEOUT, text, "", 0);
        return;
    }
    errand->begun = true;
    loop_timer_set(errand->timer, errand->settings.deadline_ns);
    errand->reach = reach_new(errand->loop, &errand->settings.reach, &callbacks, errand, &why);
    if (!errand->reach)
        finish(errand, why.err, why.text, "", 0);
}

struct errand *errand_new(struct loop *loop, const struct errand_settings *settings, const struct errand_callbacks *callbacks,
                          void *arg)
{
    struct errand *errand = mem_new(sizeof *errand);
    *errand = (struct errand){.loop = loop, .settings = *settings, .callbacks = *callbacks, .arg = arg};
    errand->what = mem_text(settings->what);
    errand->script = mem_text(settings->script);
    errand->timer = loop_timer_new(loop, on_timer, errand);
    loop_timer_set(errand->timer, 0);
    return errand;
}

void errand_free(struct errand *errand)
{
    if (!errand)
        return;
    exec_free(errand->exec);
    reach_free(errand->reach);
    loop_timer_free(errand->timer);
    mem_free(errand->what);
    mem_free(errand->script);
    mem_free(errand);
}
