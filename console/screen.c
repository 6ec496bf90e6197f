#include "console/screen.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "console/client.h"
#include "console/command.h"
#include "console/desk.h"
#include "console/health.h"
#include "console/draft.h"
#include "console/pager.h"
#include "console/place.h"
#include "console/preferences.h"
#include "console/recall.h"
#include "console/show.h"
#include "console/task.h"
#include "console/terminal.h"
#include "console/view.h"
#include "console/visit.h"
#include "console/watch.h"
#include "console/waterfall.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/runs.h"

#define DRAW_NS (100 * CLOCK_MS)   /* between two drawings of what came by itself */
#define RESIZE_NS (50 * CLOCK_MS)  /* a storm of sizes is one size */
#define TICK_NS CLOCK_SECOND

struct screen {
    struct loop *loop;
    struct terminal *terminal; /* NULL: --once */
    struct surface surface;
    struct view view;
    struct client *client;
    struct health *health; /* of the run's hosts; NULL = not ours to ask */
    struct recall *recall;
    struct place place;
    struct loop_watch *keys;
    struct loop_timer *draw, *tick;
    uint64_t drawn_ns;
    bool once, leaving, hung_up, draw_armed, has_keys;
    struct task *task;        /* a command at work in the view's window */
    char launched[PROMPT_TEXT]; /* the profile that it launches; "" = it does something else */
};

/* Set by signals, looked at after every turn. */
static bool resized, stopped;

static void on_resize(int number, void *arg)
{
    (void)number, (void)arg;
    resized = true;
}

static void on_stop(int number, void *arg)
{
    (void)number, (void)arg;
    stopped = true;
}

/* ---- drawing ---- */

static void draw(struct screen *screen)
{
    uint64_t now_ns = clock_now_ns();
    screen->draw_armed = false;
    screen->drawn_ns = now_ns;
    view_draw(&screen->view, &screen->surface, now_ns, clock_wall_ms());
    if (screen->terminal)
        terminal_draw(screen->terminal, &screen->surface);
}

static void on_draw(void *arg)
{
    draw(arg);
}

static void want_draw(struct screen *screen)
{
    uint64_t passed_ns = clock_now_ns() - screen->drawn_ns;
    if (screen->draw_armed || !screen->draw)
        return;
    screen->draw_armed = true;
    loop_timer_set(screen->draw, passed_ns >= DRAW_NS ? 0 : DRAW_NS - passed_ns);
}

static void take_new_size(struct screen *screen)
{
    int rows, columns;
    terminal_size(screen->terminal, &rows, &columns);
    if (rows == screen->surface.rows && columns == screen->surface.columns)
        return;
    bool ascii = screen->surface.ascii;
    surface_clear(&screen->surface);
    surface_init(&screen->surface, rows, columns, ascii);
    draw(screen);
}

/* ---- the road ---- */

static void on_line(const char *line, void *arg)
{
    struct screen *screen = arg;
    if (line)
        history_recall(&screen->view.history, &screen->view.state, line);
    else
        want_draw(screen);
}

static void begin_recall(struct screen *screen)
{
    recall_free(screen->recall);
    history_forget_steps(&screen->view.history);
    screen->recall = recall_new(screen->loop, screen->place.folder, on_line, screen, &(struct why){0});
}

static void on_changed(struct client *client, enum wire_type type, const void *row, void *arg)
{
    struct screen *screen = arg;
    (void)client;
    if (view_apply(&screen->view, type, row, clock_now_ns()))
        want_draw(screen);
    if (type == WIRE_STATE_END) /* what the journal says of roads and processes finds them now */
        begin_recall(screen);
}

static void on_down(struct client *client, int err, const char *reason, void *arg)
{
    struct screen *screen = arg;
    (void)client, (void)err;
    view_down(&screen->view, reason, clock_now_ns());
    want_draw(screen);
}

static int open_client(struct screen *screen, struct why *why)
{
    static const struct client_callbacks callbacks = {.changed = on_changed, .down = on_down};
    const struct state *state = &screen->view.state;
    uint64_t from_event = state->event_count ? state->events[state->event_count - 1].id : 0;
    screen->client = place_open(screen->loop, &screen->place, true, from_event, &callbacks, screen, why);
    if (!screen->client)
        return why->err;
    screen->view.road.live = client_is_live(screen->client);
    health_tell(screen->health, screen->client);
    return 0;
}

