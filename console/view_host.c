/*
 * What changes the hosts of a run: each asks first, the focus on Cancel, and says which processes end and which command does the same.
 */
#include <string.h>

#include "console/view.h"

static const struct { enum order_kind order; const char *verb, *title, *text; } questions[] = {
    {ORDER_RESTART, "restart", "Restart this host?",
     "Its replicas leave the run when a round has ended, with all their stages, begin again, copy what the others have in common and take "
     "part from a round on. The others go on meanwhile."},
    {ORDER_DRAIN, "drain", "Drain this host?",
     "Its replicas leave the run when a round has ended, with all their stages; the others go on without them. Only its agent stays there, "
     "and the host may be switched off."},
    {ORDER_REPLACE, "replace", "Replace this host?",
     "Its replicas leave the run when a round has ended, with all their stages, begin again on the other host, copy what the others have in "
     "common and take part from a round on. The others go on meanwhile."},
};

static bool has_process(const struct state *state, const char *host)
{
    for (size_t i = 0; i < state->process_count; i++)
        if (state->processes[i].row.role != ROLE_AGENT && strcmp(state->processes[i].row.host, host) == 0)
            return true;
    return false;
}

const char *view_idle_host(int index, void *arg)
{
    const struct view *view = arg;
    for (size_t i = 0; i < view->state.host_count; i++) {
        const char *host = view->state.hosts[i].row.host;
        if (!has_process(&view->state, host) && strcmp(host, view->moved_host) != 0 && index-- == 0)
            return host;
    }
    return NULL;
}

/* "r1s0, r1s1 and 3 more", "nothing": what is there. */
static void write_processes(const struct state *state, const char *host, char *out, size_t size)
{
    size_t used = 0;
    int more = 0;
    snprintf(out, size, "nothing");
    for (size_t i = 0; i < state->process_count; i++) {
        const struct wire_process_row *row = &state->processes[i].row;
        if (row->role == ROLE_AGENT || strcmp(row->host, host) != 0)
            continue;
        if (used + sizeof row->process + 24 < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", row->process);
        else
            more++;
    }
    if (more)
        snprintf(out + used, size - used, " and %d more", more);
}

static void ask_by(struct view *view, const char *host)
{
    char label[WIRE_NAME + 40];
    snprintf(view->moved_host, sizeof view->moved_host, "%s", host);
    const char *idle = view_idle_host(0, view);
    if (!idle) {
        view_say(view, INK_WARN, "no other host of this run is idle: one that is to wait is named in its profile with spare = yes");
        return;
    }
    snprintf(label, sizeof label, "replace %s by: ", host);
    view_prompt(view, VIEW_HOST, label, idle);
}

void view_act_on_host(struct view *view, enum order_kind order, const char *host, const char *by)
{
    size_t at = 0;
    char text[1200], processes[300], twin[160];
    while (questions[at].order != order)
        at++;
    if (!view->road.live || state_is_over(&view->state)) {
        view_say(view, INK_WARN, "the run is over: there is nothing to %s", questions[at].verb);
    } else if (view->road.down) {
        view_say(view, INK_WARN, "no road to the scheduler now: nothing can be changed");
    } else if (!state_find_host(&view->state, host)) {
        view_say(view, INK_WARN, "there is no host '%.60s' in this run", host);
    } else if (order == ORDER_REPLACE && !by[0]) {
        ask_by(view, host);
    } else {
        struct wish wish = {.kind = WISH_ORDER, .order = order};
        snprintf(wish.name, sizeof wish.name, "%s", host);
        snprintf(wish.value, sizeof wish.value, "%s", by);
        write_processes(&view->state, host, processes, sizeof processes);
        snprintf(text, sizeof text, "Host %s%s%s, on it: %s. %s", host, by[0] ? " by host " : "", by, processes, questions[at].text);
        snprintf(twin, sizeof twin, "kedge %s %s %s%s%s", questions[at].verb, view->run, host, by[0] ? " " : "", by);
        view_ask(view, questions[at].title, text, twin, &wish);
    }
}
