#include "ssh/session/session.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/session/inner.h"

#define BUFFER_BYTES ((size_t)512 << 10) /* each way */
#define QUEUE_BYTES ((size_t)256 << 10)  /* of them in the kernel: with less it and the peer wake each other at every packet */
#define NO_SOCKET INT_MAX                /* the library wants a number, and only asks fcntl about it, which says no */
#define CIPHERS "aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr" /* the fast ones first */
#define PROBE_AGAIN_NS (500 * CLOCK_MS)

const char *session_phase_name(enum session_phase phase)
{
    static const char *const names[] = {
        [SESSION_CONNECTING] = "connecting",
        [SESSION_GREETING] = "greeting",
        [SESSION_TRUSTING] = "checking the host key",
        [SESSION_PROVING] = "logging in",
        [SESSION_UP] = "up",
        [SESSION_LEAVING] = "leaving",
        [SESSION_DOWN] = "down",
    };
    return names[phase];
}

/* ---- the road's end ---- */

static void fill_in(struct session *session)
{
    while (!session->road_over) {
        size_t room = session->in.max - buf_used(&session->in);
        if (room > 65536)
            room = 65536;
        uint8_t *at = room ? buf_reserve(&session->in, room) : NULL;
        if (!at)
            return;
        ssize_t got = road_read(session->road, at, room, &session->over);
        if (got == ERR_AGAIN)
            return;
        if (got < 0) {
            session->road_over = true;
            return;
        }
        buf_commit(&session->in, (size_t)got);
        session->heard_ns = clock_now_ns();
        session->probed_ns = 0;
    }
}

void session_flush(struct session *session)
{
    if (session->phase == SESSION_CONNECTING || session->phase == SESSION_DOWN)
        return;
    while (buf_used(&session->out) && !session->road_over) {
        struct why why = {0};
        ssize_t sent = road_write(session->road, buf_peek(&session->out), buf_used(&session->out), &why);
        if (sent == ERR_AGAIN)
            break;
        if (sent < 0) {
            /* What came before the end may still be read. */
            session->over = why;
            fill_in(session);
            session->road_over = true;
            break;
        }
        buf_consume(&session->out, (size_t)sent);
    }
    road_want(session->road, !session->road_over && buf_used(&session->in) < session->in.max,
              !session->road_over && buf_used(&session->out));
}

/* ---- states ---- */

void session_set_deadline(struct session *session, uint64_t ns)
{
    loop_timer_set(session->timer, ns);
}

static void move_to(struct session *session, enum session_phase phase)
{
    log_at(LOG_DEBUG, "ssh", "%s: %s → %s", session->settings.name, session_phase_name(session->phase),
           session_phase_name(phase));
    session->phase = phase;
    if (phase < SESSION_UP)
        session_set_deadline(session, session->settings.greet_ns);
}

static void end_channels(struct session *session, int err, const char *reason)
{
    struct channel *channel;
    while ((channel = TAILQ_FIRST(&session->channels)))
        channel_session_over(channel, err, reason); /* takes itself off the list */
}

void session_fail(struct session *session, int err, const char *format, ...)
{
    char text[SESSION_REASON - 140];
    if (session->phase == SESSION_DOWN)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    move_to(session, SESSION_DOWN);
    loop_timer_unset(session->timer);
    road_want(session->road, false, false);
    session->down_err = err;
    snprintf(session->down_reason, sizeof session->down_reason, "%s %s", session->settings.name, text);
    session->tell_down = true;
    session->tell_ask = session->tell_up = false;
    end_channels(session, err ? err : ERR_GONE, text);
    session_wake(session);
}

/* The library says that the connection is over, or that it does not understand the peer. */
void session_fail_by_library(struct session *session, int code)
{
    const char *phase = session_phase_name(session->phase);
    if (session->goodbye[0])
        session_fail(session, ERR_GONE, "ended the session while %s: %s", phase, session->goodbye);
    else if (session->road_over)
        session_fail(session, session->over.err ? session->over.err : ERR_GONE, "%s (while %s)",
                     session->over.text[0] ? session->over.text : "closed the connection", phase);
    else
        session_fail(session, ERR_INVALID, "does not speak SSH as expected (while %s): %s (%d)", phase,
                     session_error(session), code);
}

