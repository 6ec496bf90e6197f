#include "console/desk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "console/draft.h"
#include "console/shelf.h"
#include "ssh/base/mem.h"
#include "ssh/launch/runs.h"

static void list_profiles(struct view *view)
{
    for (size_t i = 0; i < view->profile_count; i++)
        mem_free(view->profiles[i]);
    mem_free(view->profiles);
    view->profiles = shelf_list(&view->profile_count);
    form_clear(&view->form);
}

static void read_profile(struct view *view, const char *path)
{
    struct why why = {0};
    char *complaints;
    int err = shelf_open(&view->form, path, &complaints, &why);
    view->form_place = (struct grid_place){0};
    if (err == ERR_INVALID)
        window_open(&view->window, "What is wrong with it now", complaints);
    else if (err)
        view_say(view, INK_BAD, "%s", why.text);
    mem_free(complaints);
}

static void write_profile(struct view *view)
{
    struct why why = {0};
    if (shelf_write(&view->form, &why) != 0)
        view_say(view, INK_BAD, "%s", why.text);
    else
        view_say(view, INK_GOOD, "%s is written; c checks it", view->form.path);
}

static void new_profile(struct view *view, const char *name)
{
    struct why why = {0};
    char path[RUNS_PATH];
    if (draft_make(name, "laptop", path, sizeof path, &why) != 0) {
        view_say(view, INK_BAD, "%s", why.text);
        return;
    }
    list_profiles(view);
    read_profile(view, path);
}

/* Into a file that was not there: nothing is overwritten. */
static void save(struct view *view, const char *path, const char *text)
{
    FILE *out = fopen(path, "wxe");
    if (!out) {
        view_say(view, INK_BAD, errno == EEXIST ? "%s is there already: choose another name" : "cannot write %s", path);
        return;
    }
    bool whole = fputs(text, out) >= 0;
    if (fclose(out) != 0 || !whole)
        view_say(view, INK_BAD, "%s: could not be written whole: %s", path, strerror(errno));
    else
        view_say(view, INK_GOOD, "saved into %s", path);
}

bool desk_grant(struct view *view, const struct wish *wish)
{
    switch (wish->kind) {
    case WISH_PROFILES:
        list_profiles(view);
        return true;
    case WISH_READ_PROFILE:
        read_profile(view, wish->name);
        return true;
    case WISH_WRITE_PROFILE:
        write_profile(view);
        return true;
    case WISH_SAVE:
        save(view, wish->name, wish->text);
        return true;
    case WISH_NEW_PROFILE:
        new_profile(view, wish->name);
        return true;
    default:
        return false;
    }
}
