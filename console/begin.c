/*
 * `kedge run` and `kedge attach` (begin.h).
 *
 * Until all programs stand, leaving means taking back what was started; from then on leaving means leaving: the run goes on.
 */
#include "console/begin.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "console/ask.h"
#include "console/command.h"
#include "console/draft.h"
#include "console/place.h"
#include "console/resume.h"
#include "console/screen.h"
#include "console/visit.h"
#include "console/watch.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/launch/clean.h"
#include "ssh/launch/launch.h"
#include "ssh/launch/prepare.h"
#include "ssh/launch/sweep.h"

struct beginning {
    const struct style *style;
    bool quiet; /* JSON lines only */
    uint64_t resume_step;         /* of the set that the run goes on from; 0 = none */
    bool done;
    bool accept_new, screen, signals_taken;
    struct ask *ask;              /* NULL = nobody is here */
    bool touched[PROFILE_HOSTS];  /* something may live there */
    struct why why;
};

static void on_changed(const char *what, enum launch_state state, const char *text, void *arg)
{
    struct beginning *beginning = arg;
    if (beginning->quiet || (state != LAUNCH_READY && state != LAUNCH_PREPARING))
        return;
    ask_step_aside(beginning->ask);
    if (state == LAUNCH_READY)
        printf("%s is ready%s%s\n", what, *text ? " at " : "", text);
    else
        printf("%s: %s\n", strncmp(what, "agent@", 6) == 0 ? what + 6 : what, text);
    fflush(stdout);
    ask_come_back(beginning->ask);
}

static void on_ask(struct session *session, const struct session_question *question, void *arg)
{
    ask_question(session, question, ((struct beginning *)arg)->ask);
}

static void on_done(int err, const char *reason, void *arg)
{
    struct beginning *beginning = arg;
    beginning->done = true;
    if (err)
        why_set(&beginning->why, err, "%s", reason);
}

static void on_swept(const struct profile_host *host, int err, int ended, const char *reason, void *arg)
{
    (void)host, (void)ended, (void)arg;
    if (err)
        fprintf(stderr, "kedge: %s\n", reason);
}

static int take_signals(struct loop *loop, struct why *why)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (loop_signal(loop, numbers[i], watch_interrupt, NULL, why) != 0)
            return why->err;
    return 0;
}

static void on_all_swept(int err, const char *reason, void *arg)
{
    (void)err, (void)reason;
    *(bool *)arg = true;
}

/* What was started for a run that does not come to be: here, and on the hosts where something may live. */
static void take_back(struct loop *loop, const struct profile *profile, const char *folder, uint64_t run_id,
                      const struct beginning *beginning)
{
    const struct sweep_callbacks callbacks = {.host = on_swept, .done = on_all_swept};
    char known[RUNS_PATH + 16];
    bool swept = !sweep_wanted(profile, beginning->touched);
    runs_known_hosts(known, sizeof known);
    struct sweep *sweep = swept ? NULL : sweep_new(loop, profile, folder, run_id, beginning->touched, 3 * CLOCK_SECOND, known, &callbacks, &swept);
    while (!swept)
        loop_run_once(loop, CLOCK_SECOND);
    sweep_free(sweep);

    struct clean *clean = mem_new(sizeof *clean);
    clean_init(clean, folder, run_id, 3 * CLOCK_SECOND);
    while (clean_step(clean, clock_now_ns(), &(struct why){0}) == ERR_AGAIN)
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    mem_free(clean);
}

