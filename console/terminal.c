#include "console/terminal.h"

#include <locale.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include <curses.h>
#include <term.h>

#include "console/guard.h"
#include "console/keys.h"
#include "ssh/base/mem.h"

#undef columns /* term.h makes macros of everyday words */
#undef lines
#undef tab

#define RESET_BYTES 512
#define MOUSE_WANTED (BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED)
#define ESCAPE_MS 25 /* how long an Esc may be the beginning of another key */

struct terminal {
    SCREEN *screen;
    struct surface shown; /* what the terminal shows */
    bool repaint, away, color, mouse, mouse_told;
    int mouse_row, mouse_column;
    enum theme theme;
    attr_t attributes[INK_COUNT];
    struct guard *guard;
};

/* What a handler may use: prepared, never changed while it could run. */
static struct {
    volatile sig_atomic_t active;
    struct termios before;
    char reset[RESET_BYTES];
    size_t reset_bytes;
} fallback;

/* ---- the way back when all else fails ---- */

static const int faults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGQUIT};
#define FAULTS (sizeof faults / sizeof *faults)
static struct sigaction faults_before[FAULTS];

static void give_back(void)
{
    if (!fallback.active)
        return;
    fallback.active = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &fallback.before);
    if (write(STDOUT_FILENO, fallback.reset, fallback.reset_bytes) < 0)
        return;
}

/* Then the fault takes its course, as it would have without us (a sanitizer's report, a core). */
static void on_fault(int number)
{
    give_back();
    for (size_t i = 0; i < FAULTS; i++)
        if (faults[i] == number)
            sigaction(number, &faults_before[i], NULL);
    raise(number);
}

static void add_reset(const char *sequence)
{
    size_t length = sequence && sequence != (char *)-1 ? strlen(sequence) : 0;
    if (fallback.reset_bytes + length > sizeof fallback.reset)
        return;
    memcpy(fallback.reset + fallback.reset_bytes, sequence ? sequence : "", length);
    fallback.reset_bytes += length;
}

static void take_faults(void)
{
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < FAULTS; i++)
        sigaction(faults[i], &action, &faults_before[i]);
    why_on_bug(give_back);
}

static void drop_faults(void)
{
    for (size_t i = 0; i < FAULTS; i++)
        sigaction(faults[i], &faults_before[i], NULL);
    why_on_bug(NULL);
}

/* ---- inks ---- */

struct look {
    short color; /* −1 = the terminal's own */
    attr_t attribute;
};

/* By the number of colours. AUTO can be read on any background; SAFE has blue and orange instead of green and red; LIGHT has at least 4.3
 * times the contrast of white, of which AUTO's green, orange and cyan have 2.7 to 2.9. */