static int open_run(struct screen *screen, const char *run, struct why *why)
{
    struct place place;
    int err = place_find(screen->loop, run, &place, why); /* HOST:RUN asks a host, and turns the loop meanwhile */
    if (err)
        return err;
    health_free(screen->health);
    client_free(screen->client);
    screen->client = NULL;
    recall_free(screen->recall);
    screen->recall = NULL;
    screen->place = place;
    screen->health = !screen->once && !screen->view.read_only ? health_new(screen->loop, &place) : NULL;
    view_open(&screen->view, run, true, place.folder[0] != '\0');
    return open_client(screen, why);
}

/* A road that was lost while the run goes on is opened again, once a second. */
static void reopen(struct screen *screen)
{
    struct view *view = &screen->view;
    bool dialling = screen->client && !client_is_down(screen->client);
    if (!view->run[0] || !view->road.down || dialling || state_is_over(&view->state) ||
        (!screen->place.far && !runs_answers(screen->place.folder)))
        return;
    health_tell(screen->health, NULL);
    client_free(screen->client);
    screen->client = NULL;
    open_client(screen, &(struct why){0});
}

/* ---- wishes ---- */

static void list_runs(struct screen *screen)
{
    struct runs_entry *entries = NULL;
    size_t count = 0;
    struct view *view = &screen->view;
    if (runs_list(&entries, &count, NULL) != 0)
        return;
    count = count > VIEW_RUNS ? VIEW_RUNS : count;
    mem_free(view->runs);
    view->runs = mem_array(count + 1, sizeof *view->runs);
    view->run_count = count;
    for (size_t i = 0; i < count; i++) {
        char folder[RUNS_PATH];
        snprintf(view->runs[i].name, sizeof view->runs[i].name, "%s", entries[i].name);
        view->runs[i].changed_wall_ms = entries[i].changed_wall_ms;
        view->runs[i].running = runs_folder(entries[i].name, folder, sizeof folder, NULL) == 0 && runs_answers(folder);
    }
    mem_free(entries);
}

static void send_order(struct screen *screen, const struct wish *wish)
{
    struct why why = {0};
    if (!screen->client || client_is_down(screen->client))
        view_say(&screen->view, INK_BAD, "no road to the scheduler now: nothing was sent");
    else if (client_send_order(screen->client, wish->order, wish->name, wish->value, &why) != 0)
        view_say(&screen->view, INK_BAD, "%s", why.text);
    else
        view_say(&screen->view, INK_PLAIN, "sent; waiting for the scheduler's word");
}

static void suspend(struct screen *screen)
{
    terminal_leave(screen->terminal);
    struct sigaction usual = {.sa_handler = SIG_DFL}, ours;
    sigaction(SIGTSTP, &usual, &ours);
    raise(SIGTSTP); /* until fg */
    sigaction(SIGTSTP, &ours, NULL);
    terminal_enter(screen->terminal);
    take_new_size(screen);
    draw(screen);
}

static void page(struct screen *screen, const struct wish *wish)
{
    struct why why = {0};
    terminal_leave(screen->terminal);
    int err = pager_run(screen->loop, screen->place.folder, wish->name, wish->text, &why);
    terminal_enter(screen->terminal);
    if (err)
        view_say(&screen->view, INK_BAD, "%s", why.text);
    take_new_size(screen);
    draw(screen);
}

/* ---- commands at work ---- */

static void on_said(const char *bytes, size_t count, bool hidden, void *arg)
{
    struct screen *screen = arg;
    window_take(&screen->view.window, bytes, count, hidden);
    want_draw(screen);
}

static void open_launched(struct screen *screen)
{
    struct profile *profile = mem_new(sizeof *profile);
    struct why why = {0};
    if (draft_read_quietly(screen->launched, profile, &why) != 0 || open_run(screen, profile->name, &why) != 0)
        view_say(&screen->view, INK_BAD, "%s", why.text);
    else
        window_close(&screen->view.window);
    mem_free(profile);
}