/* kedged, and with `only_head` false the agents; returns when all stand or one failed. */
static int start_programs(struct loop *loop, const struct profile *profile, const char *folder, uint64_t run_id,
                          bool only_head, struct beginning *beginning)
{
    const struct launch_options options = {.only_head = only_head, .accept_new = beginning->accept_new};
    beginning->ask = beginning->quiet ? NULL : ask_new(loop);
    const struct launch_callbacks callbacks = {.changed = on_changed, .done = on_done, .ask = beginning->ask ? on_ask : NULL};
    struct launch *launch = launch_new(loop, profile, folder, run_id, &options, &callbacks, beginning, &beginning->why);
    while (launch && !beginning->done && !watch_is_interrupted())
        loop_run_once(loop, CLOCK_SECOND);
    if (launch)
        memcpy(beginning->touched, launch_touched(launch), sizeof beginning->touched);
    ask_free(beginning->ask);
    beginning->ask = NULL;
    launch_free(launch);
    return beginning->why.err;
}

static int launch_run(struct loop *loop, struct profile *profile, const char *source, char *folder, size_t folder_size,
                      struct beginning *beginning)
{
    char backend[RUNS_PATH];
    uint64_t run_id;
    int err = prepare_sibling("kedge-worker", backend, sizeof backend, &beginning->why);
    if (!err)
        err = prepare_sibling("kedge-cpu.so", backend, sizeof backend, &beginning->why);
    if (!err)
        err = profile_check_leases(profile, clock_wall_ms(), &beginning->why);
    if (!err)
        err = launch_resolve(profile, &beginning->why);
    if (!err)
        err = prepare_run(profile, source, beginning->resume_step, folder, folder_size, &run_id, &beginning->why);
    if (err)
        return visit_fail(&beginning->why);
    err = start_programs(loop, profile, folder, run_id, false, beginning);
    if (!err && !watch_is_interrupted())
        return EXIT_DONE;
    take_back(loop, profile, folder, run_id, beginning);
    if (err)
        return visit_fail(&beginning->why);
    fprintf(stderr, "kedge: interrupted while '%s' was starting: what had started was ended again\n", profile->name);
    return EXIT_INTERRUPTED;
}

/* A screen where there can be one, else a line a second. */
static int follow(struct loop *loop, const struct place *place, const struct args *args, bool from_start, const struct style *style)
{
    int code = screen_is_wanted(args, style) ? screen_run(loop, place->name, args, style) : -1;
    return code >= 0 ? code : watch_run(loop, place, args->options & OPTION_JSON, from_start, args->options & OPTION_READ_ONLY,
                                         style);
}

/* What was just begun. */
static int follow_run(struct loop *loop, const char *run, const struct args *args, const struct style *style)
{
    struct place place;
    struct why why = {0};
    return place_find(loop, run, &place, &why) ? visit_fail(&why) : follow(loop, &place, args, true, style);
}

int begin_run(const struct args *args, const struct style *style)
{
    struct beginning beginning = {
        .style = style, .quiet = args->options & OPTION_JSON, .accept_new = args->options & OPTION_ACCEPT_NEW};
    char source[RUNS_PATH], folder[RUNS_PATH] = "";
    struct profile *profile = mem_new(sizeof *profile);
    struct loop *loop = NULL;
    int code = draft_read(args->words[0], profile, source, sizeof source);
    if (code)
        goto free_profile;
    loop = loop_new(&beginning.why);
    if (!loop || take_signals(loop, &beginning.why) != 0) {
        code = visit_fail(&beginning.why);
        goto free_profile;
    }
    if (args->options & OPTION_RESUME &&
        resume_find(args->values[__builtin_ctzll(OPTION_RESUME)], profile, beginning.quiet, &beginning.resume_step, &beginning.why) != 0) {
        code = visit_fail(&beginning.why);
        goto free_profile;
    }
    code = launch_run(loop, profile, source, folder, sizeof folder, &beginning);
    if (code)
        goto free_profile;
    if (args->options & OPTION_DETACH)
        printf("%s is going; 'kedge attach %s' watches it, 'kedge stop %s' ends it\n", profile->name, profile->name,
               profile->name);
    else
        code = follow_run(loop, profile->name, args, style);
free_profile:
    if (loop)
        loop_free(loop);
    mem_free(profile);
    return code;
}

