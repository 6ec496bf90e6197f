#include "console/place.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/profile.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/errand.h"
#include "ssh/launch/script.h"

#define LOOK_BYTES 4096

struct looking {
    bool done;
    struct why why;
    char words[LOOK_BYTES + 1];
};

static void on_looked(struct errand *errand, int err, const char *reason, const char *output, size_t bytes, void *arg)
{
    struct looking *looking = arg;
    (void)errand;
    looking->done = true;
    if (err)
        why_set(&looking->why, err, "%s", reason);
    else
        snprintf(looking->words, sizeof looking->words, "%.*s", (int)bytes, output);
}

/* Its id, and the base of its deadlines. */
static int ask_host(struct loop *loop, struct place *place, struct why *why)
{
    const struct errand_callbacks callbacks = {.done = on_looked};
    struct looking *looking = mem_new(sizeof *looking);
    char *script = script_of_run(place->run, "[ -e \"$R/run.id\" ] || { echo none; ls \"${R%/*}\" 2>/dev/null | head -n 20; exit 0; }; "
                                             "head -c 16 \"$R/run.id\"; echo; sed -n 's/^timeout *= *//p' \"$R/run.ini\" 2>/dev/null | head -n 1");
    const struct errand_settings settings = {.reach = place->reach, .what = "looking for the run", .script = script,
                                             .most_bytes = LOOK_BYTES, .deadline_ns = 4 * place->reach.greet_ns};
    struct errand *errand = errand_new(loop, &settings, &callbacks, looking);
    while (!looking->done)
        loop_run_once(loop, CLOCK_SECOND);
    errand_free(errand);
    char *rest = looking->words, *first = strsep(&rest, "\n"), *second = rest ? strsep(&rest, "\n") : NULL;
    char there[200];
    uint64_t base_ns = 0;
    int err = looking->why.err;
    if (err)
        why_set(why, err, "%s", looking->why.text);
    else if (strcmp(first, "none") == 0)
        err = why_set(why, ERR_ABSENT, "there is no run '%s' on %s%s%s", place->run, place->reach.name, second && *second ? "; there is " : "",
                      second ? text_harmless(second, strlen(second), there, sizeof there) : "");
    else if ((place->run_id = strtoull(first, NULL, 16)) == 0)
        err = why_set(why, ERR_INVALID, "%s does not tell the id of the run '%s'", place->reach.name, place->run);
    if (!err && second && text_to_duration(second, &base_ns) == 0 && base_ns >= 100 * CLOCK_MS && base_ns <= 86400 * CLOCK_SECOND)
        place->timeouts = timeouts_derive(base_ns);
    mem_free(script);
    mem_free(looking);
    return err;
}

static int find_here(const char *run, struct place *place, struct why *why)
{
    int err = runs_find(run, place->folder, sizeof place->folder, why);
    if (!err)
        err = runs_read_id(place->folder, &place->run_id, why);
    if (err)
        return err;
    struct profile *profile = mem_new(sizeof *profile);
    struct complaints complaints;
    char *path = mem_format("%s/run.ini", place->folder);
    complaints_init(&complaints);
    snprintf(place->run, sizeof place->run, "%s", run);
    if (profile_read(path, profile, &complaints, NULL, 0) == 0) {
        const struct profile_host *head = profile_head(profile);
        place->timeouts = timeouts_derive(profile->timeout_ns);
        place->far = head;
        if (head)
            reach_of_host(profile, head, &place->reach);
    }
    complaints_clear(&complaints);
    mem_free(path);
    mem_free(profile);
    return 0;
}

int place_find(struct loop *loop, const char *name, struct place *place, struct why *why)
{
    struct profile *defaults = mem_new(sizeof *defaults);
    const char *colon = strrchr(name, ':');
    char host[160];
    profile_defaults(defaults);
    memset(place, 0, sizeof *place);
    place->timeouts = timeouts_derive(defaults->timeout_ns);
    mem_free(defaults);
    snprintf(place->name, sizeof place->name, "%s", name);
    int err;
    if (!colon) {
        err = find_here(name, place, why);
    } else if (colon == name || (size_t)(colon - name) >= sizeof host || !profile_name_usable(colon + 1)) {
        err = why_set(why, ERR_INVALID, "'%.80s' is neither a run nor HOST:RUN", name);
    } else {
        snprintf(host, sizeof host, "%.*s", (int)(colon - name), name);
        snprintf(place->run, sizeof place->run, "%s", colon + 1);
        reach_of_destination(host, place->timeouts.greet_ns, &place->reach);
        place->far = true;
        err = 0;
    }
    runs_known_hosts(place->reach.save, sizeof place->reach.save); /* what was accepted at the start is known */
    if (!err && colon)
        err = ask_host(loop, place, why);
    return err;
}

struct client *place_open(struct loop *loop, const struct place *place, bool follow, uint64_t from_event,
                          const struct client_callbacks *callbacks, void *arg, struct why *why)
{
    if (place->folder[0])
        return client_open(loop, place->folder, follow, from_event, callbacks, arg, why);
    const struct client_settings settings = {
        .run_id = place->run_id, .timeouts = place->timeouts, .follow = follow, .from_event = from_event};
    return client_open_far(loop, &place->reach, "", place->run, &settings, callbacks, arg, why);
}