static void on_over(int exit_code, void *arg)
{
    struct screen *screen = arg;
    task_free(screen->task);
    screen->task = NULL;
    window_over(&screen->view.window);
    if (screen->launched[0] && exit_code == EXIT_DONE)
        open_launched(screen);
    draw(screen);
}

static void begin_task(struct screen *screen, const struct wish *wish)
{
    static const struct task_callbacks callbacks = {.said = on_said, .over = on_over};
    const char *verb = wish->kind == WISH_CHECK ? "check" : wish->kind == WISH_PLAN ? "plan" : "run";
    const char *base = strrchr(wish->name, '/');
    const char *const words[] = {verb, wish->name, wish->kind == WISH_LAUNCH ? "--detach" : NULL, NULL};
    struct why why = {0};
    char title[80];
    if (screen->task)
        return; /* its window has the keys */
    snprintf(title, sizeof title, "kedge %s %.60s", verb, base ? base + 1 : wish->name);
    window_open_running(&screen->view.window, title, wish->kind == WISH_LAUNCH);
    snprintf(screen->launched, sizeof screen->launched, "%s", wish->kind == WISH_LAUNCH ? wish->name : "");
    screen->task = task_new(screen->loop, words, screen->surface.columns - 4, &callbacks, screen, &why);
    if (!screen->task)
        window_open(&screen->view.window, title, why.text);
}

static void grant(struct screen *screen, struct wish *wish)
{
    struct why why = {0};
    switch (wish->kind) {
    case WISH_ORDER:
        send_order(screen, wish);
        break;
    case WISH_LEAVE:
        screen->leaving = true;
        break;
    case WISH_SUSPEND:
        suspend(screen);
        break;
    case WISH_REPAINT:
        terminal_repaint(screen->terminal);
        break;
    case WISH_OPEN:
        if (open_run(screen, wish->name, &why) != 0)
            view_say(&screen->view, INK_BAD, "%s", why.text);
        break;
    case WISH_RECALL:
        begin_recall(screen);
        break;
    case WISH_MOUSE:
        terminal_mouse(screen->terminal, screen->view.mouse);
        break;
    case WISH_COPY:
        terminal_copy(screen->terminal, wish->text);
        break;
    case WISH_PAGER:
        page(screen, wish);
        break;
    case WISH_RUNS:
        list_runs(screen);
        break;
    case WISH_CHECK:
    case WISH_PLAN:
    case WISH_LAUNCH:
        begin_task(screen, wish);
        break;
    case WISH_ANSWER:
        if (screen->task)
            task_answer(screen->task, wish->text);
        break;
    case WISH_INTERRUPT:
        if (screen->task)
            task_interrupt(screen->task);
        break;
    default:
        desk_grant(&screen->view, wish);
    }
    if (wish->text)
        explicit_bzero(wish->text, strlen(wish->text)); /* an answer may be a password */
    mem_free(wish->text);
}

static void read_log(struct screen *screen)
{
    struct view *view = &screen->view;
    if (view->panel == PANEL_HOSTS && view->has_folder && view->log_name[0])
        pager_tail(screen->place.folder, view->log_name, view->log, sizeof view->log);
}

static bool take_press(struct screen *screen, uint32_t press)
{
    int row, column;
    if (press < PRESS_CLICK || press > PRESS_WHEEL_DOWN)
        return view_press(&screen->view, press, clock_now_ns());
    terminal_where(screen->terminal, &row, &column);
    return view_mouse(&screen->view, press, row, column, &screen->surface, clock_now_ns());
}

/* Keys are taken between two turns of the loop: what they wish for may turn it itself (a pager), which no callback may. */
static void on_keys(int fd, bool readable, bool writable, void *arg)
{
    struct screen *screen = arg;
    (void)fd, (void)readable, (void)writable;
    screen->has_keys = true;
    loop_watch_want(screen->keys, false, false);
}

