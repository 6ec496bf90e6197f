#include "ssh/session/channel.h"

#include <stdio.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/session/inner.h"

#define WINDOW_BYTES ((size_t)2 << 20) /* what the peer may send unasked */
#define PACKET_BYTES 32768
#define IN_BYTES ((size_t)128 << 10)
#define QUEUE_BYTES ((size_t)256 << 10)
#define CLOSE_NS (5 * CLOCK_SECOND)

/* ---- telling the owner ---- */

static bool can_read(const struct channel *channel)
{
    return buf_used(&channel->in) || channel->ended || channel->state == CHANNEL_OVER;
}

static size_t least(size_t one, size_t other)
{
    return one < other ? one : other;
}

size_t channel_room(const struct road *base)
{
    const struct channel *channel = (const struct channel *)base;
    const struct session *session = channel->session;
    if (channel->state != CHANNEL_OPEN || channel->finishing || !session_has_room(session))
        return 0;
    size_t window = libssh2_channel_window_write(channel->ssh), queued = buf_used(&session->out);
    size_t room = queued < channel->queue_bytes ? channel->queue_bytes - queued : 0;
    return least(room, least(window, flow_room(&channel->flow)));
}

uint64_t channel_least_ns(const struct road *base)
{
    return ((const struct channel *)base)->flow.least_ns;
}

static bool can_write(const struct channel *channel)
{
    return channel->state == CHANNEL_OVER || channel_room(&channel->road) > 0;
}

static void now(void *arg)
{
    struct channel *channel = arg;
    channel->ready_coming = false;
    if (channel->freed) {
        if (!channel->session)
            mem_free(channel);
        return;
    }
    bool due = (channel->want_read && can_read(channel)) || (channel->want_write && can_write(channel));
    if (!due || !channel->road.ready)
        return;
    /* Level, not edge: look again in the next turn. */
    channel->ready_coming = true;
    loop_later(channel->loop, now, channel);
    channel->road.ready(channel->road.ready_arg);
}

static void check_ready(struct channel *channel)
{
    if (channel->ready_coming || channel->freed)
        return;
    if ((channel->want_read && can_read(channel)) || (channel->want_write && can_write(channel))) {
        channel->ready_coming = true;
        loop_later(channel->loop, now, channel);
    }
}

/* ---- states ---- */

static void move_to(struct channel *channel, enum channel_state state)
{
    channel->state = state;
    if (state == CHANNEL_OPENING || state == CHANNEL_ASKING)
        loop_timer_set(channel->timer, channel->deadline_ns);
    else if (state == CHANNEL_CLOSING)
        loop_timer_set(channel->timer, CLOSE_NS);
    else
        loop_timer_unset(channel->timer);
}

/* The session has nothing more to do with it. */
static void leave_session(struct channel *channel)
{
    struct session *session = channel->session;
    TAILQ_REMOVE(&session->channels, channel, entry);
    if (session->opener == channel)
        session->opener = NULL;
    channel->session = NULL;
    channel->ssh = NULL;
    loop_timer_free(channel->timer);
    channel->timer = NULL;
    buf_clear(&channel->in);
    mem_free(channel->command);
    channel->command = NULL;
    if (!channel->ready_coming)
        mem_free(channel);
}

static void fail(struct channel *channel, int err, const char *text)
{
    if (channel->state == CHANNEL_OVER)
        return;
    why_set(&channel->why, err, "%s", text);
    move_to(channel, CHANNEL_OVER);
    check_ready(channel);
}

/* Errors of one channel; all others are those of the session. */
static bool is_of_channel(int code)
{
    return code == LIBSSH2_ERROR_CHANNEL_FAILURE || code == LIBSSH2_ERROR_CHANNEL_REQUEST_DENIED ||
           code == LIBSSH2_ERROR_CHANNEL_UNKNOWN || code == LIBSSH2_ERROR_CHANNEL_CLOSED ||
           code == LIBSSH2_ERROR_CHANNEL_EOF_SENT || code == LIBSSH2_ERROR_REQUEST_DENIED;
}

static void fail_by_library(struct channel *channel, int code, const char *what)
{
    char text[400];
    snprintf(text, sizeof text, "%s: %s", what, session_error(channel->session));
    if (is_of_channel(code))
        fail(channel, ERR_REFUSED, text);
    else
        session_fail_by_library(channel->session, code);
}