static const struct look looks_256[THEME_COUNT][INK_COUNT] = {
    [THEME_AUTO] = {[INK_PLAIN] = {-1, 0}, [INK_DIM] = {245, 0}, [INK_BOLD] = {-1, A_BOLD}, [INK_GOOD] = {35, 0}, [INK_WARN] = {172, 0},
                    [INK_BAD] = {160, A_BOLD}, [INK_LOSS] = {33, 0}, [INK_RATE] = {37, 0}, [INK_FRAME] = {244, 0}, [INK_KEY] = {33, A_BOLD}},
    [THEME_SAFE] = {[INK_PLAIN] = {-1, 0}, [INK_DIM] = {245, 0}, [INK_BOLD] = {-1, A_BOLD}, [INK_GOOD] = {32, 0}, [INK_WARN] = {172, 0},
                    [INK_BAD] = {202, A_BOLD}, [INK_LOSS] = {32, 0}, [INK_RATE] = {38, 0}, [INK_FRAME] = {244, 0}, [INK_KEY] = {32, A_BOLD}},
    [THEME_LIGHT] = {[INK_PLAIN] = {-1, 0}, [INK_DIM] = {241, 0}, [INK_BOLD] = {-1, A_BOLD}, [INK_GOOD] = {28, 0}, [INK_WARN] = {130, 0},
                     [INK_BAD] = {160, A_BOLD}, [INK_LOSS] = {25, 0}, [INK_RATE] = {30, 0}, [INK_FRAME] = {242, 0}, [INK_KEY] = {25, A_BOLD}},
};
static const struct look looks_8[THEME_COUNT][INK_COUNT] = {
    [THEME_AUTO] = {[INK_PLAIN] = {-1, 0}, [INK_DIM] = {-1, A_DIM}, [INK_BOLD] = {-1, A_BOLD}, [INK_GOOD] = {COLOR_GREEN, 0},
                    [INK_WARN] = {COLOR_YELLOW, 0}, [INK_BAD] = {COLOR_RED, A_BOLD}, [INK_LOSS] = {COLOR_BLUE, 0}, [INK_RATE] = {COLOR_CYAN, 0},
                    [INK_FRAME] = {-1, A_DIM}, [INK_KEY] = {COLOR_BLUE, A_BOLD}},
    [THEME_SAFE] = {[INK_PLAIN] = {-1, 0}, [INK_DIM] = {-1, A_DIM}, [INK_BOLD] = {-1, A_BOLD}, [INK_GOOD] = {COLOR_BLUE, 0},
                    [INK_WARN] = {COLOR_YELLOW, 0}, [INK_BAD] = {COLOR_YELLOW, A_BOLD}, [INK_LOSS] = {COLOR_BLUE, 0}, [INK_RATE] = {COLOR_CYAN, 0},
                    [INK_FRAME] = {-1, A_DIM}, [INK_KEY] = {COLOR_BLUE, A_BOLD}},
    /* Yellow and cyan are nothing on white. */
    [THEME_LIGHT] = {[INK_PLAIN] = {-1, 0}, [INK_DIM] = {-1, A_DIM}, [INK_BOLD] = {-1, A_BOLD}, [INK_GOOD] = {COLOR_GREEN, 0},
                     [INK_WARN] = {COLOR_MAGENTA, 0}, [INK_BAD] = {COLOR_RED, A_BOLD}, [INK_LOSS] = {COLOR_BLUE, 0},
                     [INK_RATE] = {COLOR_BLUE, 0}, [INK_FRAME] = {-1, A_DIM}, [INK_KEY] = {COLOR_BLUE, A_BOLD}},
};
static const attr_t looks_mono[INK_COUNT] = {[INK_DIM] = A_DIM, [INK_BOLD] = A_BOLD, [INK_WARN] = A_UNDERLINE,
                                             [INK_BAD] = A_BOLD | A_UNDERLINE, [INK_FRAME] = A_DIM, [INK_KEY] = A_BOLD};

/* COLORFGBG, which rxvt, Konsole and others set, ends with the number of the background: 7 and 15 are white. */
static bool is_background_light(void)
{
    const char *colours = getenv("COLORFGBG"), *background = colours ? strrchr(colours, ';') : NULL;
    return background && (strcmp(background, ";7") == 0 || strcmp(background, ";15") == 0);
}

static void choose_inks(struct terminal *terminal)
{
    enum theme theme = terminal->theme == THEME_AUTO && is_background_light() ? THEME_LIGHT : terminal->theme;
    bool color = terminal->color && theme != THEME_MONO && has_colors();
    if (color) {
        start_color();
        use_default_colors();
    }
    for (short ink = 0; ink < INK_COUNT; ink++) {
        const struct look *look = &(COLORS >= 256 ? looks_256 : looks_8)[theme][ink];
        if (!color) {
            terminal->attributes[ink] = looks_mono[ink];
            continue;
        }
        init_pair((short)(ink + 1), look->color, -1);
        terminal->attributes[ink] = look->attribute | (look->color < 0 ? 0 : (attr_t)COLOR_PAIR(ink + 1));
    }
}

const char *terminal_theme_name(enum theme theme)
{
    static const char *const names[] = {[THEME_AUTO] = "auto", [THEME_MONO] = "mono", [THEME_SAFE] = "safe", [THEME_LIGHT] = "light"};
    return theme < THEME_COUNT ? names[theme] : NULL;
}

/* ---- life ---- */

static void set_modes(void)
{
    raw(); /* Ctrl-C, Ctrl-Z, Ctrl-S are keys like others */
    noecho();
    nonl();
    intrflush(stdscr, FALSE);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    meta(stdscr, TRUE);
}

