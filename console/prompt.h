/*
 * One line that is being typed: a cursor, a history, completion. Pure.
 */
#ifndef KEDGE_CONSOLE_PROMPT_H
#define KEDGE_CONSOLE_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "console/surface.h"

#define PROMPT_TEXT 1024 /* the longest value of a profile */
#define PROMPT_HISTORY 20

enum prompt_end { PROMPT_TYPING, PROMPT_DONE, PROMPT_LEFT };

struct prompt {
    bool open;
    char label[PROMPT_TEXT];
    char text[PROMPT_TEXT];
    size_t cursor; /* byte */
    char history[PROMPT_HISTORY][PROMPT_TEXT]; /* newest first */
    int history_count, history_at; /* −1 = what is being typed */
    char draft[PROMPT_TEXT];
    /* The `index`-th word that could stand here, NULL = no more; NULL = nothing is completed. */
    const char *(*complete)(int index, void *arg);
    void *complete_arg;
};

void prompt_open(struct prompt *prompt, const char *label, const char *text);
/* A key; at PROMPT_DONE `text` is what was typed (and in the history), and the prompt is closed. */
enum prompt_end prompt_press(struct prompt *prompt, uint32_t press);
/* In one row; sets the terminal's cursor. */
void prompt_draw(const struct prompt *prompt, struct surface *surface, int row, int column, int width, int ink);

#endif
