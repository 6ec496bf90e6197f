#include "ssh/launch/prepare.h"
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/child.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/holders.h"
#include "ssh/launch/nonce.h"
#include "ssh/launch/runs.h"
#include "ssh/link/cert.h"

#define PROBE_MAX_BYTES 8192
#define PROBE_DEADLINE_NS (60 * CLOCK_SECOND)

int prepare_sibling(const char *program, char *out, size_t size, struct why *why)
{
    char folder[RUNS_PATH];
    int err = file_program_folder(folder, sizeof folder, why);
    if (err)
        return err;
    int used = snprintf(out, size, "%s/%s", folder, program);
    if (used < 0 || (size_t)used >= size)
        return why_set(why, ERR_FULL, "the path of %s beside kedge is too long", program);
    if (access(out, F_OK) != 0)
        return why_set(why, ERR_SYSTEM, "%s is missing: kedge, kedged, kedge-worker and kedge-cpu.so belong into one folder "
                       "('make' builds all of them)", out);
    return 0;
}

static int refuse_living(const char *run, const char *folder, struct why *why)
{
    uint64_t old_id;
    struct holder *holders = mem_array(HOLDERS_MOST, sizeof *holders);
    size_t count = 0;
    if (runs_read_id(folder, &old_id, NULL) == 0)
        count = holders_find(folder, old_id, holders, HOLDERS_MOST);
    if (runs_answers(folder))
        why_set(why, ERR_REFUSED, "the run '%s' is going already: 'kedge attach %s' watches it, 'kedge stop %s' ends it",
                run, run, run);
    else if (count)
        why_set(why, ERR_REFUSED, "the run '%s' has %zu processes but no scheduler (%s, pid %ld): 'kedge attach %s' starts "
                "one that takes them back, 'kedge stop %s' ends them", run, count, holders[0].name, (long)holders[0].pid, run,
                run);
    mem_free(holders);
    return why->err;
}

static int make_credentials(const struct profile *profile, const char *folder, uint64_t run_id, struct why *why)
{
    char creds[RUNS_PATH + 16];
    snprintf(creds, sizeof creds, "%s/creds", folder);
    int err = file_remove_tree(creds, why); /* those of the previous run are worth nothing now */
    if (!err)
        err = file_make_folders(creds, 0700, why);
    if (!err)
        err = cert_make_authority(creds, run_id, why);
    if (!err)
        err = cert_make_host(creds, "kedged", why);
    for (int64_t i = 0; i < profile->host_count && !err; i++)
        err = cert_make_host(creds, profile->hosts[i].name, why);
    return err;
}

/* Sets of weights of the run before are not ours: out of the way, but never away before this run has one of its own to lose. */
static int put_sets_aside(const char *folder, struct why *why)
{
    char *sets = mem_format("%s/checkpoint", folder), *old = mem_format("%s/checkpoint.1", folder);
    char *pattern = mem_format("%s/*/manifest.json", sets);
    glob_t found;
    int err = 0;
    bool whole = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    if (whole) {
        globfree(&found);
        err = file_remove_tree(old, why);
        if (!err && rename(sets, old) != 0)
            err = why_errno(why, "cannot put %s aside", sets);
    } else {
        err = file_remove_tree(sets, why);
    }
    mem_free(pattern);
    mem_free(sets);
    mem_free(old);
    return err;
}

/* RUN/resume: kedged goes on from there. */
static int note_resume(const char *folder, uint64_t step, struct why *why)
{
    char *path = mem_format("%s/resume", folder), text[32];
    int bytes = snprintf(text, sizeof text, "%" PRIu64 "\n", step), err = 0;
    if (step)
        err = file_write(path, text, (size_t)bytes, 0600, why);
    else if (unlink(path) != 0 && errno != ENOENT)
        err = why_errno(why, "cannot remove %s", path);
    mem_free(path);
    return err;
}

/* Who comes over SSH finds the programs of the run in its folder (`kedge attach HOST:RUN`). */
static int link_programs(const char *folder, struct why *why)
{
    char programs[RUNS_PATH];
    int err = file_program_folder(programs, sizeof programs, why);
    char *path = mem_format("%s/bin", folder), *fresh = mem_format("%s/bin.new", folder);
    unlink(fresh);
    if (!err && (symlink(programs, fresh) != 0 || rename(fresh, path) != 0))
        err = why_errno(why, "cannot make %s", path);
    mem_free(path);
    mem_free(fresh);
    return err;
}

