#include "console/prompt.h"

#include <string.h>

#include "console/keys.h"

void prompt_open(struct prompt *prompt, const char *label, const char *text)
{
    snprintf(prompt->label, sizeof prompt->label, "%s", label);
    snprintf(prompt->text, sizeof prompt->text, "%s", text);
    prompt->cursor = strlen(prompt->text);
    prompt->history_at = -1;
    prompt->open = true;
}

static void insert(struct prompt *prompt, uint32_t press)
{
    char letter[5];
    int bytes = surface_encode(press, letter);
    size_t length = strlen(prompt->text);
    if (length + (size_t)bytes >= sizeof prompt->text)
        return;
    memmove(prompt->text + prompt->cursor + bytes, prompt->text + prompt->cursor, length - prompt->cursor + 1);
    memcpy(prompt->text + prompt->cursor, letter, (size_t)bytes);
    prompt->cursor += (size_t)bytes;
}

static bool is_middle(char letter)
{
    return ((unsigned char)letter & 0xC0) == 0x80;
}

static size_t left_of(const struct prompt *prompt, size_t at)
{
    while (at > 0 && is_middle(prompt->text[--at]))
        ;
    return at;
}

static size_t right_of(const struct prompt *prompt, size_t at)
{
    if (prompt->text[at])
        at++;
    while (is_middle(prompt->text[at]))
        at++;
    return at;
}

static void cut(struct prompt *prompt, size_t from, size_t to)
{
    memmove(prompt->text + from, prompt->text + to, strlen(prompt->text + to) + 1);
    prompt->cursor = from;
}

static void recall(struct prompt *prompt, int at)
{
    if (at < -1 || at >= prompt->history_count)
        return;
    if (prompt->history_at == -1)
        snprintf(prompt->draft, sizeof prompt->draft, "%s", prompt->text);
    prompt->history_at = at;
    snprintf(prompt->text, sizeof prompt->text, "%s", at < 0 ? prompt->draft : prompt->history[at]);
    prompt->cursor = strlen(prompt->text);
}

static void remember(struct prompt *prompt)
{
    if (!prompt->text[0] || (prompt->history_count && strcmp(prompt->history[0], prompt->text) == 0))
        return;
    memmove(prompt->history[1], prompt->history[0], sizeof prompt->history - sizeof prompt->history[0]);
    snprintf(prompt->history[0], sizeof prompt->history[0], "%s", prompt->text);
    if (prompt->history_count < PROMPT_HISTORY)
        prompt->history_count++;
}

/* The word before the cursor grows to what all candidates have in common. */
static void complete(struct prompt *prompt)
{
    size_t start = prompt->cursor, common = 0;
    const char *first = NULL;
    bool only = true;
    while (start > 0 && prompt->text[start - 1] != ' ')
        start--;
    size_t typed = prompt->cursor - start;
    for (int i = 0; prompt->complete; i++) {
        const char *word = prompt->complete(i, prompt->complete_arg);
        if (!word)
            break;
        if (strncmp(word, prompt->text + start, typed) != 0)
            continue;
        if (!first) {
            first = word;
            common = strlen(word);
            continue;
        }
        only = false;
        size_t same = 0;
        while (same < common && word[same] == first[same])
            same++;
        common = same;
    }
    if (!first)
        return;
    for (size_t i = typed; i < common; i++)
        insert(prompt, (unsigned char)first[i]); /* our words are ASCII */
    if (only && common && first[common - 1] != '=')
        insert(prompt, ' ');
}

enum prompt_end prompt_press(struct prompt *prompt, uint32_t press)
{
    switch (press) {
    case PRESS_ENTER:
    case '\n':
        prompt->open = false;
        remember(prompt);
        return PROMPT_DONE;
    case PRESS_ESCAPE:
    case PRESS_CONTROL('c'):
        prompt->open = false;
        return PROMPT_LEFT;
    case PRESS_TAB:
        complete(prompt);
        break;
    case PRESS_LEFT:
        prompt->cursor = left_of(prompt, prompt->cursor);
        break;
    case PRESS_RIGHT:
        prompt->cursor = right_of(prompt, prompt->cursor);
        break;
    case PRESS_HOME:
    case PRESS_CONTROL('a'):
        prompt->cursor = 0;
        break;
    case PRESS_END:
    case PRESS_CONTROL('e'):
        prompt->cursor = strlen(prompt->text);
        break;
    case PRESS_ERASE:
    case '\b':
        cut(prompt, left_of(prompt, prompt->cursor), prompt->cursor);
        break;
    case PRESS_DELETE:
    case PRESS_CONTROL('d'):
        cut(prompt, prompt->cursor, right_of(prompt, prompt->cursor));
        break;
    case PRESS_CONTROL('u'):
        cut(prompt, 0, prompt->cursor);
        break;
    case PRESS_UP:
        recall(prompt, prompt->history_at + 1);
        break;
    case PRESS_DOWN:
        recall(prompt, prompt->history_at - 1);
        break;
    default:
        if (press >= ' ' && press != 127 && press < PRESS_UP)
            insert(prompt, press);
    }
    return PROMPT_TYPING;
}

void prompt_draw(const struct prompt *prompt, struct surface *surface, int row, int column, int width, int ink)
{
    int label = surface_text(surface, row, column, width / 2, INK_BOLD, prompt->label);
    char before[PROMPT_TEXT];
    snprintf(before, sizeof before, "%.*s", (int)prompt->cursor, prompt->text);
    int room = width - label - 1, cursor = surface_width(before), bytes;
    const char *from = prompt->text;
    while (cursor >= room && *from) { /* a long text moves under the cursor */
        char one[5];
        surface_encode(surface_decode(from, &bytes), one);
        cursor -= surface_width(one);
        from += bytes;
    }
    surface_text(surface, row, column + label, room, ink, from);
    surface->cursor_row = row;
    surface->cursor_column = column + label + (cursor < room ? cursor : room);
}
