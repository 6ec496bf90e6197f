#include "console/window.h"

#include <string.h>

#include "console/grid.h"
#include "ssh/base/mem.h"

#define WORD_BYTES 80

/* ---- life ---- */

static void clear(struct window *window)
{
    for (size_t i = 0; i < window->count; i++)
        mem_free(window->lines[i]);
    mem_free(window->lines);
    explicit_bzero(&window->prompt, sizeof window->prompt);
    memset(window, 0, sizeof *window);
}

void window_close(struct window *window)
{
    clear(window);
}

void window_open(struct window *window, const char *title, const char *text)
{
    clear(window);
    window->open = true;
    snprintf(window->title, sizeof window->title, "%s", title);
    window_take(window, text, strlen(text), false);
    window_over(window);
}

void window_open_running(struct window *window, const char *title, bool by_subject)
{
    window_open(window, title, "");
    window->running = window->follow = true;
    window->by_subject = by_subject;
}

/* ---- what is said ---- */

/* "agent@a is ready", "a: uploads …": both are about a. "" when a line is about nobody. */
static void find_subject(const char *line, char subject[WORD_BYTES])
{
    bool complains = strncmp(line, "kedge: ", 7) == 0;
    if (strncmp(line, "agent@", 6) == 0)
        line += 6;
    size_t length = strcspn(line, " :");
    bool tells = strncmp(line + length, ": ", 2) == 0 || strncmp(line + length, " is ready", 9) == 0;
    snprintf(subject, WORD_BYTES, "%.*s", tells && !complains ? (int)length : 0, line);
}

static char **find_place(struct window *window, const char *line)
{
    char subject[WORD_BYTES], other[WORD_BYTES];
    find_subject(line, subject);
    for (size_t i = 0; window->by_subject && subject[0] && i < window->count; i++) {
        find_subject(window->lines[i], other);
        if (strcmp(subject, other) == 0)
            return &window->lines[i];
    }
    if (window->count == WINDOW_LINES) {
        mem_free(window->lines[0]);
        memmove(window->lines, window->lines + 1, (WINDOW_LINES - 1) * sizeof *window->lines);
        window->count--;
    }
    window->lines = mem_grow(window->lines, window->count + 1, sizeof *window->lines);
    window->lines[window->count] = NULL;
    return &window->lines[window->count++];
}

/* A question that stands last again after others spoke. */
static bool is_repeated(const struct window *window)
{
    for (size_t i = 0; window->by_subject && i < window->count; i++)
        if (strcmp(window->lines[i], window->begun) == 0)
            return true;
    return false;
}

/* A question that is answered has had its say: the rows of the hosts, and complaints, have the room again. */
static void drop_question(struct window *window)
{
    char subject[WORD_BYTES];
    size_t kept = 0;
    for (size_t i = 0; window->by_subject && i < window->count; i++) {
        find_subject(window->lines[i], subject);
        if (subject[0] || strncmp(window->lines[i], "kedge: ", 7) == 0)
            window->lines[kept++] = window->lines[i];
        else
            mem_free(window->lines[i]);
    }
    window->count = window->by_subject ? kept : window->count;
}

static void end_line(struct window *window)
{
    if (is_repeated(window)) {
        window->begun[0] = '\0';
        return;
    }
    char **place = find_place(window, window->begun);
    mem_free(*place);
    *place = mem_text(window->begun);
    window->begun[0] = '\0';
}

void window_take(struct window *window, const char *bytes, size_t count, bool hidden)
{
    size_t used = strlen(window->begun);
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n' || used == sizeof window->begun - 1) {
            end_line(window);
            used = 0;
        }
        if (bytes[i] == '\n' || bytes[i] == '\r' || bytes[i] == '\0')
            continue;
        window->begun[used++] = bytes[i];
        window->begun[used] = '\0';
    }
    bool asks = window->running && window->begun[0];
    if (asks && (!window->prompt.open || window->hidden != hidden))
        prompt_open(&window->prompt, hidden ? "not shown: " : "> ", "");
    else if (!asks)
        window_forget_answer(window);
    window->hidden = hidden;
}

