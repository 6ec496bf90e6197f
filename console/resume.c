#include "console/resume.h"

#include <stdio.h>
#include <string.h>

#include "console/bring.h"
#include "ssh/base/buf.h"
#include "ssh/base/child.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/prepare.h"
#include "ssh/launch/runs.h"

#define ANSWER_BYTES (2 * PROFILE_SETTINGS_BYTES)
#define DEADLINE_NS (3600 * CLOCK_SECOND) /* all files of a set are read */

struct found {
    uint64_t step;
    struct buf settings; /* NAME=VALUE lines */
};

/* ---- what kedge-worker says of it ---- */

static int take_line(char *line, struct found *found, struct profile *live, struct why *why)
{
    char shown[300];
    char *word = strsep(&line, " ");
    if (!line)
        return why_set(why, ERR_INVALID, "kedge-worker resume said '%s': is it of this version?",
                       text_harmless(word, strlen(word), shown, sizeof shown));
    if (strcmp(word, "error") == 0)
        return why_set(why, ERR_REFUSED, "%s", text_harmless(line, strlen(line), shown, sizeof shown));
    if (strcmp(word, "step") == 0)
        return text_to_u64(line, &found->step);
    if (strcmp(word, "settings") == 0)
        return buf_format(&found->settings, "%s\n", line);
    char *equals = strchr(line, '=');
    if (strcmp(word, "live") != 0 || !equals)
        return why_set(why, ERR_INVALID, "kedge-worker resume said '%s': is it of this version?",
                       text_harmless(word, strlen(word), shown, sizeof shown));
    *equals = '\0';
    return profile_set(live, line, equals + 1, why);
}

/* Settings come before live ones. */
static int take_answer(char *text, struct found *found, struct profile *begun, struct profile *live, struct why *why)
{
    char *rest = text;
    bool begun_read = false;
    int err = 0;
    for (char *line; !err && (line = strsep(&rest, "\n"));) {
        bool last = !*line || strncmp(line, "live ", 5) == 0;
        if (last && !begun_read && buf_used(&found->settings)) {
            err = profile_from_settings(buf_peek(&found->settings), buf_used(&found->settings), begun, why);
            *live = *begun;
            begun_read = true;
        }
        if (!err && *line)
            err = take_line(line, found, live, why);
    }
    return err || begun_read ? err : why_set(why, ERR_INVALID, "kedge-worker resume said nothing");
}

static bool has_hosts(const struct profile *profile)
{
    for (int64_t i = 0; i < profile->host_count; i++)
        if (profile->hosts[i].kind == HOST_SSH)
            return true;
    return false;
}

static int ask_worker(const char *folder, const char *word, bool elsewhere, struct found *found, struct profile *begun, struct profile *live, struct why *why)
{
    char program[RUNS_PATH];
    int status = 0, err = prepare_sibling("kedge-worker", program, sizeof program, why);
    if (err)
        return err;
    const char *const argv[] = {program, "resume", "--folder", folder, elsewhere ? "--elsewhere" : "--", word, NULL};
    char *text = mem_new(ANSWER_BYTES);
    err = child_output(argv, false, text, ANSWER_BYTES, DEADLINE_NS, &status, why);
    if (!err)
        err = take_answer(text, found, begun, live, why);
    mem_free(text);
    return err;
}

/* ---- may it go on? ---- */

static void on_kept(const char *name, const char *value, void *arg)
{
    if (!*(const bool *)arg)
        printf("%s = %s, as it was set while the run went on\n", name, value);
}

int resume_find(const char *word, struct profile *profile, bool quiet, uint64_t *step, struct why *why)
{
    char folder[RUNS_PATH];
    struct found found = {.step = 0};
    struct profile *begun = mem_new(sizeof *begun), *live = mem_new(sizeof *live);
    buf_init(&found.settings, PROFILE_SETTINGS_BYTES);
    int err = runs_find(profile->name, folder, sizeof folder, why);
    if (!err && !word)
        err = bring_manifest(profile->name, why);
    if (!err)
        err = ask_worker(folder, word, has_hosts(profile), &found, begun, live, why);
    if (!err)
        err = profile_check_resume(begun, profile, why);
    if (!err)
        err = profile_resume_live(begun, live, profile, on_kept, &quiet, why);
    if (!err)
        *step = found.step;
    buf_clear(&found.settings);
    mem_free(begun);
    mem_free(live);
    return err;
}