int terminal_open(struct terminal **terminal, bool color, enum theme theme, struct why *why)
{
    const char *name = getenv("TERM");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &fallback.before) != 0)
        return why_set(why, ERR_REFUSED, "a screen needs a terminal on standard input and output");
    set_escdelay(ESCAPE_MS);
    SCREEN *screen = newterm(NULL, stdout, stdin);
    if (!screen)
        return why_set(why, ERR_REFUSED, "the terminal '%.40s' is not known here (TERM)", name ? name : "");
    if (!cursor_address) {
        endwin();
        delscreen(screen);
        return why_set(why, ERR_REFUSED, "the terminal '%.40s' cannot place its cursor (TERM)", name);
    }
    struct terminal *own = mem_new(sizeof *own);
    own->screen = screen;
    own->color = color;
    own->theme = theme;
    own->repaint = true;
    fallback.reset_bytes = 0;
    add_reset(exit_attribute_mode);
    add_reset(cursor_normal);
    add_reset(keypad_local);
    add_reset(exit_ca_mode);
    add_reset("\r\n");
    set_modes();
    choose_inks(own);
    fallback.active = 1;
    take_faults();
    own->guard = guard_new(STDOUT_FILENO, &fallback.before, fallback.reset, fallback.reset_bytes);
    *terminal = own;
    return 0;
}

void terminal_close(struct terminal *terminal)
{
    if (!terminal)
        return;
    if (!terminal->away)
        endwin();
    tcsetattr(STDIN_FILENO, TCSANOW, &fallback.before);
    fallback.active = 0;
    drop_faults();
    guard_free(terminal->guard);
    delscreen(terminal->screen);
    surface_clear(&terminal->shown);
    mem_free(terminal);
}

void terminal_leave(struct terminal *terminal)
{
    terminal->away = true;
    def_prog_mode();
    endwin();
    fallback.active = 0;
    guard_free(terminal->guard);
    terminal->guard = NULL;
}

void terminal_enter(struct terminal *terminal)
{
    terminal->away = false;
    reset_prog_mode();
    set_modes();
    fallback.active = 1;
    terminal->guard = guard_new(STDOUT_FILENO, &fallback.before, fallback.reset, fallback.reset_bytes);
    terminal_repaint(terminal);
}

/* ---- drawing ---- */

void terminal_size(const struct terminal *terminal, int *rows, int *columns)
{
    struct winsize size;
    (void)terminal;
    *rows = LINES;
    *columns = COLS;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col) {
        *rows = size.ws_row;
        *columns = size.ws_col;
    }
}

void terminal_repaint(struct terminal *terminal)
{
    terminal->repaint = true;
}

static void draw_row(struct terminal *terminal, const struct surface *surface, int row)
{
    const struct cell *cells = &surface->cells[(size_t)row * (size_t)surface->columns];
    move(row, 0);
    for (int column = 0; column < surface->columns; column++) {
        wchar_t text[2] = {(wchar_t)cells[column].code, 0};
        cchar_t cell;
        if (cells[column].code == 0)
            continue; /* the wide character before it stands here too */
        attr_t attribute = terminal->attributes[(cells[column].ink & ~INK_FOCUS) % INK_COUNT];
        if (cells[column].ink & INK_FOCUS)
            attribute |= A_REVERSE;
        setcchar(&cell, text, attribute, (short)PAIR_NUMBER(attribute), NULL);
        mvadd_wchnstr(row, column, &cell, 1);
    }
}

static void take_size(struct terminal *terminal, const struct surface *surface)
{
    if (terminal->shown.rows == surface->rows && terminal->shown.columns == surface->columns)
        return;
    resizeterm(surface->rows, surface->columns);
    if (terminal->shown.cells)
        surface_clear(&terminal->shown);
    surface_init(&terminal->shown, surface->rows, surface->columns, surface->ascii);
    terminal->repaint = true;
}

void terminal_draw(struct terminal *terminal, const struct surface *surface)
{
    size_t bytes = (size_t)surface->columns * sizeof *surface->cells;
    if (terminal->away)
        return;
    take_size(terminal, surface);
    if (terminal->repaint)
        clearok(stdscr, TRUE);
    for (int row = 0; row < surface->rows; row++) {
        size_t at = (size_t)row * (size_t)surface->columns;
        if (!terminal->repaint && memcmp(&terminal->shown.cells[at], &surface->cells[at], bytes) == 0)
            continue;
        draw_row(terminal, surface, row);
        memcpy(&terminal->shown.cells[at], &surface->cells[at], bytes);
    }
    terminal->repaint = false;
    curs_set(surface->cursor_row >= 0);
    move(surface->cursor_row >= 0 ? surface->cursor_row : surface->rows - 1,
         surface->cursor_row >= 0 ? surface->cursor_column : surface->columns - 1);
    refresh();
}

