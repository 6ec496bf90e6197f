#include "ssh/session/exec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/session/channel.h"
#include "ssh/session/inner.h"

#define NOISE_BYTES ((size_t)64 << 10)
#define COMMAND_BYTES ((size_t)64 << 10)

struct road_exec {
    struct road road;
    struct road *below;
    struct loop_timer *timer; /* until the marker came; then: what was read with it is there */
    uint64_t open_ns;
    char marker[32];
    struct buf in; /* noise, then what came with the marker */
    bool stands, explains, want_read, want_write;
    struct why why;
};

void exec_quote(struct buf *buf, const char *text)
{
    buf_put(buf, "'", 1);
    for (; *text; text++)
        if (*text == '\'')
            buf_put(buf, "'\\''", 4);
        else
            buf_put(buf, text, 1);
    buf_put(buf, "'", 1);
}

static void exec_want_below(struct road_exec *exec)
{
    /* Until the marker came there is nothing to write, and it would be possible all the time. */
    road_want(exec->below, exec->want_read || !exec->stands, exec->want_write && exec->stands);
    if (exec->stands && exec->want_read && buf_used(&exec->in))
        loop_timer_set(exec->timer, 0);
}

/* What the shell said instead of our marker, for the reason. */
static int no_marker(struct road_exec *exec, const char *how)
{
    char noise[200], errors[300];
    text_harmless((const char *)buf_peek(&exec->in), buf_used(&exec->in) < 100 ? buf_used(&exec->in) : 100, noise,
                  sizeof noise);
    channel_errors(exec->below, errors, sizeof errors);
    return why_set(&exec->why, ERR_INVALID, "has a login shell that %s instead of running our command%s%s%s%s", how,
                   noise[0] ? "; it said: " : "", noise, errors[0] ? "; and: " : "", errors);
}

/* 0 = found, and the buffer holds what came behind it. */
static int look_for_marker(struct road_exec *exec)
{
    size_t used = buf_used(&exec->in), length = strlen(exec->marker);
    const uint8_t *bytes = buf_peek(&exec->in), *at = used ? memmem(bytes, used, exec->marker, length) : NULL;
    if (at) {
        buf_consume(&exec->in, (size_t)(at - bytes) + length);
        return 0;
    }
    return used >= NOISE_BYTES ? no_marker(exec, "talks without end") : ERR_AGAIN;
}

static int exec_start(struct road *base, struct why *why)
{
    struct road_exec *exec = (struct road_exec *)base;
    int err = exec->stands ? 0 : exec->why.err ? exec->why.err : road_start(exec->below, &exec->why);
    while (!err && !exec->stands) {
        uint8_t bytes[4096];
        struct why ended = {0};
        ssize_t got = road_read(exec->below, bytes, sizeof bytes, &ended);
        if (got < 0) {
            err = got == ERR_AGAIN        ? ERR_AGAIN
                  : ended.err == ERR_GONE ? no_marker(exec, "ended")
                                          : why_set(&exec->why, ended.err, "%s", ended.text);
            break;
        }
        if (buf_put(&exec->in, bytes, (size_t)got) != 0)
            BUG("the noise buffer is too small");
        err = look_for_marker(exec);
        exec->stands = err == 0;
        if (err == ERR_AGAIN)
            err = 0;
    }
    if (err == ERR_AGAIN) {
        exec_want_below(exec);
        return err;
    }
    loop_timer_unset(exec->timer);
    exec_want_below(exec);
    return err ? why_set(why, exec->why.err, "%s", exec->why.text) : 0;
}

static void exec_tell(struct road_exec *exec)
{
    if (exec->road.ready)
        exec->road.ready(exec->road.ready_arg);
}

static void exec_on_ready(void *arg)
{
    exec_tell(arg);
}

static void exec_on_timer(void *arg)
{
    struct road_exec *exec = arg;
    char waited[32], how[80];
    if (!exec->stands) {
        snprintf(how, sizeof how, "is busy with something for %s", text_from_duration(exec->open_ns, waited, sizeof waited));
        no_marker(exec, how);
        exec->why.err = ERR_TIMEOUT;
    } else if (!exec->want_read || !buf_used(&exec->in)) {
        return; /* it was taken meanwhile */
    }
    exec_tell(exec);
}

static void exec_want(struct road *base, bool read, bool write)
{
    struct road_exec *exec = (struct road_exec *)base;
    exec->want_read = read;
    exec->want_write = write;
    exec_want_below(exec);
}

