/*
 * A window of text over a panel: something to read, or what a command says while it works (task.h), and its questions. Pure.
 */
#ifndef KEDGE_CONSOLE_WINDOW_H
#define KEDGE_CONSOLE_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "console/keys.h"
#include "console/layout.h"
#include "console/prompt.h"
#include "console/surface.h"

#define WINDOW_LINES 2000 /* the newest are kept */
#define WINDOW_LINE 1000

struct window {
    bool open;
    bool running;  /* a command is at work, and may say more or ask */
    bool by_subject; /* a line takes the place of the one about the same host: what is being done, a row for each */
    bool hidden;   /* what is typed is not shown */
    char title[80];
    char **lines;
    size_t count;
    char begun[WINDOW_LINE]; /* a line without its end: a question, while a command runs */
    struct prompt prompt;    /* open: its answer */
    int top;
    bool follow;             /* the end is shown */
};

enum window_end { WINDOW_STAYS, WINDOW_ANSWERED, WINDOW_LEFT };

/* Empty, or with `text`, from its beginning. */
void window_open(struct window *window, const char *title, const char *text);
/* Empty, for a command that runs; its end is followed. */
void window_open_running(struct window *window, const char *title, bool by_subject);
void window_close(struct window *window);

/* What the command said; `hidden`: it does not want what is typed to be seen. */
void window_take(struct window *window, const char *bytes, size_t count, bool hidden);
void window_over(struct window *window); /* it has ended */

/* WINDOW_ANSWERED: prompt.text is the answer; wipe it by window_forget_answer. WINDOW_LEFT: Esc; the caller closes, or interrupts. */
enum window_end window_press(struct window *window, uint32_t press, enum act act);
void window_forget_answer(struct window *window);

void window_draw(struct window *window, struct surface *surface, struct area area);

#endif
