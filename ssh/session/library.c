/*
 * libssh2 as a session has it: its memory, and the two buffers that it takes for its socket. It is never allowed to block, nor to see
 * the socket.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/text.h"
#include "ssh/session/inner.h"

#define CALL_BYTES ((size_t)192 << 10)   /* more than one call of the library sends: key exchange, or one packet */
#define REPLY_BYTES ((size_t)96 << 10)   /* more than it sends in reply to one buffer (16 KiB) of requests from the peer */
#define LIBSSH2_FREES_ALIKE 0x010b01     /* from then on arena.h, plain */
#define MEMORY_BYTES ((size_t)96 << 20)  /* of the library: 16 channels whose windows are full, twice */

static void *on_library_alloc(size_t bytes, void **abstract)
{
    struct session *session = *abstract;
    return arena_get(&session->memory, bytes);
}

static void *on_library_realloc(void *old, size_t bytes, void **abstract)
{
    struct session *session = *abstract;
    return arena_change(&session->memory, old, bytes);
}

static void on_library_free(void *memory, void **abstract)
{
    struct session *session = *abstract;
    arena_put(&session->memory, memory);
}

static ssize_t on_library_send(libssh2_socket_t socket, const void *bytes, size_t count, int flags, void **abstract)
{
    struct session *session = *abstract;
    (void)socket, (void)flags;
    if (session->deaf)
        return -EPIPE;
    if (buf_put(&session->out, bytes, count) != 0)
        BUG("the SSH library sends %zu bytes where %zu of %zu are taken", count, buf_used(&session->out), session->out.max);
    return (ssize_t)count;
}

static ssize_t on_library_receive(libssh2_socket_t socket, void *bytes, size_t room, int flags, void **abstract)
{
    struct session *session = *abstract;
    (void)socket, (void)flags;
    size_t count = buf_used(&session->in);
    if (session->deaf)
        return 0;
    if (count == 0)
        return session->road_over ? 0 : -EAGAIN;
    if (session->out.max - buf_used(&session->out) < REPLY_BYTES)
        return -EAGAIN;
    if (count > room)
        count = room;
    memcpy(bytes, buf_peek(&session->in), count);
    buf_consume(&session->in, count);
    return (ssize_t)count;
}

static void on_library_disconnect(LIBSSH2_SESSION *ssh, int reason, const char *message, int bytes, const char *language,
                                  int language_bytes, void **abstract)
{
    struct session *session = *abstract;
    (void)ssh, (void)reason, (void)language, (void)language_bytes;
    if (bytes > 0)
        text_harmless(message, (size_t)bytes, session->goodbye, sizeof session->goodbye);
}

static void set_callback(LIBSSH2_SESSION *ssh, int kind, void (*callback)(void))
{
#if LIBSSH2_VERSION_NUM >= 0x010b01
    libssh2_session_callback_set2(ssh, kind, callback);
#else /* it takes a void pointer, which C does not convert functions to: by way of a number */
    libssh2_session_callback_set(ssh, kind, (void *)(uintptr_t)callback);
#endif
}

const char *session_error(struct session *session)
{
    char *text = NULL;
    int bytes = 0;
    libssh2_session_last_error(session->ssh, &text, &bytes, 0);
    return text_harmless(text ? text : "", text ? (size_t)bytes : 0, session->error, sizeof session->error);
}

bool session_has_room(const struct session *session)
{
    return session->out.max - buf_used(&session->out) >= CALL_BYTES;
}

int library_prefer(struct session *session, int kind, const char *names)
{
    const char **known = NULL;
    char wanted[300], list[300] = "", *rest = wanted;
    int count = libssh2_session_supported_algs(session->ssh, kind, &known);
    snprintf(wanted, sizeof wanted, "%s", names);
    for (char *one; (one = strsep(&rest, ","));)
        for (int i = 0; i < count; i++)
            if (strcmp(one, known[i]) == 0)
                snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? "," : "", one);
    if (known)
        libssh2_free(session->ssh, known);
    return libssh2_session_method_pref(session->ssh, kind, list);
}

void library_begin(struct session *session)
{
    arena_init(&session->memory, MEMORY_BYTES, libssh2_version(LIBSSH2_FREES_ALIKE) != NULL);
    session->ssh = libssh2_session_init_ex(on_library_alloc, on_library_free, on_library_realloc, session);
    if (!session->ssh)
        BUG("the SSH library has no memory for a session");
    libssh2_session_set_blocking(session->ssh, 0);
    set_callback(session->ssh, LIBSSH2_CALLBACK_SEND, (void (*)(void))on_library_send);
    set_callback(session->ssh, LIBSSH2_CALLBACK_RECV, (void (*)(void))on_library_receive);
    set_callback(session->ssh, LIBSSH2_CALLBACK_DISCONNECT, (void (*)(void))on_library_disconnect);
}
