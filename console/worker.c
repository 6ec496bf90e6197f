#include "console/worker.h"

#include <unistd.h>

#include "console/bring.h"
#include "console/command.h"
#include "console/visit.h"
#include "ssh/base/mem.h"
#include "ssh/launch/prepare.h"
#include "ssh/launch/runs.h"

/* Comes back only when it cannot. argv[0] is filled in. */
static int become(const char **argv, struct why *why)
{
    char program[RUNS_PATH];
    int err = prepare_sibling("kedge-worker", program, sizeof program, why);
    if (err)
        return err;
    argv[0] = program;
    fflush(stdout);
    execv(program, (char *const *)(uintptr_t)argv);
    return why_errno(why, "cannot run %s", program);
}

/* The command's options as they were given, and its words from number `rest` on, behind words that are part of its name. */
static int pass_on(const struct args *args, const char *const *name, int rest)
{
    const char *argv[8 + 2 * 64 + ARGS_MOST + 1] = {NULL, args->command->name};
    size_t count = 2, known;
    const struct args_option *options = args_options(&known);
    struct why why = {0};
    while (*name)
        argv[count++] = *name++;
    for (size_t i = 0; i < known; i++) {
        if (!(args->options & options[i].bit & args->command->options))
            continue;
        argv[count++] = mem_format("--%s", options[i].name);
        if (options[i].value)
            argv[count++] = args->values[__builtin_ctzll(options[i].bit)];
    }
    argv[count++] = "--";
    for (int i = rest; i < args->word_count; i++)
        argv[count++] = args->words[i];
    become(argv, &why);
    return visit_fail(&why);
}

int worker_export(const struct args *args, const struct style *style)
{
    struct why why = {0};
    char folder[RUNS_PATH];
    (void)style;
    if (runs_find(args->words[0], folder, sizeof folder, &why) != 0 || bring_set(args->words[0], &why) != 0)
        return visit_fail(&why);
    return pass_on(args, (const char *const[]){"--folder", folder, NULL}, 1);
}

int worker_sample(const struct args *args, const struct style *style)
{
    (void)style;
    return pass_on(args, (const char *const[]){NULL}, 0);
}

int worker_eval(const struct args *args, const struct style *style)
{
    (void)style;
    return pass_on(args, (const char *const[]){NULL}, 0);
}

int worker_data(const struct args *args, const struct style *style)
{
    (void)style;
    return pass_on(args, (const char *const[]){args->words[0], NULL}, 1);
}