static void step_connecting(struct session *session)
{
    struct why why = {0};
    int err = road_start(session->road, &why);
    if (err == ERR_AGAIN)
        return;
    if (err) {
        session_fail(session, err, "%s", why.text);
        return;
    }
    session->heard_ns = clock_now_ns();
    move_to(session, SESSION_GREETING);
    char types[200];
    hostkey_types(&session->settings.policy, session->settings.host, session->settings.port, types, sizeof types);
    if (library_prefer(session, LIBSSH2_METHOD_CRYPT_CS, CIPHERS) != 0 || library_prefer(session, LIBSSH2_METHOD_CRYPT_SC, CIPHERS) != 0)
        BUG("the SSH library has none of the ciphers %s", CIPHERS);
    if (library_prefer(session, LIBSSH2_METHOD_HOSTKEY, types) != 0)
        session_fail(session, ERR_SYSTEM, "cannot be greeted: the SSH library has none of the key types %s", types);
}

static void judge_host_key(struct session *session)
{
    const struct session_settings *settings = &session->settings;
    struct why why = {0};
    size_t bytes;
    int type, verdict;
    const uint8_t *key = (const uint8_t *)libssh2_session_hostkey(session->ssh, &bytes, &type);
    verdict = key ? hostkey_judge(&settings->policy, settings->host, settings->port, key, bytes, NULL, &why)
                  : why_set(&why, ERR_INVALID, "there is no host key");
    if (verdict == HOSTKEY_UNKNOWN && settings->policy.accept_new)
        verdict = hostkey_save(&settings->policy, settings->host, settings->port, key, bytes, &why) ? HOSTKEY_REFUSED
                                                                                                    : HOSTKEY_TRUSTED;
    move_to(session, SESSION_TRUSTING);
    if (verdict == HOSTKEY_TRUSTED) {
        move_to(session, SESSION_PROVING);
        session->auth = auth_new(session);
        return;
    }
    char words[160], art[HOSTKEY_ART];
    if (verdict == HOSTKEY_UNKNOWN &&
        session_ask(session, ASK_HOST_KEY, false, hostkey_art(key, bytes, art), "the key of %s (%s:%u) is not known: %s",
                    settings->name, settings->host, settings->port, hostkey_words(key, bytes, words, sizeof words)))
        return;
    session_fail(session, verdict < 0 ? verdict : ERR_REFUSED, "is not trusted: %s", why.text);
}

static void step_greeting(struct session *session)
{
    if (!session_has_room(session))
        return;
    int code = libssh2_session_handshake(session->ssh, NO_SOCKET);
    if (code == LIBSSH2_ERROR_EAGAIN)
        return;
    if (code)
        session_fail_by_library(session, code);
    else
        judge_host_key(session);
}

static void step_trusting(struct session *session)
{
    const struct session_settings *settings = &session->settings;
    struct why why = {0};
    size_t bytes;
    int type;
    if (!session->answered)
        return;
    char *answer = session_take_answer(session);
    bool save = answer && strcmp(answer, "save") == 0, once = answer && strcmp(answer, "once") == 0;
    session_wipe(answer);
    const uint8_t *key = (const uint8_t *)libssh2_session_hostkey(session->ssh, &bytes, &type);
    if (!save && !once) {
        session_fail(session, ERR_REFUSED, "is not trusted: its key was refused");
    } else if (save && hostkey_save(&settings->policy, settings->host, settings->port, key, bytes, &why) != 0) {
        session_fail(session, why.err, "is trusted, but %s", why.text);
    } else {
        move_to(session, SESSION_PROVING);
        session->auth = auth_new(session);
    }
}

static void step_proving(struct session *session)
{
    struct why why = {0};
    if (!session_has_room(session))
        return;
    int err = auth_step(session->auth, &why);
    if (err == ERR_AGAIN)
        return;
    if (err && why.text[0] == '\0') {
        session_fail_by_library(session, libssh2_session_last_errno(session->ssh));
    } else if (err) {
        session_fail(session, err, "%s", why.text);
    } else {
        auth_free(session->auth);
        session->auth = NULL;
        move_to(session, SESSION_UP);
        libssh2_keepalive_config(session->ssh, 1, 2);
        session_set_deadline(session, session->settings.silent_ns / 2);
        session->tell_up = true;
        session_wake(session);
    }
}

