#include "console/health.h"

#include <string.h>

#include "console/draft.h"
#include "ssh/base/mem.h"
#include "ssh/launch/relogin.h"

struct health {
    struct relogin *relogin;
    struct client *client;
};

static void on_login(const char *host, int err, const char *reason, void *arg)
{
    struct health *health = arg;
    if (health->client)
        client_tell_login(health->client, host, err, reason);
}

struct health *health_new(struct loop *loop, const struct place *place)
{
    struct profile *profile = mem_new(sizeof *profile);
    struct health *health = NULL;
    char *path = mem_format("%s/run.ini", place->folder);
    if (place->folder[0] && draft_read_quietly(path, profile, &(struct why){0}) == 0) {
        health = mem_new(sizeof *health);
        *health = (struct health){0};
        health->relogin = relogin_new(loop, profile, place->timeouts.form_ns, on_login, health);
    }
    mem_free(path);
    mem_free(profile);
    if (health && health->relogin)
        return health;
    health_free(health);
    return NULL;
}

void health_tell(struct health *health, struct client *client)
{
    if (health)
        health->client = client;
}

void health_free(struct health *health)
{
    if (!health)
        return;
    relogin_free(health->relogin);
    mem_free(health);
}
