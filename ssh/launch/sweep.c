#include "ssh/launch/sweep.h"

#include <stdio.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/errand.h"
#include "ssh/launch/script.h"

#define ANSWER_BYTES (64 * 1024)
#define SPARE_NS (20 * CLOCK_SECOND)

struct broom {
    struct sweep *sweep;
    const struct profile_host *host;
    struct errand *errand;
    bool over;
};

struct sweep {
    char *folder;
    struct sweep_callbacks callbacks;
    void *arg;
    struct broom brooms[PROFILE_HOSTS];
    int count, left;
    struct why first;
};

/* The last line: "gone ENDED", or "left COUNT PID NAME". */
static int read_answer(const char *output, const char *host, int *ended, struct why *why)
{
    const char *end = output + strlen(output);
    char line[200], name[64] = "", shown[200];
    while (end > output && end[-1] == '\n')
        end--;
    const char *begin = end;
    while (begin > output && begin[-1] != '\n')
        begin--;
    snprintf(line, sizeof line, "%.*s", (int)(end - begin), begin);
    int count = 0;
    long pid = 0;
    if (sscanf(line, "gone %d", &count) == 1) {
        *ended = count;
        return 0;
    }
    if (strcmp(line, "stranger") == 0)
        return why_set(why, ERR_REFUSED, "host %s is another machine than the one that the run was started on: its address was given away, or "
                       "its disk is new. Nothing was ended there", host);
    if (sscanf(line, "holds %d", &count) == 1)
        return why_set(why, ERR_TIMEOUT, "on host %s all processes are gone, but its GPUs hold %d MiB more than before the run: somebody else's "
                       "program (nvidia-smi there lists them), or a driver that hangs", host, count);
    if (sscanf(line, "left %d %ld %63[^\n]", &count, &pid, name) >= 2)
        return why_set(why, ERR_TIMEOUT, "on host %s %d processes survive KILL (pid %ld, %s): the kernel there holds them", host,
                       count, pid, text_harmless(name, strlen(name), shown, sizeof shown));
    return why_set(why, ERR_INVALID, "host %s said '%s' when its processes were ended", host,
                   text_harmless(line, strlen(line), shown, sizeof shown));
}

static void on_done(struct errand *errand, int err, const char *reason, const char *output, size_t bytes, void *arg)
{
    struct broom *broom = arg;
    struct sweep *sweep = broom->sweep;
    struct why why = {0};
    int ended = 0;
    (void)bytes;
    if (err)
        why_set(&why, err, "host %s cannot be looked at: %s", broom->host->name, reason);
    else
        read_answer(output, broom->host->name, &ended, &why);
    broom->errand = NULL;
    errand_free(errand);
    if (!why.err)
        nonce_set_left(sweep->folder, broom->host->name, false, &why);
    if (why.err && !sweep->first.err)
        sweep->first = why;
    sweep->callbacks.host(broom->host, why.err, ended, why.text, sweep->arg);
    if (--sweep->left == 0)
        sweep->callbacks.done(sweep->first.err, sweep->first.text, sweep->arg); /* may free us */
}

static void on_ask(struct session *session, const struct session_question *question, void *arg)
{
    struct broom *broom = arg;
    broom->sweep->callbacks.ask(session, question, broom->sweep->arg);
}

bool sweep_wanted(const struct profile *profile, const bool *only)
{
    for (int64_t i = 0; i < profile->host_count; i++)
        if (profile->hosts[i].kind == HOST_SSH && (!only || only[i]))
            return true;
    return false;
}

struct sweep *sweep_new(struct loop *loop, const struct profile *profile, const char *folder, uint64_t run_id, const bool *only, uint64_t grace_ns,
                        const char *save, const struct sweep_callbacks *callbacks, void *arg)
{
    const struct errand_callbacks on = {.done = on_done, .ask = callbacks->ask ? on_ask : NULL};
    struct sweep *sweep = mem_new(sizeof *sweep);
    *sweep = (struct sweep){.folder = mem_text(folder), .callbacks = *callbacks, .arg = arg};
    BUG_IF(!sweep_wanted(profile, only));
    for (int64_t i = 0; i < profile->host_count; i++) {
        struct errand_settings settings = {.what = "ending what is left", .most_bytes = ANSWER_BYTES};
        if (profile->hosts[i].kind != HOST_SSH || (only && !only[i]))
            continue;
        const struct nonce nonce = nonce_read(folder, profile->hosts[i].name);
        char *script = script_clean(profile->name, profile->hosts[i].name, &nonce, run_id, (unsigned)(grace_ns / CLOCK_SECOND) + 1);
        settings.script = script;
        struct broom *broom = &sweep->brooms[sweep->count++];
        *broom = (struct broom){.sweep = sweep, .host = &profile->hosts[i]};
        reach_of_host(profile, broom->host, &settings.reach);
        snprintf(settings.reach.save, sizeof settings.reach.save, "%s", save);
        settings.deadline_ns = 4 * settings.reach.greet_ns + grace_ns + SPARE_NS + (callbacks->ask ? settings.reach.ask_ns : 0);
        broom->errand = errand_new(loop, &settings, &on, broom);
        sweep->left++;
        mem_free(script);
    }
    return sweep;
}

void sweep_free(struct sweep *sweep)
{
    if (!sweep)
        return;
    for (int i = 0; i < sweep->count; i++)
        errand_free(sweep->brooms[i].errand);
    mem_free(sweep->folder);
    mem_free(sweep);
}