static ssize_t exec_read(struct road *base, uint8_t *bytes, size_t room, struct why *why)
{
    struct road_exec *exec = (struct road_exec *)base;
    size_t count = buf_used(&exec->in);
    if (!exec->stands)
        return ERR_AGAIN;
    if (count == 0) {
        char words[400] = "";
        struct why below = {0};
        ssize_t got = road_read(exec->below, bytes, room, &below);
        if (got < 0 && exec->explains)
            channel_errors(exec->below, words, sizeof words);
        if (got < 0)
            why_set(why, (int)got, words[0] ? "says: %s; it %s" : "%s%s", words, below.text);
        return got;
    }
    if (count > room)
        count = room;
    memcpy(bytes, buf_peek(&exec->in), count);
    buf_consume(&exec->in, count);
    exec_want_below(exec);
    return (ssize_t)count;
}

static ssize_t exec_write(struct road *base, const uint8_t *bytes, size_t count, struct why *why)
{
    struct road_exec *exec = (struct road_exec *)base;
    return exec->stands ? road_write(exec->below, bytes, count, why) : ERR_AGAIN;
}

static int exec_finish(struct road *base, struct why *why)
{
    return road_finish(((struct road_exec *)base)->below, why);
}

static void exec_free_road(struct road *base)
{
    struct road_exec *exec = (struct road_exec *)base;
    road_free(exec->below);
    loop_timer_free(exec->timer);
    buf_clear(&exec->in);
    mem_free(exec);
}

static void exec_describe(const struct road *base, char *out, size_t size)
{
    road_describe(((const struct road_exec *)base)->below, out, size);
}

static void exec_set_queue(struct road *base, size_t bytes)
{
    road_set_queue(((struct road_exec *)base)->below, bytes);
}

static const struct road_ops exec_ops = {
    .name = "exec",
    .start = exec_start,
    .want = exec_want,
    .read = exec_read,
    .write = exec_write,
    .finish = exec_finish,
    .free = exec_free_road,
    .describe = exec_describe,
    .set_queue = exec_set_queue,
};

struct road *exec_road(struct session *session, const char *command, uint64_t open_ns)
{
    struct road_exec *exec = mem_new(sizeof *exec);
    struct buf inner, outer;
    *exec = (struct road_exec){.road.ops = &exec_ops, .open_ns = open_ns};
    snprintf(exec->marker, sizeof exec->marker, "\nkedge:%016" PRIx64 "\n", hash_random());
    buf_init(&exec->in, NOISE_BYTES + 8192);
    buf_init(&inner, COMMAND_BYTES);
    buf_init(&outer, 2 * COMMAND_BYTES);
    if (buf_format(&inner, "echo; echo %.*s; %s", (int)strlen(exec->marker) - 2, exec->marker + 1, command) < 0 ||
        buf_put(&inner, "", 1) != 0)
        BUG("a command of %zu bytes is too long", strlen(command));
    buf_format(&outer, "exec /bin/sh -c ");
    exec_quote(&outer, (const char *)buf_peek(&inner));
    buf_put(&outer, "", 1);
    exec->below = channel_exec(session, (const char *)buf_peek(&outer), open_ns);
    buf_clear(&inner);
    buf_clear(&outer);
    exec->timer = loop_timer_new(session->loop, exec_on_timer, exec);
    loop_timer_set(exec->timer, open_ns + session->settings.greet_ns + session->settings.ask_ns);
    road_on_ready(exec->below, exec_on_ready, exec);
    exec_want_below(exec);
    return &exec->road;
}

bool exec_exit(const struct road *road, int *status, char signal[32])
{
    return channel_exit(((const struct road_exec *)road)->below, status, signal);
}

const char *exec_errors(const struct road *road, char *out, size_t size)
{
    return channel_errors(((const struct road_exec *)road)->below, out, size);
}

void exec_explain(struct road *road)
{
    ((struct road_exec *)road)->explains = true;
}

size_t exec_room(const struct road *road)
{
    const struct road_exec *exec = (const struct road_exec *)road;
    return exec->stands ? channel_room(exec->below) : 0;
}

uint64_t exec_least_ns(const struct road *road)
{
    return channel_least_ns(((const struct road_exec *)road)->below);
}

/* ---- one command, all of its output ---- */

struct exec {
    struct road *road;
    struct loop_timer *timer;
    char *name, *what; /* the host, and what for */
    uint64_t deadline_ns;
    struct buf input, output;
    size_t most;
    bool standing, finished, ended;
    int status;
    exec_cb *cb;
    void *arg;
};