/* All keys that are there, then what they wish for, then one drawing: never later than the key. */
static void take_keys(struct screen *screen)
{
    struct wish wish;
    bool changed = false;
    screen->has_keys = false;
    for (;;) {
        uint32_t press = terminal_press(screen->terminal, &screen->hung_up);
        if (press == PRESS_NONE)
            break;
        changed |= take_press(screen, press);
        while (view_take(&screen->view, &wish))
            grant(screen, &wish);
    }
    loop_watch_want(screen->keys, true, false);
    if (!changed || screen->leaving)
        return;
    draw(screen);
    if (screen->view.panel == PANEL_HOSTS && !screen->view.log[0]) {
        read_log(screen);
        draw(screen);
    }
}

/* Ages grow and logs too, though no row comes. */
static void on_tick(void *arg)
{
    struct screen *screen = arg;
    loop_timer_set(screen->tick, TICK_NS);
    reopen(screen);
    if (screen->view.panel == PANEL_RUNS)
        list_runs(screen);
    if (screen->recall && recall_is_over(screen->recall)) {
        recall_free(screen->recall);
        screen->recall = NULL;
        waterfall_recalled(&screen->view);
    }
    read_log(screen);
    draw(screen);
}

/* ---- life ---- */

static int take_signals(struct loop *loop, struct why *why)
{
    static const struct { int number; loop_signal_cb *cb; } signals[] = {
        {SIGINT, watch_interrupt}, {SIGTERM, watch_interrupt}, {SIGHUP, watch_interrupt}, {SIGWINCH, on_resize}, {SIGTSTP, on_stop},
    };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (loop_signal(loop, signals[i].number, signals[i].cb, NULL, why) != 0)
            return why->err;
    return 0;
}

static void end(struct screen *screen)
{
    terminal_close(screen->terminal);
    loop_watch_free(screen->keys);
    loop_timer_free(screen->draw);
    loop_timer_free(screen->tick);
    task_free(screen->task);
    recall_free(screen->recall);
    health_free(screen->health);
    client_free(screen->client);
    surface_clear(&screen->surface);
}

static void turn(struct screen *screen)
{
    while (!screen->leaving && !screen->hung_up && !watch_is_interrupted()) {
        loop_run_once(screen->loop, TICK_NS);
        if (screen->has_keys)
            take_keys(screen);
        if (resized) {
            struct timespec rest = {.tv_nsec = (long)RESIZE_NS};
            resized = false;
            nanosleep(&rest, NULL);
            take_new_size(screen);
        }
        if (stopped) {
            stopped = false;
            suspend(screen);
        }
    }
}

/* What stays in the scrollback: what still goes on, and how to come back. */
static void say_left(const struct view *view)
{
    const struct wire_run_state *run = &view->state.run;
    if (!view->run[0] || !view->state.has_run)
        return;
    if (state_is_over(&view->state) || !view->road.live)
        printf("%s: %s at step %" PRIu64 " of %" PRIu64 "\n", view->run, wire_phase_name(run->phase), run->step, run->steps);
    else
        printf("left: %s goes on (step %" PRIu64 " of %" PRIu64 "); 'kedge attach %s' comes back, 'kedge stop %s' ends it\n", view->run,
               run->step, run->steps, view->run, view->run);
}

/* The second word of `kedge attach`; PANEL_COUNT when there is no such view. */
static enum panel panel_of(const struct args *args, struct why *why)
{
    if (args->word_count < 2)
        return PANEL_RUN;
    for (int panel = PANEL_RUNS; panel < PANEL_COUNT; panel++)
        if (strcasecmp(args->words[1], keys_panel_name((enum panel)panel)) == 0)
            return (enum panel)panel;
    why_set(why, ERR_INVALID, "there is no view '%.40s': say runs, run, links, anchor, hosts, knobs, events or profiles", args->words[1]);
    return PANEL_COUNT;
}

/* What the first view shows that comes from no road. */
static void begin_view(struct screen *screen, enum panel panel)
{
    screen->view.panel = panel;
    list_runs(screen);
    if (panel == PANEL_PROFILES)
        desk_grant(&screen->view, &(struct wish){.kind = WISH_PROFILES});
}