static void step_up(struct session *session)
{
    size_t before;
    do { /* what one channel's call reads may be for another one */
        before = buf_used(&session->in);
        for (struct channel *channel = TAILQ_FIRST(&session->channels), *next; channel; channel = next) {
            next = TAILQ_NEXT(channel, entry);
            channel_pump(channel);
            if (session->phase == SESSION_DOWN)
                return;
        }
    } while (buf_used(&session->in) != before);
    if (session->road_over && buf_used(&session->in) == 0)
        session_fail_by_library(session, LIBSSH2_ERROR_SOCKET_DISCONNECT);
}

static void step_leaving(struct session *session)
{
    if (session->road_over || buf_used(&session->out) == 0)
        session_fail(session, 0, "was left");
}

static void session_step(struct session *session)
{
    static void (*const steps[])(struct session *) = {
        [SESSION_CONNECTING] = step_connecting,
        [SESSION_GREETING] = step_greeting,
        [SESSION_TRUSTING] = step_trusting,
        [SESSION_PROVING] = step_proving,
        [SESSION_UP] = step_up,
        [SESSION_LEAVING] = step_leaving,
    };
    if (session->phase > SESSION_CONNECTING && session->phase < SESSION_DOWN)
        fill_in(session);
    /* A step may end a phase and leave bytes that the next phase can use at once. */
    for (enum session_phase before = SESSION_DOWN; session->phase != before && session->phase != SESSION_DOWN;) {
        before = session->phase;
        steps[before](session);
    }
    if (session->phase > SESSION_GREETING && session->phase < SESSION_UP && session->road_over &&
        buf_used(&session->in) == 0)
        session_fail_by_library(session, LIBSSH2_ERROR_SOCKET_DISCONNECT);
    session_flush(session);
}

/* ---- telling the owner: one thing a turn, and nothing is touched behind it ---- */

static void session_tell(struct session *session)
{
    const struct session_callbacks *callbacks = &session->callbacks;
    if (session->tell_up) {
        session->tell_up = false;
        session_wake(session);
        if (callbacks->up)
            callbacks->up(session, session->arg);
    } else if (session->tell_ask) {
        const struct session_question question = {session->asked, session->question, session->art, session->question_hidden};
        session->tell_ask = false;
        callbacks->ask(session, &question, session->arg);
    } else if (session->tell_down) {
        session->tell_down = false;
        callbacks->down(session, session->down_err, session->down_reason, session->arg);
    }
}

static void on_ready(void *arg)
{
    struct session *session = arg;
    session_step(session);
    session_tell(session);
}

static void on_later(void *arg)
{
    struct session *session = arg;
    session->later_coming = false;
    if (session->freed)
        mem_free(session);
    else
        on_ready(session);
}

void session_wake(struct session *session)
{
    if (session->later_coming)
        return;
    session->later_coming = true;
    loop_later(session->loop, on_later, session);
}

/* ---- silence and other deadlines ---- */

/* Nothing was heard for a while: ask for an answer. The request goes out whole or not at all. */
static void probe(struct session *session)
{
    int next;
    size_t before = buf_used(&session->out);
    if (session_has_room(session))
        libssh2_keepalive_send(session->ssh, &next);
    if (buf_used(&session->out) != before || !session_has_room(session))
        session->probed_ns = clock_now_ns();
    session_flush(session);
}

static void on_silence(struct session *session)
{
    uint64_t now = clock_now_ns(), half = session->settings.silent_ns / 2, quiet = now - session->heard_ns;
    char waited[32];
    if (session->probed_ns && now - session->probed_ns >= half) {
        session_fail(session, ERR_TIMEOUT, "has been silent for %s", text_from_duration(quiet, waited, sizeof waited));
    } else if (session->probed_ns) {
        session_set_deadline(session, half - (now - session->probed_ns));
    } else if (quiet < half) {
        session_set_deadline(session, half - quiet);
    } else {
        probe(session);
        session_set_deadline(session, session->probed_ns ? half : PROBE_AGAIN_NS);
    }
}

