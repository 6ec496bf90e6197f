#include "console/logs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "console/command.h"
#include "console/fetch.h"
#include "console/place.h"
#include "console/visit.h"
#include "console/words.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define LOGS_MOST 128
#define LOG_NAME 80
#define LINE_BYTES 4096 /* a log line is at most 2,000; what others wrote on standard error is cut here */

/* One file, read line by line; it may grow, or be renamed to PATH.1 and begun anew. */
struct log_source {
    char name[LOG_NAME]; /* of the process */
    char *path;
    FILE *file;
    char line[LINE_BYTES]; /* the next line to print */
    bool has_line;
};

struct logs {
    struct log_source *sources;
    size_t count;
    size_t name_width; /* 0: one process, no names in front */
};

static int by_name(const void *one, const void *other)
{
    return strcmp(((const struct log_source *)one)->name, ((const struct log_source *)other)->name);
}

static bool is_listed(const struct logs *logs, const char *name, size_t length)
{
    for (size_t i = 0; i < logs->count; i++)
        if (strlen(logs->sources[i].name) == length && memcmp(logs->sources[i].name, name, length) == 0)
            return true;
    return false;
}

static int list_folder(const char *path, struct logs *logs, struct why *why)
{
    DIR *entries = opendir(path);
    int err = entries ? 0 : why_errno(why, "cannot list the logs in %s", path);
    for (struct dirent *entry; entries && logs->count < LOGS_MOST && (entry = readdir(entries));) {
        size_t length = strlen(entry->d_name);
        if (length <= 4 || length - 4 >= LOG_NAME || strcmp(entry->d_name + length - 4, ".log") != 0 ||
            is_listed(logs, entry->d_name, length - 4)) /* hosts may share a home folder, with each other or with us */
            continue;
        struct log_source *source = &logs->sources[logs->count++];
        snprintf(source->name, sizeof source->name, "%.*s", (int)length - 4, entry->d_name);
        source->path = mem_format("%s/%s", path, entry->d_name);
    }
    if (entries)
        closedir(entries);
    return err;
}

static int list_sources(const struct place *place, const struct fetch *fetch, struct logs *logs, struct why *why)
{
    char *path = mem_format("%s/log", place->folder);
    logs->sources = mem_array(LOGS_MOST, sizeof *logs->sources);
    int err = place->folder[0] ? list_folder(path, logs, why) : 0;
    for (int i = 0; fetch && fetch_folder(fetch, i) && !err; i++)
        list_folder(fetch_folder(fetch, i), logs, NULL);
    qsort(logs->sources, logs->count, sizeof *logs->sources, by_name);
    mem_free(path);
    return err;
}

/* Keep only the named process's log. */
static int choose(struct logs *logs, const char *process, struct why *why)
{
    const char *names[LOGS_MOST];
    for (size_t i = 0; i < logs->count; i++) {
        names[i] = logs->sources[i].name;
        if (strcmp(names[i], process) != 0)
            continue;
        struct log_source swap = logs->sources[0];
        logs->sources[0] = logs->sources[i];
        logs->sources[i] = swap;
        for (size_t j = 1; j < logs->count; j++)
            mem_free(logs->sources[j].path);
        logs->count = 1;
        return 0;
    }
    char list[300] = "", suggestion[120];
    words_suggest(text_nearest(process, names, logs->count), "", suggestion, sizeof suggestion);
    for (size_t i = 0; i < logs->count && strlen(list) < 200; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    return why_set(why, ERR_ABSENT, "there is no log of '%.60s'%s (there are: %s)", process, suggestion, list);
}

static bool read_line(struct log_source *source)
{
    if (!source->has_line && source->file) {
        clearerr(source->file);
        long at = ftell(source->file);
        source->has_line = fgets(source->line, sizeof source->line, source->file) != NULL;
        size_t length = source->has_line ? strlen(source->line) : 0;
        if (length && source->line[length - 1] != '\n' && length < sizeof source->line - 1) {
            source->has_line = false; /* half a line: it will be whole later */
            fseek(source->file, at, SEEK_SET);
        } else if (length) {
            source->line[strcspn(source->line, "\n")] = '\0';
        }
    }
    return source->has_line;
}

/* The file was renamed away or not there yet: go on with what is there now. */
static void reopen(struct log_source *source)
{
    struct stat now, open_one;
    if (source->file && (stat(source->path, &now) != 0 || fstat(fileno(source->file), &open_one) != 0 ||
                         (now.st_ino == open_one.st_ino && now.st_dev == open_one.st_dev)))
        return;
    if (source->file)
        fclose(source->file);
    source->file = fopen(source->path, "re");
}

static void print_line(const struct logs *logs, struct log_source *source)
{
    char text[LINE_BYTES * 4];
    text_harmless(source->line, strlen(source->line), text, sizeof text);
    if (logs->name_width)
        printf("%-*s  %s\n", (int)logs->name_width, source->name, text);
    else
        puts(text);
    source->has_line = false;
}

/* Lines begin with their time in a form that sorts as text; one without it (a crash report) follows the line before it. */
static bool is_earlier(const struct log_source *one, const struct log_source *other)
{
    bool stamped = one->line[0] == '2', other_stamped = other->line[0] == '2';
    if (!stamped || !other_stamped)
        return !stamped && other_stamped;
    return strncmp(one->line, other->line, 27) < 0;
}

static bool print_all(struct logs *logs)
{
    bool printed = false;
    for (;;) {
        struct log_source *next = NULL;
        for (size_t i = 0; i < logs->count; i++)
            if (read_line(&logs->sources[i]) && (!next || is_earlier(&logs->sources[i], next)))
                next = &logs->sources[i];
        if (!next || ferror(stdout))
            return printed;
        print_line(logs, next);
        printed = true;
    }
}

int logs_show(const struct args *args, const struct style *style)
{
    struct why why = {0};
    struct logs logs = {0};
    struct place place;
    struct fetch *fetch = NULL;
    (void)style;
    struct loop *loop = loop_new(&why);
    int err = loop ? place_find(loop, args->words[0], &place, &why) : why.err;
    if (!err)
        fetch = fetch_new(loop, &place);
    if (fetch)
        fetch_round(fetch);
    if (!err)
        err = list_sources(&place, fetch, &logs, &why);
    if (!err && args->word_count > 1)
        err = choose(&logs, args->words[1], &why);
    for (size_t i = 0; i < logs.count && args->word_count == 1; i++)
        logs.name_width = strlen(logs.sources[i].name) > logs.name_width ? strlen(logs.sources[i].name) : logs.name_width;
    for (unsigned turns = 0; !err;) {
        for (size_t i = 0; i < logs.count; i++)
            if (!logs.sources[i].has_line)
                reopen(&logs.sources[i]);
        bool printed = print_all(&logs);
        if (printed && fflush(stdout) != 0)
            break;
        if (!(args->options & OPTION_FOLLOW))
            break;
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
        if (fetch && ++turns % 5 == 0)
            fetch_round(fetch);
    }
    fetch_free(fetch);
    if (loop)
        loop_free(loop);
    for (size_t i = 0; i < logs.count; i++) {
        if (logs.sources[i].file)
            fclose(logs.sources[i].file);
        mem_free(logs.sources[i].path);
    }
    mem_free(logs.sources);
    return err ? visit_fail(&why) : EXIT_DONE;
}
