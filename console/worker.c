#include "console/worker.h"

#include <unistd.h>

#include "console/command.h"
#include "console/visit.h"
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

int worker_export(const struct args *args, const struct style *style)
{
    struct why why = {0};
    char folder[RUNS_PATH];
    (void)style;
    if (runs_find(args->words[0], folder, sizeof folder, &why) != 0)
        return visit_fail(&why);
    const char *argv[] = {NULL, "export", "--folder", folder, args->words[1], args->dtype ? "--dtype" : NULL, args->dtype, NULL};
    become(argv, &why);
    return visit_fail(&why);
}
