#include "console/visit.h"

#include <stdio.h>
#include <string.h>

#include "console/command.h"

int visit_begin(struct visit *visit, const char *run, bool follow, const struct client_callbacks *callbacks, void *arg,
                struct why *why)
{
    static const struct client_callbacks none;
    memset(visit, 0, sizeof *visit);
    visit->run = run;
    visit->loop = loop_new(why);
    if (!visit->loop)
        return why->err;
    int err = place_find(visit->loop, run, &visit->place, why);
    if (!err)
        visit->client = place_open(visit->loop, &visit->place, follow, 0, callbacks ? callbacks : &none, arg, why);
    if (!err)
        err = visit->client ? client_wait_complete(visit->client, why) : why->err;
    if (err)
        visit_end(visit);
    return err;
}

void visit_end(struct visit *visit)
{
    client_free(visit->client);
    if (visit->loop)
        loop_free(visit->loop);
    visit->client = NULL;
    visit->loop = NULL;
}

int visit_fail(const struct why *why)
{
    fflush(stdout);
    fprintf(stderr, "kedge: %s\n", why->text);
    return command_exit_code(why->err);
}
