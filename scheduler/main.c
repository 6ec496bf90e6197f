/*
 * kedged: the scheduler of one run. The console starts it; see man/kedged.8.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "profiles/profile.h"
#include "scheduler/bridge.h"
#include "scheduler/dump.h"
#include "scheduler/folder.h"
#include "scheduler/history.h"
#include "scheduler/kedged.h"
#include "scheduler/plan.h"
#include "scheduler/probe.h"
#include "ssh/base/mem.h"
#include "ssh/base/version.h"

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char usage[] =
    "usage: kedged --folder RUN                  schedule the run whose folder RUN is\n"
    "       kedged bridge --folder RUN           a console on stdin and stdout; a past run shows its record\n"
    "       kedged plan PROFILE [--json]         what would run where, without running it\n"
    "       kedged history --folder RUN          losses, steps and rates of a run so far, one line each\n"
    "       kedged dump FILE                     a journal (run.db) as text, one line a row\n"
    "       kedged --help | --version\n"
    "\n"
    "'kedge run' starts kedged; started by hand in the folder of a run that lost its scheduler, it takes\n"
    "the run's processes back. SIGTERM stops the run. See kedged(8).\n";

static int complain(const char *before, const char *word, const char *behind)
{
    fprintf(stderr, "kedged: %s%s%s; 'kedged --help' lists what there is\n", before, word, behind);
    return EXIT_USAGE;
}

/* One line for whoever started us; then stdout is nobody's any more, so that nobody waits for it. */
static void say(const char *word, const char *text)
{
    printf("%s %s\n", word, text);
    fflush(stdout);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        close(null);
    }
}

static void say_ready(const char *address)
{
    say("ready", address);
}

static int schedule(const char *folder)
{
    struct why why = {0};
    if (kedged_run(folder, say_ready, &why) == 0)
        return EXIT_DONE;
    say("error", why.text);
    return EXIT_FAILED;
}

static int bridge(const char *folder)
{
    struct why why = {0};
    if (bridge_run(folder, &why) == 0)
        return EXIT_DONE;
    fprintf(stderr, "kedged: %s\n", why.text);
    return EXIT_FAILED;
}

static int dump(const char *path)
{
    struct why why = {0};
    if (dump_journal(path, stdout, &why) == 0)
        return EXIT_DONE;
    fprintf(stderr, "kedged: %s\n", why.text);
    return EXIT_FAILED;
}

static int history(const char *folder)
{
    struct why why = {0};
    if (history_print(folder, stdout, &why) == 0)
        return EXIT_DONE;
    fprintf(stderr, "kedged: %s\n", why.text);
    return EXIT_FAILED;
}

static int plan(const char *name, bool as_json)
{
    struct why why = {0};
    struct complaints complaints;
    char found[FOLDER_PATH];
    struct profile *profile = mem_new(sizeof *profile);
    struct plan *plan = mem_new(sizeof *plan);
    int code = EXIT_DONE;
    complaints_init(&complaints);
    snprintf(found, sizeof found, "%s", name);
    profile_read(name, profile, &complaints, found, sizeof found);
    if (complaints.count == 0 && profile->model_path[0] && probe_model(profile, &why) < 0)
        complaints_add(&complaints, found, profile_line(profile, "model.path"), "%s", why.text);
    profile_check(profile, found, &complaints);
    if (complaints.count > 0) {
        fprintf(stderr, "%.*s", (int)buf_used(&complaints.lines), (const char *)buf_peek(&complaints.lines));
        code = EXIT_USAGE;
    } else if (plan_make(profile, plan, &why) < 0) {
        fprintf(stderr, "kedged: %s: %s\n", found, why.text);
        code = EXIT_USAGE;
    } else if (as_json) {
        plan_print_json(plan, profile, stdout);
    } else {
        plan_print(plan, profile, stdout);
    }
    complaints_clear(&complaints);
    mem_free(plan);
    mem_free(profile);
    return code;
}

int main(int argc, char **argv)
{
    const char *words[2] = {NULL, NULL}, *folder = NULL;
    int count = 0;
    bool as_json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--version") == 0) {
            fputs(argv[i][2] == 'h' ? usage : "kedged " KEDGE_VERSION "\n", stdout);
            return EXIT_DONE;
        }
        if (strcmp(argv[i], "--folder") == 0 && i + 1 < argc)
            folder = argv[++i];
        else if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (argv[i][0] == '-')
            return strcmp(argv[i], "--folder") == 0 ? complain("", argv[i], " needs the run's folder")
                                                    : complain("there is no option '", argv[i], "'");
        else if (count == 2)
            return complain("'", argv[i], "' is one word too many");
        else
            words[count++] = argv[i];
    }
    if (count == 2 && strcmp(words[0], "plan") == 0 && !folder)
        return plan(words[1], as_json);
    if (count == 1 && strcmp(words[0], "plan") == 0)
        return complain("plan", "", " needs a profile");
    if (as_json)
        return complain("--json", "", " goes with plan only");
    if (count > 0 && strcmp(words[0], "dump") == 0 && !folder)
        return count == 2 ? dump(words[1]) : complain("dump", "", " needs a journal's file");
    if (count == 1 && strcmp(words[0], "bridge") == 0)
        return folder ? bridge(folder) : complain("bridge", "", " needs --folder RUN");
    if (count == 1 && strcmp(words[0], "history") == 0)
        return folder ? history(folder) : complain("history", "", " needs --folder RUN");
    if (count > 0)
        return complain("there is no command '", words[0], "'");
    return folder ? schedule(folder) : complain("kedged", "", " needs --folder RUN");
}
