#include "console/keys.h"

#include <ctype.h>
#include <string.h>

#define ONLY(panel) ON(PANEL_##panel)

static const struct key rows[] = {
    {ACT_UP, ON_ANY, {PRESS_UP, 'k'}, "Up, k", "the row above", NULL, false},
    {ACT_DOWN, ON_ANY, {PRESS_DOWN, 'j'}, "Down, j", "the row below", NULL, false},
    {ACT_PAGE_UP, ON_ANY, {PRESS_PAGE_UP, PRESS_CONTROL('u')}, "PgUp, Ctrl-U", "a page up", NULL, false},
    {ACT_PAGE_DOWN, ON_ANY, {PRESS_PAGE_DOWN, PRESS_CONTROL('d')}, "PgDn, Ctrl-D", "a page down", NULL, false},
    {ACT_FIRST, ON_ANY, {PRESS_HOME, 'g'}, "Home, g", "the first row", NULL, false},
    {ACT_LAST, ON_ANY, {PRESS_END, 'G'}, "End, G", "the last row", NULL, false},
    {ACT_LEFT, ONLY(RUN), {PRESS_LEFT, 'h'}, "Left, h", "stages further left; frozen: a step back, on all hosts", NULL, false},
    {ACT_RIGHT, ONLY(RUN), {PRESS_RIGHT, 'l'}, "Right, l", "stages further right; frozen: a step on", NULL, false},
    {ACT_LEFT, ONLY(ANCHOR), {PRESS_LEFT, 'h'}, "Left, h", "the spectrum of the layer before", NULL, false},
    {ACT_RIGHT, ONLY(ANCHOR), {PRESS_RIGHT, 'l'}, "Right, l", "the spectrum of the next layer", NULL, false},
    {ACT_FREEZE, ONLY(RUN), {' '}, "Space", "freeze at this step and show where its time went; again: go on", "Space freeze", false},
    {ACT_OPEN, ONLY(RUNS), {PRESS_ENTER}, "Enter", "open the run, or the record of one that is over", "Enter open", false},
    {ACT_OPEN, ONLY(HOSTS), {PRESS_ENTER}, "Enter", "the log alone, with a filter of its own (/ and !); Esc or Enter goes back", NULL, false},
    {ACT_OPEN, ONLY(KNOBS), {PRESS_ENTER}, "Enter", "type a value; with a value drafted: propose it to the run", "Enter type/propose", true},
    {ACT_OPEN, ONLY(PROFILES), {PRESS_ENTER}, "Enter", "open the profile; in it: edit the setting", "Enter edit", false},
    {ACT_SORT, ONLY(LINKS) | ONLY(HOSTS), {'s', '>'}, "s, >", "sort by the next column", "s sort", false},
    {ACT_SORT_BACK, ONLY(LINKS) | ONLY(HOSTS), {'<'}, "<", "sort by the column before", NULL, false},
    {ACT_REVERSE, ONLY(LINKS) | ONLY(HOSTS), {'r'}, "r", "sort the other way round", NULL, false},
    {ACT_FILTER, ON_FILTER, {'/'}, "/", "show only rows that match a regular expression", "/ filter", false},
    {ACT_NOT, ON_FILTER, {'!'}, "!", "show the rows that do not match", NULL, false},
    {ACT_NEXT, ONLY(EVENTS), {'n'}, "n", "the next warning or alert", NULL, false},
    {ACT_PREVIOUS, ONLY(EVENTS), {'N'}, "N", "the warning or alert before", NULL, false},
    {ACT_LEVEL, ONLY(EVENTS), {'v'}, "v", "all events, warnings and alerts, or alerts only", "v level", false},
    {ACT_FOLD, ONLY(EVENTS), {'z'}, "z", "fold repeated events into one row, or not", NULL, false},
    {ACT_FOLLOW, ONLY(EVENTS), {'F'}, "F", "follow the newest event; moving up ends it", "F follow", false},
    {ACT_WRAP, ONLY(HOSTS), {'w'}, "w", "wrap long lines of the log, or cut them", NULL, false},
    {ACT_PAGER, ONLY(HOSTS) | ONLY(EVENTS), {'o'}, "o", "open the log, or the events, in $PAGER", "o pager", false},
    {ACT_RESTART, ONLY(HOSTS), {'R'}, "R", "restart what runs on this host, after asking", "R restart", true},
    {ACT_DRAIN, ONLY(HOSTS), {'D'}, "D", "drain this host: what runs there ends, the others go on; after asking", "D drain", true},
    {ACT_REPLACE, ONLY(HOSTS), {'M'}, "M", "move what runs on this host to a spare one, after asking", "M move", true},
    {ACT_SAVE, ONLY(EVENTS), {'s'}, "s", "save the events that are shown into a file", "s save", false},
    {ACT_MORE, ONLY(KNOBS), {'+', '='}, "+", "draft a greater value", "+/- draft", true},
    {ACT_LESS, ONLY(KNOBS), {'-'}, "-", "draft a smaller value", NULL, true},
    {ACT_UNDO, ONLY(KNOBS), {'u'}, "u", "draft the value before the newest change; Enter proposes it", "u undo", true},
    {ACT_NEW, ONLY(PROFILES), {'n'}, "n", "a new profile from the template", "n new", true},
    {ACT_CHECK, ONLY(PROFILES), {'c'}, "c", "check the profile: all complaints at once", "c check", false},
    {ACT_PLAN, ONLY(PROFILES), {'p'}, "p", "the plan of the profile: what would run where, and what it costs", "p plan", false},
    {ACT_WRITE, ONLY(PROFILES), {'W'}, "W", "show what was changed and, after asking, write it; comments stay", "W write", true},
    {ACT_LAUNCH, ONLY(PROFILES), {'L'}, "L", "launch a run of the profile, after asking", "L launch", true},
    {ACT_PAUSE, ON_RUN, {'P'}, "P", "pause the run, or resume it, after asking", "P pause", true},
    {ACT_CHECKPOINT, ON_RUN, {'C'}, "C", "write the weights at the next step, after asking", NULL, true},
    {ACT_STOP, ON_RUN, {'S'}, "S", "stop the run when its step is done, after asking", "S stop", true},
    {ACT_KILL, ON_RUN, {'K'}, "K", "kill the run now; its name must be typed", NULL, true},
    {ACT_RUNS, ON_ANY, {'0'}, "0", "the list of runs", NULL, false},
    {ACT_PANEL_RUN, ON_ANY, {'1'}, "1", "Run: topology, links, loss, what is waited for", NULL, false},
    {ACT_PANEL_LINKS, ON_ANY, {'2'}, "2", "Links: every road and lane, and its history", NULL, false},
    {ACT_PANEL_ANCHOR, ON_ANY, {'3'}, "3", "Anchor: how fresh its gradients are", NULL, false},
    {ACT_PANEL_HOSTS, ON_ANY, {'4'}, "4", "Hosts: how they are, their processes and logs", NULL, false},
    {ACT_PANEL_KNOBS, ON_ANY, {'5'}, "5", "Knobs: live settings and their ledger", NULL, false},
    {ACT_PANEL_EVENTS, ON_ANY, {'6'}, "6", "Events: what happened", NULL, false},
    {ACT_PANEL_PROFILES, ON_ANY, {'7'}, "7", "Profiles: edit, check, plan, launch", NULL, false},
    {ACT_NEXT_PANEL, ON_ANY, {PRESS_TAB}, "Tab", "the next view", "Tab view", false},
    {ACT_PREVIOUS_PANEL, ON_ANY, {PRESS_BACK_TAB}, "Shift-Tab", "the view before", NULL, false},
    {ACT_COMMAND, ON_ANY, {':'}, ":", "a command: any view's name, set KEY=VALUE, pause, resume, checkpoint, restart HOST, drain HOST, replace HOST BY, stop, quit", NULL, false},
    {ACT_COPY, ON_ANY, {'y'}, "y", "copy the row to the terminal's clipboard (OSC 52)", NULL, false},
    {ACT_HELP, ON_ANY, {'?', PRESS_F1}, "?, F1", "the keys of this view", "? help", false},
    {ACT_BACK, ON_ANY, {PRESS_ESCAPE}, "Esc", "back: close, drop a draft, clear a filter", NULL, false},
    {ACT_REPAINT, ON_ANY, {PRESS_CONTROL('l')}, "Ctrl-L", "draw everything anew", NULL, false},
    {ACT_SUSPEND, ON_ANY, {PRESS_CONTROL('z')}, "Ctrl-Z", "suspend this console; fg comes back", NULL, false},
    {ACT_MOUSE, ON_ANY, {'m'}, "m", "the mouse: clicks select, the wheel scrolls; again: it is the terminal's own, as at first", NULL, false},
    {ACT_QUIT, ON_ANY, {'q', PRESS_CONTROL('c')}, "q, Ctrl-C", "leave; a run goes on without a console", "q leave", false},
};
#define ROWS (sizeof rows / sizeof *rows)

