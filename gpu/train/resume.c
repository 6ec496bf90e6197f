/*
 * `kedge-worker resume --folder RUN [STEP]`: the set that a run would go on from, for the console, which has no reader of its own. Every
 * file of it is read, with --elsewhere those that are here. Lines: "step N"; "settings NAME=VALUE" of the profile that it began with; "live NAME=VALUE" of what was another
 * then. Or one line "error SENTENCE". Without STEP the newest set is meant; one that is torn or changed is refused, and not passed over:
 * to lose steps is for people to decide.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gpu/model/set.h"
#include "gpu/train/command.h"
#include "gpu/train/offline.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define USAGE "resume --folder RUN [--elsewhere] [STEP]"

static void print_lines(const char *what, const char *lines)
{
    char *copy = mem_text(lines), *rest = copy;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (*line)
            printf("%s %s\n", what, line);
    mem_free(copy);
}

/* What is there instead of a set that is no good. */
static int offer(const char *folder, uint64_t below, bool elsewhere, int err, struct why *why)
{
    struct why own = {0};
    struct set *set = NULL;
    char text[sizeof why->text];
    snprintf(text, sizeof text, "%s", why->text);
    *why = (struct why){0};
    for (uint64_t step = below; !set && set_newest(folder, step, &step, &own) == 0;)
        if (set_open(folder, step, elsewhere, &set, &own) == 0 && !set->resumes) {
            set_free(set);
            set = NULL;
        }
    if (set)
        why_set(why, err, "%.300s; the newest whole set is that of step %" PRIu64 ": --resume=%" PRIu64 " goes on from it", text, set->step,
                set->step);
    else
        why_set(why, err, "%.300s; there is no other set that is whole", text);
    set_free(set);
    return err;
}

static int find(const char *folder, const char *word, bool elsewhere, struct set **set, struct why *why)
{
    uint64_t step;
    int err = 0;
    if (word && text_to_u64(word, &step) != 0)
        return why_set(why, ERR_INVALID, "--resume=%s: say the step of a set, as in --resume=100", word);
    if (!word)
        err = set_newest(folder, UINT64_MAX, &step, why);
    if (err)
        return err;
    err = set_open(folder, step, elsewhere, set, why);
    if (err == ERR_ABSENT) /* a step that has none, or a file of it is missing */
        return offer(folder, UINT64_MAX, elsewhere, err, why);
    if (err)
        return offer(folder, step, elsewhere, err, why);
    if ((*set)->resumes)
        return 0;
    set_free(*set);
    *set = NULL;
    return why_set(why, ERR_REFUSED, "the set of step %" PRIu64 " has weights alone: 'kedge export' takes them out, and model.path begins with "
                   "them", step);
}

int resume_main(int count, char **words)
{
    const char *folder = NULL, *word = NULL;
    struct set *set = NULL;
    bool elsewhere = false;
    struct why why = {0};
    const struct offline_option options[] = {{"--folder", .text = &folder}, {"--elsewhere", .flag = &elsewhere}, {.name = NULL}};
    int found = offline_read_words(count, words, options, USAGE, 0, 1, &word, &why);
    int err = found < 0 ? found : folder ? 0 : why_set(&why, ERR_INVALID, "usage: kedge-worker " USAGE);
    if (!err)
        err = find(folder, word, elsewhere, &set, &why);
    if (err) {
        printf("error %s\n", why.text);
        return command_exit(err);
    }
    printf("step %" PRIu64 "\n", set->step);
    print_lines("settings", set->settings);
    print_lines("live", set->live);
    set_free(set);
    return 0;
}
