/*
 * INI file → profile. Every complaint is recorded and reading goes on, so that one look at the output mends the file. A
 * section that is not known is one complaint, not one for each of its keys.
 */
#include "profiles/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/fields.h"
#include "profiles/ini.h"
#include "ssh/base/file.h"
#include "ssh/base/text.h"

#define PATH_BYTES 4096

struct reading {
    struct profile *profile;
    struct complaints *complaints;
    const char *file;
    bool in_section, skip;     /* before the first one; within one that is not known */
    char section[INI_WORD + 1];
    struct profile_host *host; /* of [host NAME] */
};

/* ---- where a profile may be ---- */

static bool try_path(const char *folder, const char *name, char *out, size_t size)
{
    static const char *const endings[] = {"", ".ini"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        int used = snprintf(out, size, "%s/%s%s", folder, name, endings[i]);
        if (used > 0 && (size_t)used < size && access(out, F_OK) == 0)
            return true;
    }
    return false;
}

int profile_find(const char *name, char *out, size_t size, struct why *why)
{
    char user[PATH_BYTES], installed[PATH_BYTES + 32], program[PATH_BYTES], path[PATH_BYTES + 512];
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (strchr(name, '/') || access(name, F_OK) == 0) {
        if (access(name, F_OK) != 0)
            return why_set(why, ERR_ABSENT, "there is no such profile");
        snprintf(path, sizeof path, "%s", name);
    } else {
        if (config && *config == '/')
            snprintf(user, sizeof user, "%s/kedge", config);
        else
            snprintf(user, sizeof user, "%s/.config/kedge", home ? home : "");
        int err = file_program_folder(program, sizeof program, why);
        if (err)
            return err;
        snprintf(installed, sizeof installed, "%s/../share/kedge/profiles", program);
        if (!try_path(user, name, path, sizeof path) && !try_path(installed, name, path, sizeof path) &&
            !try_path("profiles", name, path, sizeof path))
            return why_set(why, ERR_ABSENT, "there is no such profile here, in %.200s, in %.200s, or in profiles/", user,
                           installed);
    }
    int used = snprintf(out, size, "%s", path);
    return (size_t)used < size ? 0 : why_set(why, ERR_INVALID, "the path of the profile is too long");
}

/* ---- what the INI reader finds ---- */

static const char *nearest_section(const char *name)
{
    const char *sections[PROFILE_ROWS];
    size_t count, found = 0;
    const struct field *rows = field_all(&count);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(rows[i].section, rows[i - 1].section) != 0)
            sections[found++] = rows[i].section;
    return text_nearest(name, sections, found);
}

static void begin_host(struct reading *reading, const char *name, int line)
{
    struct why why = {0};
    struct profile_host *before = profile_find_host(reading->profile, name);
    if (before)
        complaints_add(reading->complaints, reading->file, line, "host %s is there twice; it begins in line %d", name,
                       before->line);
    else if ((reading->host = profile_add_host(reading->profile, name, &why)))
        reading->host->line = line;
    else
        complaints_add(reading->complaints, reading->file, line, "%s", why.text);
    reading->skip = !reading->host;
}

static void take_section(const char *section, int line, void *arg)
{
    struct reading *reading = arg;
    reading->in_section = true;
    reading->skip = false;
    reading->host = NULL;
    size_t word = strcspn(section, " \t");
    const char *rest = section + word + strspn(section + word, " \t");
    snprintf(reading->section, sizeof reading->section, "%.*s", (int)word, section);

    if (strcmp(reading->section, "host") == 0 && *rest) {
        begin_host(reading, rest, line);
        return;
    }
    const char *near = nearest_section(reading->section);
    bool known = near && strcmp(near, reading->section) == 0;
    reading->skip = true;
    if (known && strcmp(near, "host") == 0)
        complaints_add(reading->complaints, reading->file, line, "a host needs a name, as in [host a]");
    else if (known && *rest)
        complaints_add(reading->complaints, reading->file, line, "[%s] is not a section; did you mean [%s]?", section, near);
    else if (known)
        reading->skip = false;
    else if (near)
        complaints_add(reading->complaints, reading->file, line, "[%s] is not a section; did you mean [%s%s]?", section,
                       near, strcmp(near, "host") == 0 ? " NAME" : "");
    else
        complaints_add(reading->complaints, reading->file, line, "[%s] is not a section; kedge-profile(5) lists them",
                       section);
}

static void take_value(const char *section, const char *key, const char *value, int line, void *arg)
{
    struct reading *reading = arg;
    struct why why = {0};
    char name[2 * INI_WORD + 4];
    (void)section; /* take_section took it apart */
    if (!reading->in_section)
        complaints_add(reading->complaints, reading->file, line, "'%s' stands before the first [section]", key);
    if (!reading->in_section || reading->skip)
        return;

    snprintf(name, sizeof name, "%s.%s", reading->section, key);
    const struct field *row = field_find(name);
    if (!row) {
        const char *near = field_nearest(name);
        complaints_add(reading->complaints, reading->file, line, near ? "%s is not a setting; did you mean %s?"
                       : "%s is not a setting; kedge-profile(5) lists them%s", name, near ? near : "");
        return;
    }
    int *given = reading->host ? &reading->host->lines[field_host_index(row)] : &reading->profile->lines[field_index(row)];
    if (*given) {
        complaints_add(reading->complaints, reading->file, line, "%s is given twice; it is already in line %d", name,
                       *given);
        return;
    }
    *given = line;
    if (field_parse(row, value, reading->host ? (void *)reading->host : reading->profile, &why))
        complaints_add(reading->complaints, reading->file, line, "%s", why.text);
}