static void exec_end(struct exec *exec, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void exec_end(struct exec *exec, int err, const char *format, ...)
{
    char text[1000], reason[1300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(reason, sizeof reason, "%s %s (%s)", exec->name, text, exec->what);
    loop_timer_unset(exec->timer);
    road_want(exec->road, false, false);
    BUG_IF(exec->ended);
    exec->ended = true;
    exec->cb(exec, err, reason, exec->arg); /* may free it */
}

static void exec_ended(struct exec *exec, const struct why *why)
{
    char signal[32], errors[700];
    int status;
    exec_errors(exec->road, errors, sizeof errors);
    if (!exec_exit(exec->road, &status, signal)) {
        exec_end(exec, why->err, "%s", why->text);
        return;
    }
    exec->status = status;
    if (signal[0])
        exec_end(exec, ERR_INVALID, "had the command killed by signal %s%s%s", signal, errors[0] ? ": " : "", errors);
    else if (status)
        exec_end(exec, ERR_INVALID, "had the command end with status %d%s%s", status, errors[0] ? ": " : "", errors);
    else
        exec_end(exec, 0, "is done");
}

static void exec_write_input(struct exec *exec)
{
    while (buf_used(&exec->input)) {
        ssize_t sent = road_write(exec->road, buf_peek(&exec->input), buf_used(&exec->input), &(struct why){0});
        if (sent < 0)
            break; /* not now; the command's end shows when reading */
        buf_consume(&exec->input, (size_t)sent);
    }
    if (!buf_used(&exec->input) && !exec->finished) {
        road_finish(exec->road, &(struct why){0});
        exec->finished = true;
    }
}

static void exec_on_road(void *arg)
{
    struct exec *exec = arg;
    struct why why = {0};
    uint8_t bytes[8192];
    if (exec->ended)
        return; /* until it is freed, a road that broke may still stir */
    int err = exec->standing ? 0 : road_start(exec->road, &why);
    if (err == ERR_AGAIN)
        return;
    if (err) {
        exec_end(exec, err, "%s", why.text);
        return;
    }
    exec->standing = true;
    for (;;) {
        ssize_t got = road_read(exec->road, bytes, sizeof bytes, &why);
        if (got == ERR_AGAIN)
            break;
        if (got < 0) {
            exec_ended(exec, &why);
            return;
        }
        if (buf_used(&exec->output) + (size_t)got > exec->most) {
            exec_end(exec, ERR_FULL, "says more than the %zu bytes that are expected", exec->most);
            return;
        }
        buf_put(&exec->output, bytes, (size_t)got);
    }
    exec_write_input(exec);
    road_want(exec->road, true, buf_used(&exec->input) > 0);
}

static void exec_on_deadline(void *arg)
{
    struct exec *exec = arg;
    char waited[32];
    exec_end(exec, ERR_TIMEOUT, "was not done within %s", text_from_duration(exec->deadline_ns, waited, sizeof waited));
}

struct exec *exec_run(struct session *session, const char *what, const char *command, const void *input, size_t input_bytes,
                      size_t most, uint64_t deadline_ns, exec_cb *cb, void *arg)
{
    struct exec *exec = mem_new(sizeof *exec);
    *exec = (struct exec){.most = most, .deadline_ns = deadline_ns, .status = -1, .cb = cb, .arg = arg};
    exec->name = mem_text(session->settings.name);
    exec->what = mem_text(what);
    buf_init(&exec->input, input_bytes + 1);
    buf_init(&exec->output, most + 1);
    if (input_bytes)
        buf_put(&exec->input, input, input_bytes);
    exec->road = exec_road(session, command, deadline_ns);
    exec->timer = loop_timer_new(session->loop, exec_on_deadline, exec);
    loop_timer_set(exec->timer, deadline_ns);
    road_on_ready(exec->road, exec_on_road, exec);
    road_want(exec->road, true, true);
    return exec;
}

const char *exec_output(const struct exec *exec, size_t *bytes)
{
    struct buf *output = (struct buf *)(uintptr_t)&exec->output;
    uint8_t *end = buf_reserve(output, 1); /* there is always room for it */
    *end = '\0';
    if (bytes)
        *bytes = buf_used(output);
    return (const char *)buf_peek(output);
}

int exec_status(const struct exec *exec)
{
    return exec->status;
}

void exec_free(struct exec *exec)
{
    if (!exec)
        return;
    road_free(exec->road);
    loop_timer_free(exec->timer);
    if (buf_used(&exec->input))
        explicit_bzero(exec->input.data, exec->input.capacity); /* it may be a credential */
    buf_clear(&exec->input);
    buf_clear(&exec->output);
    mem_free(exec->name);
    mem_free(exec->what);
    mem_free(exec);
}
