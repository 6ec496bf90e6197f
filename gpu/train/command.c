/* See command.h: one table of options, for agent and stage. */
#include "gpu/train/command.h"

#include <stddef.h>
#include <string.h>

#include "profiles/profile.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

enum option_kind { OPTION_TEXT, OPTION_NUMBER, OPTION_DURATION, OPTION_FLAG };

static const struct option {
    const char *name;
    enum option_kind kind;
    size_t offset, size;
} options[] = {
#define OPTION(name, kind, member)                                                                                          \
    {                                                                                                                       \
        name, kind, offsetof(struct worker_arguments, member), sizeof((struct worker_arguments *)NULL)->member              \
    }
    OPTION("--folder", OPTION_TEXT, folder),
    OPTION("--host", OPTION_TEXT, host),
    OPTION("--head", OPTION_TEXT, head),
    OPTION("--name", OPTION_TEXT, name),
    OPTION("--listen", OPTION_TEXT, listen),
    OPTION("--announce", OPTION_TEXT, announce),
    OPTION("--incarnation", OPTION_NUMBER, incarnation),
    OPTION("--timeout", OPTION_DURATION, timeout_ns),
    OPTION("--fuse", OPTION_DURATION, fuse_ns),
    OPTION("--disk-budget", OPTION_NUMBER, disk_budget),
    OPTION("--lease", OPTION_FLAG, lease),
    OPTION("--plain", OPTION_FLAG, plain),
#undef OPTION
};

int command_exit(int err)
{
    switch (err) {
    case 0:
        return EXIT_DONE;
    case ERR_INVALID:
        return EXIT_USAGE;
    case ERR_GONE:
    case ERR_TIMEOUT:
        return EXIT_NETWORK;
    case ERR_REFUSED:
        return EXIT_REFUSED;
    default:
        return EXIT_FAILED;
    }
}

static const struct option *find_option(const char *word)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strcmp(options[i].name, word) == 0)
            return &options[i];
    return NULL;
}

static int set_option(const struct option *option, const char *value, struct worker_arguments *arguments, struct why *why)
{
    char *target = (char *)arguments + option->offset;
    int err = 0;
    if (option->kind == OPTION_TEXT) {
        if (strlen(value) >= option->size)
            return why_set(why, ERR_INVALID, "%s: longer than %zu bytes", option->name, option->size - 1);
        memcpy(target, value, strlen(value) + 1);
        return 0;
    }
    uint64_t number = 0;
    err = option->kind == OPTION_NUMBER ? text_to_u64(value, &number) : text_to_duration(value, &number);
    if (err)
        return why_set(why, ERR_INVALID, "%s %s: not a %s", option->name, value,
                       option->kind == OPTION_NUMBER ? "number" : "duration like 10s");
    memcpy(target, &number, sizeof number);
    return 0;
}

int command_run_id(const char *folder, uint64_t *run_id, struct why *why)
{
    char *path = mem_format("%s/run.id", folder), *end;
    uint8_t *text;
    size_t bytes;
    int err = file_read(path, 64, &text, &bytes, why);
    if (!err) {
        *run_id = strtoull((char *)text, &end, 16);
        if (end - (char *)text != 16 || (*end != '\0' && *end != '\n') || *run_id == 0)
            err = why_set(why, ERR_INVALID, "%s: not 16 hexadecimal digits; start the run again", path);
        mem_free(text);
    }
    mem_free(path);
    return err;
}

static int check_needs(const char *const *needs, struct worker_arguments *arguments, struct why *why)
{
    for (; *needs; needs++) {
        const struct option *option = find_option(*needs);
        const char *value = (const char *)arguments + option->offset;
        if (option->kind == OPTION_TEXT ? value[0] == '\0' : arguments->incarnation == 0)
            return why_set(why, ERR_INVALID, "%s is missing; see kedge-worker --help", *needs);
    }
    if (arguments->incarnation > UINT32_MAX)
        return why_set(why, ERR_INVALID, "--incarnation: too large");
    return 0;
}

int command_arguments(int count, char **words, const char *const *needs, struct worker_arguments *arguments, struct why *why)
{
    struct profile *defaults = mem_new(sizeof *defaults);
    profile_defaults(defaults);
    *arguments = (struct worker_arguments){.timeout_ns = defaults->timeout_ns};
    mem_free(defaults);
    for (int i = 0; i < count; i++) {
        const struct option *option = find_option(words[i]);
        if (!option)
            return why_set(why, ERR_INVALID, "%s: no such option; see kedge-worker --help", words[i]);
        if (option->kind == OPTION_FLAG) {
            *((bool *)((char *)arguments + option->offset)) = true;
            continue;
        }
        if (i + 1 == count)
            return why_set(why, ERR_INVALID, "%s needs a value", words[i]);
        int err = set_option(option, words[++i], arguments, why);
        if (err)
            return err;
    }
    int err = check_needs(needs, arguments, why);
    return err ? err : command_run_id(arguments->folder, &arguments->run_id, why);
}