static void take_fault(const char *fault, int line, void *arg)
{
    struct reading *reading = arg;
    complaints_add(reading->complaints, reading->file, line, "%s", fault);
}

/* ---- what the file left open ---- */

static void require_rows(struct reading *reading)
{
    size_t count;
    const struct field *rows = field_all(&count);
    for (size_t i = 0; i < count; i++)
        if (!rows[i].initial && !field_is_host(&rows[i]) && !reading->profile->lines[i])
            complaints_add(reading->complaints, reading->file, 0, "%s.%s must be given: %s", rows[i].section, rows[i].key,
                           rows[i].help);
}

static void name_after_file(struct profile *profile, const char *file)
{
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    size_t length = strlen(base);
    if (length > 4 && strcmp(base + length - 4, ".ini") == 0)
        length -= 4;
    snprintf(profile->name, sizeof profile->name, "%.*s", (int)length, base);
}

/* The processes of a run have other working folders than the console: a path means what it meant where the profile was read.
 */
static int make_absolute(char *paths, size_t size, struct why *why)
{
    char out[PROFILE_PATHS], here[PATH_BYTES];
    const char *home = getenv("HOME");
    size_t used = 0;
    if (!getcwd(here, sizeof here))
        return why_errno(why, "the working folder is not known");
    for (const char *at = paths + strspn(paths, " \t"); *at; at += strspn(at, " \t")) {
        int word = (int)strcspn(at, " \t"), added;
        const char *blank = used ? " " : "";
        if (at[0] == '~' && at[1] == '/' && home)
            added = snprintf(out + used, size - used, "%s%s%.*s", blank, home, word - 1, at + 1);
        else if (at[0] != '/')
            added = snprintf(out + used, size - used, "%s%s/%.*s", blank, here, word, at);
        else
            added = snprintf(out + used, size - used, "%s%.*s", blank, word, at);
        used += (size_t)added;
        if (used >= size)
            return why_set(why, ERR_INVALID, "is longer than %zu bytes when its paths are written out from the root",
                           size - 1);
        at += word;
    }
    memset(paths, 0, size);
    memcpy(paths, out, used);
    return 0;
}

/* A path that is one word. */
static void finish_path(struct reading *reading, const char *name, char *path, size_t size)
{
    struct why why = {0};
    int line = profile_line(reading->profile, name);
    if (strpbrk(path, " \t"))
        complaints_add(reading->complaints, reading->file, line, "%s must have no blanks", name);
    else if (make_absolute(path, size, &why))
        complaints_add(reading->complaints, reading->file, line, "%s %s", name, why.text);
}

static void finish_paths(struct reading *reading)
{
    struct why why = {0};
    struct profile *profile = reading->profile;
    if (make_absolute(profile->data_paths, sizeof profile->data_paths, &why))
        complaints_add(reading->complaints, reading->file, profile_line(profile, "data.path"), "data.path %s", why.text);
    finish_path(reading, "model.path", profile->model_path, sizeof profile->model_path);
    finish_path(reading, "lora.path", profile->lora_path, sizeof profile->lora_path);
}

/* ssh = … says by itself what kind of host this is; a key file means what it meant where the profile was read. */
static void finish_host(struct reading *reading, struct profile_host *host)
{
    char name[PROFILE_NAME + 32];
    snprintf(name, sizeof name, "host.%s.kind", host->name);
    if (host->ssh[0] && !profile_line(reading->profile, name))
        host->kind = HOST_SSH;
    snprintf(name, sizeof name, "host.%s.identity", host->name);
    finish_path(reading, name, host->identity, sizeof host->identity);
}

int profile_read(const char *name, struct profile *profile, struct complaints *complaints, char *found, size_t found_size)
{
    struct why why = {0};
    char path[PATH_BYTES];
    int before = complaints->count;
    profile_defaults(profile);
    if (profile_find(name, path, sizeof path, &why)) {
        complaints_add(complaints, name, 0, "%s", why.text);
        return ERR_ABSENT;
    }
    if (found)
        snprintf(found, found_size, "%s", path);
    struct reading reading = {.profile = profile, .complaints = complaints, .file = path};
    struct ini_reader reader = {take_section, take_value, take_fault, &reading};
    int err = ini_read_file(path, &reader, &why);
    if (err) {
        complaints_add(complaints, path, 0, "%s", why.text);
        return err;
    }
    require_rows(&reading);
    if (!profile->name[0])
        name_after_file(profile, path);
    finish_paths(&reading);
    if (profile->host_count == 0)
        profile_add_host(profile, "local", NULL);
    for (int64_t i = 0; i < profile->host_count; i++)
        finish_host(&reading, &profile->hosts[i]);
    return complaints->count == before ? 0 : ERR_INVALID;
}