void window_over(struct window *window)
{
    window->running = false;
    if (window->begun[0])
        end_line(window);
    window_forget_answer(window);
}

/* ---- keys ---- */

void window_forget_answer(struct window *window)
{
    explicit_bzero(&window->prompt, sizeof window->prompt); /* with its history: it may have been a password */
}

enum window_end window_press(struct window *window, uint32_t press, enum act act)
{
    struct grid_place place = {.selected = window->top, .page = 10};
    if (window->prompt.open) {
        enum prompt_end end = prompt_press(&window->prompt, press);
        if (end == PROMPT_DONE)
            drop_question(window);
        return end == PROMPT_DONE ? WINDOW_ANSWERED : end == PROMPT_LEFT ? WINDOW_LEFT : WINDOW_STAYS;
    }
    if (press == PRESS_ESCAPE || press == 'q' || press == PRESS_CONTROL('c') || (press == PRESS_ENTER && !window->running))
        return WINDOW_LEFT;
    window->follow = act == ACT_LAST;
    if (act != ACT_LAST && grid_act(&place, WINDOW_LINES + 1, act))
        window->top = place.selected;
    return WINDOW_STAYS;
}

/* ---- drawing ---- */

static int ink_of(const struct window *window, const char *line)
{
    if (strncmp(line, "kedge: ", 7) == 0 || strncmp(line, "kedged: ", 8) == 0)
        return INK_BAD;
    return window->by_subject && strstr(line, " is ready") ? INK_GOOD : INK_PLAIN;
}

/* Bytes of the text that fit into a row: nothing is cut, the key of a host least of all. */
static size_t fit(const char *text, int columns)
{
    size_t at = 0;
    for (int used = 0, bytes; text[at]; at += (size_t)bytes) {
        char letter[5];
        surface_encode(surface_decode(text + at, &bytes), letter);
        used += surface_width(letter);
        if (used > columns)
            break;
    }
    return at ? at : strlen(text);
}

/* All lines as rows; those from `top` on are drawn into the area (NULL: only counted). Returns how many rows there are. */
static int draw_rows(const struct window *window, struct surface *surface, struct area area, int top)
{
    int rows = 0;
    for (size_t i = 0; i < window->count + (window->begun[0] != '\0'); i++) {
        const char *line = i < window->count ? window->lines[i] : window->begun;
        int ink = i < window->count ? ink_of(window, line) : INK_WARN;
        do {
            char text[WINDOW_LINE];
            size_t bytes = fit(line, area.columns);
            snprintf(text, sizeof text, "%.*s", (int)bytes, line);
            if (surface && rows >= top && rows < top + area.rows)
                surface_text(surface, area.row + rows - top, area.column, area.columns, ink, text);
            line += bytes;
            rows++;
        } while (*line);
    }
    return rows;
}

void window_draw(struct window *window, struct surface *surface, struct area area)
{
    surface_fill(surface, area, ' ', INK_PLAIN);
    struct area inside = surface_box(surface, area, window->title, INK_FRAME);
    inside = (struct area){inside.row, inside.column + 1, inside.rows - (window->running ? 1 : 0), inside.columns - 2};
    if (inside.rows < 1 || inside.columns < 1)
        return;
    int most = draw_rows(window, NULL, inside, 0) - inside.rows;
    most = most < 0 ? 0 : most;
    if (window->follow || window->top > most)
        window->top = most;
    window->top = window->top < 0 ? 0 : window->top;
    draw_rows(window, surface, inside, window->top);
    if (!window->running)
        return;
    struct prompt shown = window->prompt;
    if (window->hidden)
        shown.text[0] = '\0', shown.cursor = 0;
    if (window->prompt.open)
        prompt_draw(&shown, surface, inside.row + inside.rows, inside.column, inside.columns, INK_BOLD);
    else
        surface_text(surface, inside.row + inside.rows, inside.column, inside.columns, INK_DIM, "at work; Esc interrupts it");
    explicit_bzero(&shown, sizeof shown);
}