static void step_opening(struct channel *channel)
{
    struct session *session = channel->session;
    if (channel->command)
        channel->ssh = libssh2_channel_open_ex(session->ssh, "session", 7, WINDOW_BYTES, PACKET_BYTES, NULL, 0);
    else
        channel->ssh = libssh2_channel_direct_tcpip_ex(session->ssh, channel->host, channel->port, "127.0.0.1", 0);
    int code = channel->ssh ? 0 : libssh2_session_last_errno(session->ssh);
    if (code == LIBSSH2_ERROR_EAGAIN)
        return;
    session->opener = NULL;
    if (code && channel->command)
        fail_by_library(channel, code, "opens no more channels (MaxSessions in its sshd_config?)");
    else if (code)
        fail_by_library(channel, code, "cannot connect further, or may not (AllowTcpForwarding in its sshd_config)");
    else
        move_to(channel, channel->freed ? CHANNEL_CLOSING : channel->command ? CHANNEL_ASKING : CHANNEL_OPEN);
    session_wake(session); /* the next one may open */
}

static void step_asking(struct channel *channel)
{
    int code =
        libssh2_channel_process_startup(channel->ssh, "exec", 4, channel->command, (unsigned)strlen(channel->command));
    if (code == LIBSSH2_ERROR_EAGAIN)
        return;
    if (code)
        fail_by_library(channel, code, "does not run commands for us");
    else
        move_to(channel, CHANNEL_OPEN);
}

/* Keep the newest. */
static void keep_errors(struct channel *channel, const char *bytes, size_t count)
{
    size_t room = sizeof channel->errors;
    if (count > room) {
        bytes += count - room;
        count = room;
    }
    size_t keep = channel->errors_bytes + count > room ? room - count : channel->errors_bytes;
    memmove(channel->errors, channel->errors + channel->errors_bytes - keep, keep);
    memcpy(channel->errors + keep, bytes, count);
    channel->errors_bytes = keep + count;
}

/* False when the session or the channel is over by it. */
static bool read_errors(struct channel *channel)
{
    char bytes[4096];
    ssize_t got;
    while (session_has_room(channel->session) &&
           (got = libssh2_channel_read_ex(channel->ssh, SSH_EXTENDED_DATA_STDERR, bytes, sizeof bytes)) !=
               LIBSSH2_ERROR_EAGAIN) {
        if (got == 0)
            return true;
        if (got < 0) {
            fail_by_library(channel, (int)got, "breaks off");
            return false;
        }
        keep_errors(channel, bytes, (size_t)got);
    }
    return true;
}

static bool read_output(struct channel *channel)
{
    while (session_has_room(channel->session)) {
        size_t room = channel->in.max - buf_used(&channel->in);
        uint8_t *at = room ? buf_reserve(&channel->in, room < 32768 ? room : 32768) : NULL;
        if (!at)
            return true;
        ssize_t got = libssh2_channel_read_ex(channel->ssh, 0, (char *)at, room < 32768 ? room : 32768);
        if (got == LIBSSH2_ERROR_EAGAIN || got == 0)
            return true;
        if (got < 0) {
            fail_by_library(channel, (int)got, "breaks off");
            return false;
        }
        buf_commit(&channel->in, (size_t)got);
    }
    return true;
}

static void learn_status(struct channel *channel)
{
    char *name = NULL;
    size_t bytes = 0;
    int code = libssh2_channel_wait_closed(channel->ssh);
    if (code == LIBSSH2_ERROR_EAGAIN)
        return;
    channel->status_known = true;
    channel->status = libssh2_channel_get_exit_status(channel->ssh);
    libssh2_channel_get_exit_signal(channel->ssh, &name, &bytes, NULL, NULL, NULL, NULL);
    if (name) {
        channel->status = -1;
        text_harmless(name, bytes, channel->signal, sizeof channel->signal);
        libssh2_free(channel->session->ssh, name);
    }
}

static void step_open(struct channel *channel)
{
    if (!read_errors(channel) || (channel->want_read && !read_output(channel)))
        return;
    flow_window(&channel->flow, libssh2_channel_window_write(channel->ssh), clock_now_ns());
    if (channel->finishing && !channel->finished && session_has_room(channel->session)) {
        int code = libssh2_channel_send_eof(channel->ssh);
        channel->finished = code != LIBSSH2_ERROR_EAGAIN;
    }
    if (!channel->status_known && libssh2_channel_eof(channel->ssh) == 1) {
        learn_status(channel);
        /* The end of a command is told together with how it ended; that of a tunnel has nothing to wait for. */
        channel->ended = channel->status_known || !channel->command;
    }
}

