/*
 * The command prompt (':'): the words that the command line has, where they make sense on a screen.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "console/knob.h"
#include "console/view.h"
#include "console/words.h"
#include "ssh/base/text.h"

struct word {
    const char *name;
    enum act act;
};

static const struct word words[] = {
    {"pause", ACT_PAUSE}, {"resume", ACT_PAUSE}, {"checkpoint", ACT_CHECKPOINT}, {"stop", ACT_STOP}, {"kill", ACT_KILL},
    {"help", ACT_HELP}, {"quit", ACT_QUIT},
    {"runs", ACT_RUNS}, {"run", ACT_PANEL_RUN}, {"links", ACT_PANEL_LINKS}, {"anchor", ACT_PANEL_ANCHOR},
    {"hosts", ACT_PANEL_HOSTS}, {"knobs", ACT_PANEL_KNOBS}, {"events", ACT_PANEL_EVENTS}, {"profiles", ACT_PANEL_PROFILES},
    {"set", ACT_NONE}, {"open", ACT_NONE}, {"restart", ACT_NONE}, {"drain", ACT_NONE}, {"replace", ACT_NONE},
};
#define WORDS_KNOWN ((int)(sizeof words / sizeof *words))

/* The commands, then KEY= of live settings, then hosts, then the runs. */
const char *view_complete(int index, void *arg)
{
    static char key[WIRE_NAME + 2];
    const struct view *view = arg;
    if (index < WORDS_KNOWN)
        return words[index].name;
    index -= WORDS_KNOWN;
    if (index < (int)view->state.knob_count) {
        snprintf(key, sizeof key, "%s=", view->state.knobs[index].name);
        return key;
    }
    index -= (int)view->state.knob_count;
    if (index < (int)view->state.host_count)
        return view->state.hosts[index].row.host;
    index -= (int)view->state.host_count;
    return index < (int)view->run_count ? view->runs[index].name : NULL;
}

/* Every act has a key: what is typed goes the way of the key. */
static void press_key_of(struct view *view, enum act act)
{
    size_t count;
    const struct key *keys = keys_all(&count);
    for (size_t i = 0; i < count; i++) {
        if (keys[i].act != act)
            continue;
        if (!(keys[i].panels & ON(view->panel)))
            view_say(view, INK_WARN, "no run is open: choose one with Enter");
        else
            view_press(view, keys[i].presses[0], view->now_ns);
        return;
    }
}

static void set(struct view *view, const char *change)
{
    const char *equals = strchr(change, '=');
    char name[WIRE_NAME];
    struct why why = {0};
    if (!equals || equals == change || (size_t)(equals - change) >= sizeof name || strlen(equals + 1) >= sizeof(((struct wire_order *)0)->value)) {
        view_say(view, INK_WARN, "write set KEY=VALUE, for example set mask.rate=0.9");
        return;
    }
    snprintf(name, sizeof name, "%.*s", (int)(equals - change), change);
    const struct field *field = field_find(name);
    if (view->read_only)
        view_say(view, INK_WARN, "this console only looks (--read-only)");
    else if (!view->road.live)
        view_say(view, INK_WARN, "the run is not going: nothing can be changed");
    else if (!field || !field->live)
        view_say(view, INK_BAD, "%s is no setting that can be changed while a run goes on", name);
    else if (!knob_check(field, equals + 1, &why))
        view_say(view, INK_BAD, "%s", why.text);
    else {
        struct wish *wish = view_wish(view, WISH_ORDER);
        wish->order = ORDER_SET;
        snprintf(wish->name, sizeof wish->name, "%s", name);
        snprintf(wish->value, sizeof wish->value, "%s", equals + 1);
    }
}

static void open_run(struct view *view, const char *name)
{
    struct wish *wish = view_wish(view, WISH_OPEN);
    snprintf(wish->name, sizeof wish->name, "%s", name);
}

/* "drain HOST", "replace HOST BY" */
static void change_host(struct view *view, enum order_kind order, const char *rest)
{
    char host[WIRE_NAME] = "", by[WIRE_NAME] = "";
    int got = sscanf(rest, "%63s %63s", host, by), wanted = order == ORDER_REPLACE ? 2 : 1;
    if (got < wanted)
        view_say(view, INK_WARN, order == ORDER_REPLACE ? "write replace HOST BY, for example replace b c" : "name a host of this run");
    else if (view->read_only)
        view_say(view, INK_WARN, "this console only looks (--read-only)");
    else
        view_act_on_host(view, order, host, wanted == 2 ? by : "");
}

void view_command(struct view *view, const char *line)
{
    char verb[PROMPT_TEXT];
    const char *names[WORDS_KNOWN], *near;
    line += strspn(line, " ");
    size_t length = strcspn(line, " ");
    const char *rest = line + length + strspn(line + length, " ");
    snprintf(verb, sizeof verb, "%.*s", (int)length, line);
    if (!verb[0])
        return;
    if (strcasecmp(verb, "q") == 0)
        snprintf(verb, sizeof verb, "quit");
    for (int i = 0; i < WORDS_KNOWN; i++) {
        names[i] = words[i].name;
        if (strcasecmp(verb, words[i].name) != 0)
            continue;
        if (strcmp(words[i].name, "set") == 0)
            set(view, rest);
        else if (strcmp(words[i].name, "open") == 0 && *rest)
            open_run(view, rest);
        else if (strcmp(words[i].name, "restart") == 0)
            change_host(view, ORDER_RESTART, rest);
        else if (strcmp(words[i].name, "drain") == 0)
            change_host(view, ORDER_DRAIN, rest);
        else if (strcmp(words[i].name, "replace") == 0)
            change_host(view, ORDER_REPLACE, rest);
        else if (words[i].act)
            press_key_of(view, words[i].act);
        return;
    }
    near = text_nearest(verb, names, WORDS_KNOWN);
    view_say(view, INK_WARN, "there is no command '%.40s'%s%s%s", verb, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}