static void on_deadline(void *arg)
{
    struct session *session = arg;
    char waited[32];
    if (session->phase == SESSION_UP) {
        on_silence(session);
    } else if (session->phase == SESSION_LEAVING) {
        session_fail(session, 0, "was left");
    } else if (session->asking) {
        session_fail(session, ERR_TIMEOUT, "was left waiting: nobody answered within %s",
                     text_from_duration(session->settings.ask_ns, waited, sizeof waited));
    } else {
        session_fail(session, ERR_TIMEOUT,
                     "does not answer: nothing for %s while %s; is it up, and does a firewall drop port %u?",
                     text_from_duration(session->settings.greet_ns, waited, sizeof waited),
                     session_phase_name(session->phase), session->settings.port);
    }
}

/* ---- questions ---- */

bool session_ask(struct session *session, enum session_ask kind, bool hidden, const char *art, const char *format, ...)
{
    if (!session->callbacks.ask)
        return false;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(session->question, sizeof session->question, format, arguments);
    va_end(arguments);
    snprintf(session->art, sizeof session->art, "%s", art);
    session->asked = kind;
    session->question_hidden = hidden;
    session->asking = session->tell_ask = session->alone = true;
    session->answered = false;
    session_set_deadline(session, session->settings.ask_ns);
    session_wake(session);
    return true;
}

void session_wipe(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    mem_free(secret);
}

void session_answer(struct session *session, const char *answer)
{
    if (!session->asking || session->phase == SESSION_DOWN)
        return;
    session->asking = false;
    session->answered = true;
    session->answer = answer ? mem_text(answer) : NULL;
    session_set_deadline(session, session->settings.greet_ns);
    session_wake(session);
}

char *session_take_answer(struct session *session)
{
    char *answer = session->answer;
    session->answer = NULL;
    session->answered = false;
    return answer;
}

/* ---- life ---- */

struct session *session_new(struct loop *loop, struct road *road, const struct session_settings *settings,
                            const struct session_callbacks *callbacks, void *arg)
{
    struct session *session = mem_new(sizeof *session);
    *session = (struct session){.loop = loop, .road = road, .settings = *settings, .callbacks = *callbacks, .arg = arg};
    TAILQ_INIT(&session->channels);
    session_enlist(session);
    buf_init(&session->in, BUFFER_BYTES);
    buf_init(&session->out, BUFFER_BYTES);
    library_begin(session);
    session->timer = loop_timer_new(loop, on_deadline, session);
    session->phase = SESSION_CONNECTING;
    session_set_deadline(session, settings->greet_ns);
    road_on_ready(road, on_ready, session);
    road_set_queue(road, QUEUE_BYTES);
    road_want(road, true, true);
    session_wake(session);
    return session;
}

void session_close(struct session *session, uint64_t linger_ns)
{
    if (session->phase == SESSION_DOWN || session->phase == SESSION_LEAVING)
        return;
    if (session->phase != SESSION_UP) {
        session_fail(session, 0, "was left");
        return;
    }
    end_channels(session, ERR_GONE, "was left");
    if (session_has_room(session))
        libssh2_session_disconnect(session->ssh, "done");
    move_to(session, SESSION_LEAVING);
    session_set_deadline(session, linger_ns);
    session_wake(session);
}

void session_free(struct session *session)
{
    if (!session)
        return;
    session_delist(session);
    end_channels(session, ERR_GONE, "was left");
    session->deaf = true; /* before a conversation is given up: its last words go nowhere */
    auth_free(session->auth);
    if (libssh2_session_free(session->ssh) == LIBSSH2_ERROR_EAGAIN)
        BUG("the SSH library will not let go of a session");
    arena_clear(&session->memory);
    road_free(session->road);
    loop_timer_free(session->timer);
    buf_clear(&session->in);
    buf_clear(&session->out);
    session_wipe(session->answer);
    session->answer = NULL;
    session->freed = true;
    if (!session->later_coming)
        mem_free(session);
}

enum session_phase session_get_phase(const struct session *session)
{
    return session->phase;
}

const struct session_settings *session_get_settings(const struct session *session)
{
    return &session->settings;
}

uint64_t session_heard_ns_ago(const struct session *session)
{
    return session->heard_ns ? clock_now_ns() - session->heard_ns : 0;
}