static void step_closing(struct channel *channel)
{
    if (libssh2_channel_free(channel->ssh) != LIBSSH2_ERROR_EAGAIN)
        leave_session(channel);
}

void channel_pump(struct channel *channel)
{
    struct session *session = channel->session;
    if (!session_has_room(session))
        return;
    if (channel->freed && !channel->ssh && channel->state != CHANNEL_OPENING) {
        leave_session(channel);
        return;
    }
    if (channel->state == CHANNEL_WAITING && !session->opener) {
        session->opener = channel;
        move_to(channel, CHANNEL_OPENING);
    }
    if (channel->state == CHANNEL_OPENING)
        step_opening(channel);
    if (session->phase != SESSION_DOWN && channel->state == CHANNEL_ASKING)
        step_asking(channel);
    if (session->phase != SESSION_DOWN && channel->state == CHANNEL_OPEN)
        step_open(channel);
    if (session->phase == SESSION_DOWN)
        return; /* and the channel may be gone */
    if (channel->state == CHANNEL_CLOSING)
        step_closing(channel);
    else
        check_ready(channel);
}

void channel_session_over(struct channel *channel, int err, const char *reason)
{
    struct session *session = channel->session;
    if (channel->freed) {
        leave_session(channel);
        return;
    }
    fail(channel, err, reason);
    TAILQ_REMOVE(&session->channels, channel, entry);
    if (session->opener == channel)
        session->opener = NULL;
    channel->session = NULL;
    channel->ssh = NULL;
    check_ready(channel);
}

static void on_deadline(void *arg)
{
    struct channel *channel = arg;
    char text[200], waited[32];
    if (channel->state == CHANNEL_CLOSING) {
        leave_session(channel); /* the library keeps its part until the session ends */
        return;
    }
    snprintf(text, sizeof text, "has not %s within %s",
             channel->state == CHANNEL_OPENING ? "opened a channel" : "begun the command",
             text_from_duration(channel->deadline_ns, waited, sizeof waited));
    if (channel->state == CHANNEL_OPENING)
        session_fail(channel->session, ERR_TIMEOUT, "%s", text); /* an opening cannot be taken back */
    else
        fail(channel, ERR_TIMEOUT, text);
}

/* ---- the road ---- */

static int road_channel_start(struct road *base, struct why *why)
{
    struct channel *channel = (struct channel *)base;
    if (channel->state == CHANNEL_OVER)
        return why_set(why, channel->why.err, "%s", channel->why.text);
    return channel->state == CHANNEL_OPEN ? 0 : ERR_AGAIN;
}

static void road_channel_want(struct road *base, bool read, bool write)
{
    struct channel *channel = (struct channel *)base;
    bool more = (read && !channel->want_read) || (write && !channel->want_write);
    channel->want_read = read;
    channel->want_write = write;
    check_ready(channel);
    if (more && channel->session)
        session_wake(channel->session);
}

static ssize_t road_channel_read(struct road *base, uint8_t *bytes, size_t room, struct why *why)
{
    struct channel *channel = (struct channel *)base;
    size_t count = buf_used(&channel->in);
    if (count == 0 && channel->ended)
        return why_set(why, ERR_GONE, "closed the connection");
    if (count == 0 && channel->state == CHANNEL_OVER)
        return why_set(why, channel->why.err, "%s", channel->why.text);
    if (count == 0)
        return ERR_AGAIN;
    if (count > room)
        count = room;
    memcpy(bytes, buf_peek(&channel->in), count);
    buf_consume(&channel->in, count);
    if (channel->session)
        session_wake(channel->session);
    return (ssize_t)count;
}

