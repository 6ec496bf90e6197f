#include "console/shelf.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/profile.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define SHELF_MOST 200

static char **add_matches(char **paths, size_t *count, char *pattern)
{
    glob_t found = {0};
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && *count < SHELF_MOST; i++) {
            const char *path = found.gl_pathv[i], *base = strrchr(path, '/');
            if (strcmp(base ? base + 1 : path, "screen.ini") == 0)
                continue; /* the screen's own preferences */
            paths = mem_grow(paths, *count + 1, sizeof *paths);
            paths[(*count)++] = mem_text(path);
        }
    globfree(&found);
    mem_free(pattern);
    return paths;
}

char **shelf_list(size_t *count)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char program[512];
    char **paths = NULL;
    *count = 0;
    paths = add_matches(paths, count, mem_text("./*.ini"));
    paths = add_matches(paths, count, config && *config ? mem_format("%s/kedge/*.ini", config)
                                                        : mem_format("%s/.config/kedge/*.ini", home ? home : ""));
    if (file_program_folder(program, sizeof program, NULL) == 0)
        paths = add_matches(paths, count, mem_format("%s/../share/kedge/profiles/*.ini", program));
    return add_matches(paths, count, mem_text("profiles/*.ini"));
}

int shelf_open(struct form *form, const char *path, char **complaints, struct why *why)
{
    struct profile *profile = mem_new(sizeof *profile);
    struct complaints found;
    complaints_init(&found);
    int err = profile_read(path, profile, &found, NULL, 0);
    *complaints = mem_format("%.*s", (int)buf_used(&found.lines), found.count ? (const char *)buf_peek(&found.lines) : "");
    complaints_clear(&found);
    if (err == 0 || err == ERR_INVALID)
        form_open(form, path, profile);
    else
        why_set(why, err, "%s cannot be read: %s", path, *complaints);
    mem_free(profile);
    return err;
}

int shelf_write(struct form *form, struct why *why)
{
    for (size_t i = 0; i < form->count; i++) {
        int err = form_is_changed(form, i) ? profile_write_value(form->path, form->rows[i].name, form->rows[i].value, why) : 0;
        if (err)
            return err;
    }
    form_written(form);
    return 0;
}
