#include "console/draft.h"

#include <string.h>
#include <unistd.h>

#include "console/command.h"
#include "console/visit.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/launch/prepare.h"

#define TEMPLATE_MAX_BYTES (1024 * 1024)

static void print_complaints(const struct complaints *complaints)
{
    fflush(stdout);
    fprintf(stderr, "%.*s", (int)buf_used(&complaints->lines), (const char *)buf_peek(&complaints->lines));
}

static void read_whole(const char *name, struct profile *profile, struct complaints *complaints, char *found, size_t found_size)
{
    struct why why = {0};
    snprintf(found, found_size, "%s", name);
    int err = profile_read(name, profile, complaints, found, found_size);
    if (err == 0 || err == ERR_INVALID)
        profile_check(profile, found, complaints);
    if (complaints->count || !profile->model_path[0])
        return;
    if (prepare_probe_model(profile, &why) != 0)
        complaints_add(complaints, found, profile_line(profile, "model.path"), "%s", why.text);
    else
        profile_check(profile, found, complaints);
}

int draft_read(const char *name, struct profile *profile, char *found, size_t found_size)
{
    struct complaints complaints;
    complaints_init(&complaints);
    read_whole(name, profile, &complaints, found, found_size);
    int code = complaints.count ? EXIT_USAGE : EXIT_DONE;
    if (code)
        print_complaints(&complaints);
    complaints_clear(&complaints);
    return code;
}

int draft_read_quietly(const char *path, struct profile *profile, struct why *why)
{
    struct complaints complaints;
    complaints_init(&complaints);
    int err = profile_read(path, profile, &complaints, NULL, 0);
    if (err) {
        const char *lines = (const char *)buf_peek(&complaints.lines);
        const char *end = memchr(lines, '\n', buf_used(&complaints.lines));
        why_set(why, err, "%.*s", end ? (int)(end - lines) : (int)buf_used(&complaints.lines), lines);
    }
    complaints_clear(&complaints);
    return err;
}

/* The plan is kedged's (the same code that will decide); this is only the door to it. */
int draft_plan(const struct args *args, const struct style *style)
{
    char found[RUNS_PATH], program[RUNS_PATH];
    struct why why = {0};
    struct profile *profile = mem_new(sizeof *profile);
    (void)style;
    int code = draft_read(args->words[0], profile, found, sizeof found);
    mem_free(profile);
    if (code)
        return code;
    if (prepare_sibling("kedged", program, sizeof program, &why) != 0)
        return visit_fail(&why);
    const char *argv[] = {program, "plan", found, args->options & OPTION_JSON ? "--json" : NULL, NULL};
    fflush(stdout);
    execv(program, (char *const *)(uintptr_t)argv);
    why_errno(&why, "cannot run %s", program);
    return visit_fail(&why);
}

/* ---- new ---- */

static int write_new(const char *template, const char *path, const char *run, struct why *why)
{
    uint8_t *text;
    size_t bytes;
    int err = file_read(template, TEMPLATE_MAX_BYTES, &text, &bytes, why);
    if (err)
        return err;
    err = file_write(path, text, bytes, 0644, why);
    mem_free(text);
    if (err)
        return err;
    err = profile_write_value(path, "run.name", run, why);
    if (err)
        unlink(path);
    return err;
}

int draft_make(const char *name, const char *from, char *path, size_t path_size, struct why *why)
{
    char template[RUNS_PATH], folder[RUNS_PATH], run[64];
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    size_t length = strlen(base);
    if (length > 4 && strcmp(base + length - 4, ".ini") == 0)
        length -= 4;
    if (length >= sizeof run)
        return why_set(why, ERR_INVALID, "'%.80s' is too long for the name of a run", base);
    snprintf(run, sizeof run, "%.*s", (int)length, base);
    int err = runs_folder(run, folder, sizeof folder, why);
    if (err)
        return err;
    snprintf(path, path_size, "%.*s%s.ini", (int)(base - name), name, run);
    if (access(path, F_OK) == 0)
        return why_set(why, ERR_REFUSED, "%s is there already: it is not overwritten", path);
    struct why absent = {0};
    if (profile_find(from, template, sizeof template, &absent) != 0)
        return why_set(why, absent.err, "template '%s': %s", from, absent.text);
    return write_new(template, path, run, why);
}

int draft_new(const struct args *args, const struct style *style)
{
    char path[RUNS_PATH];
    struct why why = {0};
    (void)style;
    if (draft_make(args->words[0], args->from ? args->from : "laptop", path, sizeof path, &why) != 0)
        return visit_fail(&why);
    printf("%s is written: edit it, then 'kedge check %s', 'kedge plan %s', 'kedge run %s'\n", path, path, path, path);
    return EXIT_DONE;
}