static const struct { const char *name; char digit; } panels[PANEL_COUNT] = {
    [PANEL_RUNS] = {"Runs", '0'},   [PANEL_RUN] = {"Run", '1'},     [PANEL_LINKS] = {"Links", '2'},
    [PANEL_ANCHOR] = {"Anchor", '3'}, [PANEL_HOSTS] = {"Hosts", '4'}, [PANEL_KNOBS] = {"Knobs", '5'},
    [PANEL_EVENTS] = {"Events", '6'}, [PANEL_PROFILES] = {"Profiles", '7'},
};

const struct key *keys_all(size_t *count)
{
    *count = ROWS;
    return rows;
}

const struct key *keys_find(enum panel panel, uint32_t press)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (!(rows[i].panels & ON(panel)))
            continue;
        for (size_t j = 0; j < sizeof rows[i].presses / sizeof *rows[i].presses && rows[i].presses[j]; j++)
            if (rows[i].presses[j] == press)
                return &rows[i];
    }
    return NULL;
}

const char *keys_panel_name(enum panel panel)
{
    return panels[panel].name;
}

char keys_panel_digit(enum panel panel)
{
    return panels[panel].digit;
}

bool keys_is_everywhere(const struct key *key)
{
    return key->panels == ON_ANY;
}

static void print_row(const struct key *key, FILE *out)
{
    fprintf(out, ".It Ic %s%s\n%c%s.\n", isalnum((unsigned char)key->shown[0]) ? "" : "\\&", key->shown,
            key->help[0] >= 'a' && key->help[0] <= 'z' ? key->help[0] - 'a' + 'A' : key->help[0], key->help + 1);
}

void keys_print_mdoc(FILE *out)
{
    fputs(".Bl -tag -width Ctrl-X\n", out);
    for (size_t i = 0; i < ROWS; i++)
        if (keys_is_everywhere(&rows[i]))
            print_row(&rows[i], out);
    fputs(".El\n", out);
    for (int panel = 0; panel < PANEL_COUNT; panel++) {
        bool any = false;
        for (size_t i = 0; i < ROWS; i++) {
            if (keys_is_everywhere(&rows[i]) || !(rows[i].panels & ON(panel)))
                continue;
            if (!any)
                fprintf(out, ".Ss %s\n.Bl -tag -width Ctrl-X\n", panels[panel].name);
            any = true;
            print_row(&rows[i], out);
        }
        if (any)
            fputs(".El\n", out);
    }
}
