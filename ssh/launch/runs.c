#include "ssh/launch/runs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

int runs_home(char *out, size_t size, struct why *why)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int used;
    if (state && state[0] == '/')
        used = snprintf(out, size, "%s/kedge", state);
    else if (home && home[0] == '/')
        used = snprintf(out, size, "%s/.local/state/kedge", home);
    else
        return why_set(why, ERR_ABSENT, "neither XDG_STATE_HOME nor HOME is set to a path: runs have no place to live");
    if (used < 0 || (size_t)used >= size)
        return why_set(why, ERR_FULL, "the path of the state folder is longer than %zu bytes; set XDG_STATE_HOME to a "
                                      "shorter one", size - 1);
    return 0;
}

void runs_known_hosts(char *out, size_t size)
{
    char home[RUNS_PATH];
    if (runs_home(home, sizeof home, NULL) == 0)
        snprintf(out, size, "%s/known_hosts", home);
    else
        out[0] = '\0';
}

static bool name_usable(const char *run)
{
    if (!*run || strlen(run) >= 64 || run[0] == '.' || run[0] == '-')
        return false;
    for (const char *c = run; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_.+", *c))
            return false;
    return true;
}

int runs_folder(const char *run, char *out, size_t size, struct why *why)
{
    char home[RUNS_PATH];
    int err = runs_home(home, sizeof home, why);
    if (err)
        return err;
    if (!name_usable(run))
        return why_set(why, ERR_INVALID, "'%.80s' cannot be the name of a run: use letters, digits, '-', '_' and '.'", run);
    int used = snprintf(out, size, "%s/%s", home, run);
    struct sockaddr_un address;
    if (used < 0 || (size_t)used >= size || (size_t)used + strlen("/kedged.sock") >= sizeof address.sun_path)
        return why_set(why, ERR_INVALID, "%s/%s is too long for the path of a socket (%zu bytes); set XDG_STATE_HOME to a "
                                         "shorter one",
                       home, run, sizeof address.sun_path - 1);
    return 0;
}

static int newest_first(const void *one, const void *other)
{
    const struct runs_entry *a = one, *b = other;
    if (a->changed_wall_ms != b->changed_wall_ms)
        return a->changed_wall_ms < b->changed_wall_ms ? 1 : -1;
    return strcmp(a->name, b->name);
}

static int64_t changed_at(const char *home, const char *run, const char *file)
{
    struct stat status;
    char *path = mem_format("%s/%s/%s", home, run, file);
    int64_t at_ms = stat(path, &status) == 0 ? (int64_t)status.st_mtim.tv_sec * 1000 + status.st_mtim.tv_nsec / 1000000 : -1;
    mem_free(path);
    return at_ms;
}

static bool describe_entry(const char *home, const char *name, struct runs_entry *entry)
{
    int64_t ini_ms = name_usable(name) ? changed_at(home, name, "run.ini") : -1;
    if (ini_ms < 0)
        return false;
    int64_t journal_ms = changed_at(home, name, "run.db");
    memcpy(entry->name, name, strlen(name) + 1); /* usable names fit */
    entry->changed_wall_ms = journal_ms > ini_ms ? journal_ms : ini_ms;
    return true;
}

int runs_list(struct runs_entry **entries, size_t *count, struct why *why)
{
    char home[RUNS_PATH];
    int err = runs_home(home, sizeof home, why);
    if (err)
        return err;
    struct runs_entry *list = mem_array(RUNS_MOST, sizeof *list);
    size_t found = 0;
    DIR *folder = opendir(home);
    if (!folder && errno != ENOENT) {
        err = why_errno(why, "cannot list the runs in %s", home);
        mem_free(list);
        return err;
    }
    for (struct dirent *entry; folder && found < RUNS_MOST && (entry = readdir(folder));)
        if (describe_entry(home, entry->d_name, &list[found]))
            found++;
    if (folder)
        closedir(folder);
    qsort(list, found, sizeof *list, newest_first);
    *entries = list;
    *count = found;
    return 0;
}

/* "no run 'laptp'; did you mean 'laptop'?" */
static int no_such_run(const char *run, struct why *why)
{
    struct runs_entry *entries;
    size_t count;
    if (runs_list(&entries, &count, why) != 0)
        return why->err;
    const char **names = mem_array(count + 1, sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = entries[i].name;
    const char *near = text_nearest(run, names, count);
    char list[200] = "";
    for (size_t i = 0; i < count && strlen(list) < 120; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    if (!count)
        why_set(why, ERR_ABSENT, "there is no run '%.80s', and none at all yet: 'kedge run PROFILE' starts one", run);
    else if (near)
        why_set(why, ERR_ABSENT, "there is no run '%.80s'; did you mean '%s'? (there are: %s)", run, near, list);
    else
        why_set(why, ERR_ABSENT, "there is no run '%.80s'; there are: %s", run, list);
    mem_free(names);
    mem_free(entries);
    return ERR_ABSENT;
}

int runs_find(const char *run, char *folder, size_t size, struct why *why)
{
    char path[RUNS_PATH], ini[RUNS_PATH + 16];
    int err = runs_folder(run, path, sizeof path, why);
    if (err)
        return err;
    snprintf(ini, sizeof ini, "%s/run.ini", path);
    if (access(ini, F_OK) != 0)
        return no_such_run(run, why);
    snprintf(folder, size, "%s", path);
    return 0;
}

int runs_read_id(const char *folder, uint64_t *run_id, struct why *why)
{
    char path[RUNS_PATH + 16];
    uint8_t *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/run.id", folder);
    int err = file_read(path, 64, &text, &bytes, why);
    if (err)
        return err;
    char *end;
    errno = 0;
    uint64_t id = strtoull((const char *)text, &end, 16);
    bool whole = end == (char *)text + 16 && (*end == '\0' || isspace((unsigned char)*end));
    mem_free(text);
    if (!whole || id == 0)
        return why_set(why, ERR_INVALID, "%s does not hold a run id of 16 hex digits", path);
    *run_id = id;
    return 0;
}

bool runs_answers(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int used = snprintf(address.sun_path, sizeof address.sun_path, "%s/kedged.sock", folder);
    if (used < 0 || (size_t)used >= sizeof address.sun_path)
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    /* EAGAIN: somebody listens and is busy. */
    bool answers = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN;
    close(fd);
    return answers;
}