static ssize_t road_channel_write(struct road *base, const uint8_t *bytes, size_t count, struct why *why)
{
    struct channel *channel = (struct channel *)base;
    size_t sent = 0, room;
    if (channel->state == CHANNEL_OVER)
        return why_set(why, channel->why.err, "%s", channel->why.text);
    if (channel->ended || channel->finishing)
        return why_set(why, ERR_GONE, "closed the connection");
    while (sent < count && (room = channel_room(base)) > 0) {
        size_t part = count - sent < room ? count - sent : room;
        ssize_t written = libssh2_channel_write_ex(channel->ssh, 0, (const char *)bytes + sent, part);
        if (written == LIBSSH2_ERROR_EAGAIN || written == 0)
            break;
        if (written < 0) {
            fail_by_library(channel, (int)written, "takes no more");
            break;
        }
        sent += (size_t)written;
        flow_sent(&channel->flow, (size_t)written, clock_now_ns());
    }
    if (channel->state == CHANNEL_OVER)
        return sent ? (ssize_t)sent : why_set(why, channel->why.err, "%s", channel->why.text);
    if (sent) {
        session_flush(channel->session);
        session_wake(channel->session); /* the library may have read for another channel */
    }
    return sent ? (ssize_t)sent : ERR_AGAIN;
}

static int road_channel_finish(struct road *base, struct why *why)
{
    struct channel *channel = (struct channel *)base;
    (void)why;
    channel->finishing = true;
    if (channel->session)
        session_wake(channel->session);
    return 0;
}

static void road_channel_free(struct road *base)
{
    struct channel *channel = (struct channel *)base;
    channel->freed = true;
    if (!channel->session) {
        loop_timer_free(channel->timer);
        buf_clear(&channel->in);
        mem_free(channel->command);
        if (!channel->ready_coming)
            mem_free(channel);
        return;
    }
    if (channel->ssh)
        move_to(channel, CHANNEL_CLOSING);
    session_wake(channel->session);
}

static void road_channel_describe(const struct road *base, char *out, size_t size)
{
    const struct channel *channel = (const struct channel *)base;
    if (channel->command)
        snprintf(out, size, "ssh command");
    else
        snprintf(out, size, "ssh tunnel %s:%u", channel->host, channel->port);
}

static void road_channel_set_queue(struct road *base, size_t bytes)
{
    ((struct channel *)base)->queue_bytes = bytes < QUEUE_BYTES ? bytes : QUEUE_BYTES;
}

static const struct road_ops channel_ops = {
    .name = "ssh",
    .start = road_channel_start,
    .want = road_channel_want,
    .read = road_channel_read,
    .write = road_channel_write,
    .finish = road_channel_finish,
    .free = road_channel_free,
    .describe = road_channel_describe,
    .set_queue = road_channel_set_queue,
};

static struct channel *channel_new(struct session *session, uint64_t open_ns)
{
    struct channel *channel = mem_new(sizeof *channel);
    *channel = (struct channel){.road.ops = &channel_ops,
                                .loop = session->loop,
                                .session = session,
                                .deadline_ns = open_ns,
                                .queue_bytes = QUEUE_BYTES};
    buf_init(&channel->in, IN_BYTES);
    channel->timer = loop_timer_new(session->loop, on_deadline, channel);
    TAILQ_INSERT_TAIL(&session->channels, channel, entry);
    session_wake(session);
    if (session->phase >= SESSION_LEAVING)
        channel_session_over(channel, ERR_GONE, "is not connected any more");
    return channel;
}

struct road *channel_exec(struct session *session, const char *command, uint64_t open_ns)
{
    struct channel *channel = channel_new(session, open_ns);
    channel->command = mem_text(command);
    return &channel->road;
}

struct road *channel_tunnel(struct session *session, const char *host, uint16_t port, uint64_t open_ns)
{
    struct channel *channel = channel_new(session, open_ns);
    snprintf(channel->host, sizeof channel->host, "%s", host);
    channel->port = port;
    return &channel->road;
}

bool channel_exit(const struct road *base, int *status, char signal[32])
{
    const struct channel *channel = (const struct channel *)base;
    if (!channel->status_known)
        return false;
    *status = channel->status;
    memcpy(signal, channel->signal, sizeof channel->signal);
    return true;
}

const char *channel_errors(const struct road *base, char *out, size_t size)
{
    const struct channel *channel = (const struct channel *)base;
    const char *text = channel->errors;
    size_t bytes = channel->errors_bytes;
    while (bytes && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--;
    char line[sizeof channel->errors];
    for (size_t i = 0; i < bytes; i++)
        line[i] = text[i] == '\n' ? ' ' : text[i];
    return text_harmless(line, bytes, out, size);
}