int prepare_run(const struct profile *profile, const char *source, uint64_t resume_step, char *folder, size_t folder_size, uint64_t *run_id,
                   struct why *why)
{
    char path[RUNS_PATH], log[RUNS_PATH + 16], ini[RUNS_PATH + 16], id_path[RUNS_PATH + 16], id_text[32];
    int err = runs_folder(profile->name, path, sizeof path, why);
    if (!err)
        err = file_make_folders(path, 0700, why);
    if (err)
        return err;
    int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0)
        return why_errno(why, "cannot open the run folder %s", path);
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        err = why_set(why, ERR_REFUSED, "another kedge is starting the run '%s' right now", profile->name);
        goto close_lock;
    }
    err = refuse_living(profile->name, path, why);
    if (err)
        goto close_lock;
    holders_leftover_files(path, true);
    uint64_t id = hash_random();
    snprintf(log, sizeof log, "%s/log", path);
    snprintf(ini, sizeof ini, "%s/run.ini", path);
    err = file_make_folders(log, 0700, why);
    if (!err)
        err = link_programs(path, why);
    if (!err)
        err = resume_step ? 0 : put_sets_aside(path, why); /* newer ones than that: kedged does it, where it is */
    if (!err)
        err = note_resume(path, resume_step, why);
    if (!err)
        err = make_credentials(profile, path, id, why);
    for (int64_t i = 0; i < profile->host_count && !err; i++)
        if (profile->hosts[i].kind == HOST_SSH)
            err = nonce_make(path, profile->hosts[i].name, why);
    if (!err)
        err = profile_copy(source, profile, ini, why);
    snprintf(id_path, sizeof id_path, "%s/run.id", path);
    snprintf(id_text, sizeof id_text, "%016" PRIx64 "\n", id);
    if (!err)
        err = file_write(id_path, id_text, strlen(id_text), 0600, why);
    if (!err) {
        snprintf(folder, folder_size, "%s", path);
        *run_id = id;
    }
close_lock:
    close(lock);
    return err;
}

/* Lines NAME=VALUE, or one line "error SENTENCE". */
static int set_from_lines(struct profile *profile, char *lines, struct why *why)
{
    char *rest = lines;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char shown[200], *equals = strchr(line, '=');
        if (!*line)
            continue;
        if (strncmp(line, "error ", 6) == 0)
            return why_set(why, ERR_INVALID, "%s", text_harmless(line + 6, strlen(line + 6), shown, sizeof shown));
        if (!equals || (strncmp(line, "model.", 6) != 0 && strncmp(line, "lora.", 5) != 0))
            return why_set(why, ERR_INVALID, "kedge-worker probe said '%s' about %s: is it of this version?",
                           text_harmless(line, strlen(line), shown, sizeof shown), profile->model_path);
        *equals = '\0';
        if (strcmp(line, "model.head") == 0 && profile_line(profile, line))
            continue; /* a choice, not only a fact: a tied head may be trained on its own */
        int err = profile_set(profile, line, equals + 1, why);
        if (err)
            return err;
    }
    return 0;
}

int prepare_probe_model(struct profile *profile, struct why *why)
{
    char program[RUNS_PATH], lines[PROBE_MAX_BYTES];
    int status = 0, err = prepare_sibling("kedge-worker", program, sizeof program, why);
    if (err)
        return err;
    const char *const argv[] = {program, "probe", profile->model_path, profile->lora_path[0] ? profile->lora_path : NULL, NULL};
    err = child_output(argv, false, lines, sizeof lines, PROBE_DEADLINE_NS, &status, why);
    if (err)
        return err;
    struct profile shaped = *profile;
    err = set_from_lines(&shaped, lines, why);
    if (!err && status != 0)
        err = why_set(why, ERR_INVALID, "model.path: %s is no checkpoint folder that kedge-worker can read",
                      profile->model_path);
    if (!err)
        *profile = shaped;
    return err;
}