/* A run whose scheduler is dead and whose agents live gets a new scheduler, which takes them back from its journal. */
static int revive(struct loop *loop, const char *folder, const char *run, struct beginning *beginning)
{
    struct profile *profile = mem_new(sizeof *profile);
    char *path = mem_format("%s/run.ini", folder);
    uint64_t run_id;
    int code = draft_read_quietly(path, profile, &beginning->why);
    if (!code)
        code = runs_read_id(folder, &run_id, &beginning->why);
    if (!code)
        code = take_signals(loop, &beginning->why);
    beginning->signals_taken = true;
    if (!code) {
        printf("the scheduler of %s is not there, its processes are: starting a new one\n", run);
        code = start_programs(loop, profile, folder, run_id, true, beginning);
    }
    mem_free(path);
    mem_free(profile);
    return code ? visit_fail(&beginning->why) : EXIT_DONE;
}

static size_t count_living(const char *folder)
{
    uint64_t run_id;
    struct holder *holders = mem_array(HOLDERS_MOST, sizeof *holders);
    size_t count = runs_read_id(folder, &run_id, NULL) == 0 ? holders_find(folder, run_id, holders, HOLDERS_MOST) : 0;
    mem_free(holders);
    return count;
}

static int refuse_over(const struct place *place, struct why *why)
{
    return why_set(why, ERR_ABSENT, "the run '%s' is not going; 'kedge status %s' shows its record", place->run, place->name);
}

/* The scheduler is here: does it live, or do at least its processes? */
static int join_here(struct loop *loop, const struct place *place, struct beginning *beginning)
{
    if (runs_answers(place->folder))
        return EXIT_DONE;
    if (count_living(place->folder))
        return revive(loop, place->folder, place->run, beginning);
    if (beginning->screen)
        return EXIT_DONE;
    refuse_over(place, &beginning->why);
    return visit_fail(&beginning->why);
}

/* The scheduler is on a host: what does the bridge there say? */
static int join_there(const struct place *place, struct beginning *beginning)
{
    struct visit visit;
    if (visit_begin(&visit, place->name, false, NULL, NULL, &beginning->why) != 0)
        return visit_fail(&beginning->why);
    bool live = client_is_live(visit.client), over = state_is_over(client_state(visit.client));
    visit_end(&visit);
    if (live || (over && beginning->screen))
        return EXIT_DONE;
    if (over)
        refuse_over(place, &beginning->why);
    else if (!place->folder[0])
        why_set(&beginning->why, ERR_ABSENT, "the scheduler of '%s' on %s is not there: 'kedge attach %s' where the run was "
                "started begins a new one, which takes its processes back", place->run, place->reach.name, place->run);
    return beginning->why.err ? visit_fail(&beginning->why) : -1;
}

int begin_attach(const struct args *args, const struct style *style)
{
    struct beginning beginning = {.style = style, .quiet = args->options & OPTION_JSON};
    struct place place;
    int code = EXIT_DONE;
    if (args->options & OPTION_ONCE)
        return screen_once(args->words[0], args, style);
    beginning.screen = screen_is_wanted(args, style); /* it shows the record of a run that is over, too */
    struct loop *loop = loop_new(&beginning.why);
    /* While we only look, nothing has begun: a signal ends us as any program, whatever does not answer. */
    if (!loop || place_find(loop, args->words[0], &place, &beginning.why) != 0) {
        code = visit_fail(&beginning.why);
    } else if (!place.far) {
        code = join_here(loop, &place, &beginning);
    } else {
        code = join_there(&place, &beginning);
        if (code < 0)
            code = revive(loop, place.folder, place.run, &beginning);
    }
    if (!code && !beginning.signals_taken && take_signals(loop, &beginning.why) != 0)
        code = visit_fail(&beginning.why);
    if (!code)
        code = follow(loop, &place, args, false, style);
    if (loop)
        loop_free(loop);
    return code;
}
