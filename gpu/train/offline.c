#include "gpu/train/offline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/file.h"
#include "ssh/base/text.h"

#define WANTED "a model is a folder with config.json and model.safetensors, as 'kedge export RUN DIR' makes one"

/* People name a file of the model, another program's format, or the wrong place. */
static int check_folder(const char *folder, struct why *why)
{
    struct stat status;
    char path[4096], first[4] = "";
    if (stat(folder, &status) != 0)
        return why_set(why, errno == ENOENT ? ERR_ABSENT : ERR_SYSTEM, "%s: %s; " WANTED, folder, strerror(errno));
    if (!S_ISDIR(status.st_mode)) {
        FILE *file = S_ISREG(status.st_mode) ? fopen(folder, "re") : NULL;
        bool other = file && fread(first, 1, sizeof first, file) == sizeof first && memcmp(first, "GGUF", sizeof first) == 0;
        if (file)
            fclose(file);
        return why_set(why, ERR_INVALID, "%s is %s; " WANTED, folder, other ? "a GGUF file, which kedge does not read" : "not a folder");
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (access(path, F_OK) != 0)
        return why_set(why, ERR_ABSENT, "%s has no config.json; " WANTED, folder);
    return 0;
}

static int open_tokenizer(const char *folder, struct tokenizer **tokenizer, struct why *why)
{
    struct why absent = {0};
    int err = tokenizer_open(folder, tokenizer, &absent);
    if (err == ERR_ABSENT) {
        *tokenizer = tokenizer_new_bytes();
        return 0;
    }
    return err ? why_set(why, err, "%s", absent.text) : 0;
}

int offline_open(const char *folder, struct offline *offline, struct why *why)
{
    struct offline new = {0};
    char programs[1024];
    int err = check_folder(folder, why);
    if (!err)
        err = open_tokenizer(folder, &new.tokenizer, why);
    if (!err)
        err = file_program_folder(programs, sizeof programs, why);
    if (!err) {
        new.ops = ops_load(programs, "cpu", why);
        err = new.ops ? new.ops->open(&new.device, 0, why) : why->err;
    }
    if (err)
        offline_close(&new);
    else
        *offline = new;
    return err;
}

void offline_close(struct offline *offline)
{
    tokenizer_close(offline->tokenizer);
    if (offline->device)
        offline->ops->close(offline->device);
    *offline = (struct offline){0};
}

static int read_value(const struct offline_option *option, const char *value, struct why *why)
{
    if (option->text) {
        *option->text = value;
        return 0;
    }
    uint64_t whole = 0;
    double real = 0;
    int err = option->whole ? text_to_u64(value, &whole) : text_to_real(value, &real);
    double number = option->whole ? (double)whole : real;
    if (err || number < option->least || number > option->most)
        return why_set(why, ERR_INVALID, "%s %s: a number from %.10g to %.10g is possible", option->name, value, option->least,
                       option->most);
    if (option->whole)
        *option->whole = whole;
    else
        *option->real = real;
    return 0;
}

/* Returns how many words were read, or a reason. */
static int read_option(const struct offline_option *option, int left, char **words, const char *usage, struct why *why)
{
    while (option->name && strcmp(option->name, words[0]) != 0)
        option++;
    if (!option->name)
        return why_set(why, ERR_INVALID, "%s: no such option; usage: kedge-worker %s", words[0], usage);
    if (option->flag) {
        *option->flag = true;
        return 1;
    }
    if (left < 2)
        return why_set(why, ERR_INVALID, "%s: its value is missing; usage: kedge-worker %s", words[0], usage);
    int err = read_value(option, words[1], why);
    return err ? err : 2;
}

int offline_read_words(int count, char **words, const struct offline_option *options, const char *usage, int least, int most,
                       const char **others, struct why *why)
{
    int found = 0;
    bool ended = false;
    for (int i = 0; i < count;) {
        if (!ended && strcmp(words[i], "--") == 0) {
            ended = true;
            i++;
        } else if (!ended && strncmp(words[i], "--", 2) == 0) {
            int read = read_option(options, count - i, words + i, usage, why);
            if (read < 0)
                return read;
            i += read;
        } else if (found == most) {
            return why_set(why, ERR_INVALID, "'%s' is one word too many; usage: kedge-worker %s", words[i], usage);
        } else {
            others[found++] = words[i++];
        }
    }
    return found >= least ? found : why_set(why, ERR_INVALID, "usage: kedge-worker %s", usage);
}
