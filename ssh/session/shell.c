#include "ssh/session/shell.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "ssh/base/buf.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/session/exec.h"

#define LINES_BYTES ((size_t)16 << 10)

struct shell {
    struct road *road;
    struct shell_callbacks callbacks;
    void *arg;
    char *name; /* the host's */
    bool stands, asks, finished;
    uint64_t moved_ns;
    struct buf out;
    char line[200];
    size_t line_used;
};

/* ---- what it says ---- */

static enum shell_next take_bytes(struct shell *shell, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != '\n') {
            if (shell->line_used < sizeof shell->line - 1)
                shell->line[shell->line_used++] = (char)bytes[i];
            continue;
        }
        shell->line[shell->line_used] = '\0';
        shell->line_used = 0;
        if (shell->callbacks.line(shell, shell->line, shell->arg) == SHELL_GONE)
            return SHELL_GONE;
    }
    return SHELL_ON;
}

static void tell_end(struct shell *shell, const struct why *why)
{
    char errors[700], signal[32] = "";
    int status = -1;
    bool ended = exec_exit(shell->road, &status, signal);
    exec_errors(shell->road, errors, sizeof errors);
    road_want(shell->road, false, false);
    char *reason = !ended      ? mem_format("%s %s", shell->name, why->text)
                   : signal[0] ? mem_format("(signal %s): %s", signal, errors)
                               : mem_format("(status %d): %s", status, errors);
    shell->callbacks.ended(shell, ended ? ERR_INVALID : why->err, ended && status >= 0 ? status : -1, reason, shell->arg);
    mem_free(reason);
}

static enum shell_next read_lines(struct shell *shell)
{
    uint8_t bytes[4096];
    struct why why = {0};
    ssize_t got;
    while ((got = road_read(shell->road, bytes, sizeof bytes, &why)) > 0)
        if (take_bytes(shell, bytes, (size_t)got) == SHELL_GONE)
            return SHELL_GONE;
    if (got == ERR_AGAIN)
        return SHELL_ON;
    tell_end(shell, &why);
    return SHELL_GONE; /* or nothing more to do with it */
}

/* ---- what it is told ---- */

/* SHELL_ON: there is something to write, or will be in the next turn. */
static enum shell_next ask_more(struct shell *shell)
{
    if (buf_used(&shell->out))
        return SHELL_ON;
    if (!shell->asks || shell->finished)
        return SHELL_WAIT;
    enum shell_next next = shell->callbacks.more(shell, shell->arg);
    if (next == SHELL_GONE)
        return next;
    shell->asks = next == SHELL_ON;
    if (next == SHELL_LAST) {
        shell->finished = true;
        road_finish(shell->road, &(struct why){0});
    }
    return buf_used(&shell->out) ? SHELL_ON : next;
}

static void write_out(struct shell *shell)
{
    enum shell_next next = SHELL_WAIT;
    while (exec_room(shell->road) && (next = ask_more(shell)) == SHELL_ON && buf_used(&shell->out)) {
        ssize_t sent = road_write(shell->road, buf_peek(&shell->out), buf_used(&shell->out), &(struct why){0});
        if (sent < 0)
            break; /* not now; an end shows when reading */
        buf_consume(&shell->out, (size_t)sent);
        shell->moved_ns = clock_now_ns();
        shell->asks |= !buf_used(&shell->out);
    }
    if (next != SHELL_GONE)
        road_want(shell->road, true, buf_used(&shell->out) || (shell->asks && !shell->finished));
}

static void on_road(void *arg)
{
    struct shell *shell = arg;
    struct why why = {0};
    int err = shell->stands ? 0 : road_start(shell->road, &why);
    if (err == ERR_AGAIN)
        return;
    if (err) {
        tell_end(shell, &why);
        return;
    }
    shell->stands = true;
    if (read_lines(shell) != SHELL_GONE)
        write_out(shell);
}

void shell_poke(struct shell *shell)
{
    shell->asks = true;
    road_want(shell->road, true, true);
}

void shell_put(struct shell *shell, const char *format, ...)
{
    char words[160];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    BUG_IF(length < 0 || (size_t)length >= sizeof words || buf_put(&shell->out, words, (size_t)length) != 0);
    shell_poke(shell);
}

uint8_t *shell_reserve(struct shell *shell, size_t bytes)
{
    BUG_IF(bytes > SHELL_BYTES);
    return buf_reserve(&shell->out, bytes);
}

void shell_commit(struct shell *shell, size_t bytes)
{
    buf_commit(&shell->out, bytes);
}

uint64_t shell_moved_ns(const struct shell *shell)
{
    return shell->moved_ns;
}

uint64_t shell_least_ns(const struct shell *shell)
{
    return exec_least_ns(shell->road);
}

/* ---- life ---- */

struct shell *shell_new(struct session *session, const char *command, uint64_t open_ns, const struct shell_callbacks *callbacks,
                        void *arg)
{
    struct shell *shell = mem_new(sizeof *shell);
    *shell = (struct shell){.callbacks = *callbacks, .arg = arg, .asks = true};
    shell->name = mem_text(session_get_settings(session)->name);
    buf_init(&shell->out, SHELL_BYTES + LINES_BYTES);
    shell->road = exec_road(session, command, open_ns);
    road_on_ready(shell->road, on_road, shell);
    road_want(shell->road, true, true);
    return shell;
}

void shell_free(struct shell *shell)
{
    if (!shell)
        return;
    road_free(shell->road);
    buf_clear(&shell->out);
    mem_free(shell->name);
    mem_free(shell);
}