bool screen_is_wanted(const struct args *args, const struct style *style)
{
    return !style->plain && !(args->options & (OPTION_JSON | OPTION_HEADLESS)) && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

int screen_run(struct loop *loop, const char *run, const struct args *args, const struct style *style)
{
    struct screen *screen = mem_new(sizeof *screen);
    struct why why = {0};
    int code = -1, rows, columns;
    screen->loop = loop;
    view_init(&screen->view, style, args->options & OPTION_READ_ONLY);
    view_set_clock(&screen->view, clock_now_ns(), clock_wall_ms());
    enum panel panel = panel_of(args, &why);
    int err = panel == PANEL_COUNT ? why.err : take_signals(loop, &why);
    if (!err && run[0])
        err = open_run(screen, run, &why);
    if (err) {
        code = visit_fail(&why);
        goto end_screen;
    }
    fflush(stdout);
    struct preferences preferences = preferences_read();
    if (terminal_open(&screen->terminal, style->color, preferences.theme, &why) != 0) {
        visit_fail(&why);
        goto end_screen;
    }
    screen->view.mouse = preferences.mouse;
    terminal_mouse(screen->terminal, preferences.mouse);
    begin_view(screen, run[0] ? panel : PANEL_RUNS);
    if (preferences.fault.err)
        view_say(&screen->view, INK_WARN, "%s", preferences.fault.text);
    terminal_size(screen->terminal, &rows, &columns);
    surface_init(&screen->surface, rows, columns, style->ascii);
    screen->keys = loop_watch_new(loop, STDIN_FILENO, on_keys, screen);
    loop_watch_want(screen->keys, true, false);
    screen->draw = loop_timer_new(loop, on_draw, screen);
    screen->tick = loop_timer_new(loop, on_tick, screen);
    loop_timer_set(screen->tick, TICK_NS);
    draw(screen);
    turn(screen);
    code = watch_is_interrupted() || screen->hung_up ? EXIT_INTERRUPTED : EXIT_DONE;
end_screen:
    end(screen);
    if (code == EXIT_DONE)
        say_left(&screen->view); /* whatever became of the run: leaving is no failure */
    view_clear(&screen->view);
    mem_free(screen);
    return code;
}

int screen_browse(const struct args *args, const struct style *style)
{
    struct why why = {0};
    struct loop *loop = loop_new(&why);
    if (!loop)
        return visit_fail(&why);
    int code = screen_run(loop, "", args, style);
    loop_free(loop);
    return code < 0 ? show_list(args, style) : code;
}

/* ---- once ---- */

static bool is_recalled(struct client *client, void *arg)
{
    struct screen *screen = arg;
    (void)client;
    return !screen->recall || recall_is_over(screen->recall);
}

static int number_from(const char *variable, int otherwise)
{
    uint64_t number;
    const char *text = getenv(variable);
    return text && text_to_u64(text, &number) == 0 && number >= 1 && number <= SURFACE_ROWS ? (int)number : otherwise;
}

int screen_once(const char *run, const struct args *args, const struct style *style)
{
    struct screen *screen = mem_new(sizeof *screen);
    struct why why = {0};
    int rows = number_from("LINES", 24), columns = number_from("COLUMNS", 80), code = EXIT_DONE;
    view_init(&screen->view, style, args->options & OPTION_READ_ONLY);
    view_set_clock(&screen->view, clock_now_ns(), clock_wall_ms());
    enum panel panel = panel_of(args, &why);
    screen->once = true;
    screen->loop = panel == PANEL_COUNT ? NULL : loop_new(&why);
    if (!screen->loop || open_run(screen, run, &why) != 0 || client_wait_complete(screen->client, &why) != 0) {
        code = visit_fail(&why);
        goto end_screen;
    }
    client_wait(screen->client, is_recalled, screen, 10 * CLOCK_SECOND, &(struct why){0}); /* what is not there by then is not drawn */
    begin_view(screen, panel);
    surface_init(&screen->surface, rows, columns, style->ascii);
    draw(screen);
    read_log(screen);
    draw(screen);
    surface_write(&screen->surface, stdout);
end_screen:
    end(screen);
    view_clear(&screen->view);
    if (screen->loop)
        loop_free(screen->loop);
    mem_free(screen);
    return code;
}