/* ---- the mouse ---- */

void terminal_where(const struct terminal *terminal, int *row, int *column)
{
    *row = terminal->mouse_row;
    *column = terminal->mouse_column;
}

/* Whoever ends us must end it, too. */
void terminal_mouse(struct terminal *terminal, bool wanted)
{
    if (terminal->mouse == wanted)
        return;
    if (!terminal->mouse_told)
        add_reset("\033[?1006l\033[?1002l\033[?1000l");
    terminal->mouse_told = true;
    terminal->mouse = wanted;
    mouseinterval(0);
    mousemask(wanted ? MOUSE_WANTED : 0, NULL);
    guard_free(terminal->guard);
    terminal->guard = guard_new(STDOUT_FILENO, &fallback.before, fallback.reset, fallback.reset_bytes);
}

static uint32_t mouse_press(struct terminal *terminal)
{
    MEVENT event;
    if (getmouse(&event) != OK)
        return PRESS_NONE;
    terminal->mouse_row = event.y;
    terminal->mouse_column = event.x;
    return event.bstate & BUTTON4_PRESSED ? PRESS_WHEEL_UP : event.bstate & BUTTON5_PRESSED ? PRESS_WHEEL_DOWN
         : event.bstate & BUTTON1_PRESSED ? PRESS_CLICK : PRESS_NONE;
}

/* ---- keys ---- */

static uint32_t special(struct terminal *terminal, wint_t key)
{
    static const struct { wint_t key; uint32_t press; } keys[] = {
        {KEY_UP, PRESS_UP}, {KEY_DOWN, PRESS_DOWN}, {KEY_LEFT, PRESS_LEFT}, {KEY_RIGHT, PRESS_RIGHT}, {KEY_HOME, PRESS_HOME},
        {KEY_END, PRESS_END}, {KEY_PPAGE, PRESS_PAGE_UP}, {KEY_NPAGE, PRESS_PAGE_DOWN}, {KEY_BTAB, PRESS_BACK_TAB},
        {KEY_DC, PRESS_DELETE}, {KEY_F(1), PRESS_F1}, {KEY_BACKSPACE, PRESS_ERASE}, {KEY_ENTER, PRESS_ENTER},
    };
    if (key == KEY_MOUSE)
        return mouse_press(terminal);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].key == key)
            return keys[i].press;
    return PRESS_NONE;
}

/* ncurses holds bytes that no watcher of the descriptor sees: ask until it has none. */
uint32_t terminal_press(struct terminal *terminal, bool *gone)
{
    struct termios now;
    *gone = false;
    while (!terminal->away) {
        wint_t key;
        int got = get_wch(&key);
        if (got == ERR) {
            *gone = tcgetattr(STDIN_FILENO, &now) != 0;
            return PRESS_NONE;
        }
        uint32_t press = got == KEY_CODE_YES ? special(terminal, key)
                         : key == '\b'       ? PRESS_ERASE
                         : key == '\n'       ? PRESS_ENTER
                                             : (uint32_t)key;
        if (press != PRESS_NONE)
            return press;
    }
    return PRESS_NONE;
}

/* ---- the clipboard ---- */

#define COPY_MOST 4096

void terminal_copy(struct terminal *terminal, const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = (const unsigned char *)text;
    size_t count = strnlen(text, COPY_MOST);
    char out[COPY_MOST * 4 / 3 + 32];
    size_t used = (size_t)snprintf(out, sizeof out, "\033]52;c;");
    if (terminal->away)
        return;
    for (size_t i = 0; i < count; i += 3) {
        uint32_t group = (uint32_t)bytes[i] << 16 | (i + 1 < count ? (uint32_t)bytes[i + 1] << 8 : 0) |
                         (i + 2 < count ? bytes[i + 2] : 0u);
        out[used++] = letters[group >> 18];
        out[used++] = letters[group >> 12 & 63];
        out[used++] = i + 1 < count ? letters[group >> 6 & 63] : '=';
        out[used++] = i + 2 < count ? letters[group & 63] : '=';
    }
    out[used++] = '\a';
    fflush(stdout);
    if (write(STDOUT_FILENO, out, used) < 0)
        return;
}
