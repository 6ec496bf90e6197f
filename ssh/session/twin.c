#include "ssh/session/twin.h"

#include <pthread.h>
#include <string.h>

#include "ssh/base/buf.h"
#include "ssh/base/mem.h"
#include "ssh/session/inner.h"

#define LINES_BYTES ((size_t)16 << 10) /* of the host, until the owner's loop turns */

struct twin {
    struct sender_callbacks callbacks;
    void *arg;
    struct session *first;    /* whose twin it is */
    bool came, over;          /* it was let in and wants orders; its end was told */
    struct loop_wake *told;   /* on the owner's loop: something is there for it */
    pthread_t thread;
    bool runs;
    struct loop *loop;        /* the thread's, and what is on it: */
    struct loop_wake *asked;
    struct session *session;
    struct sender *sender;
    struct compress *compress;

    pthread_mutex_t mutex; /* of what follows */
    bool leave;               /* to the thread, */
    bool ordered, last;
    struct order order;
    bool wants, ended;        /* and from it */
    struct buf lines;         /* each with its zero byte */
    struct why why;
    int status;
};

/* ---- on the twin's thread ---- */

static void tell_end(struct twin *twin, int err, int status, const char *reason)
{
    pthread_mutex_lock(&twin->mutex);
    if (!twin->ended) {
        twin->ended = true;
        twin->status = status;
        why_set(&twin->why, err, "%s", reason);
    }
    pthread_mutex_unlock(&twin->mutex);
    loop_wake(twin->told);
}

static void on_ended(int err, int status, const char *reason, void *arg)
{
    tell_end(arg, err, status, reason);
}

static void on_down(struct session *session, int err, const char *reason, void *arg)
{
    (void)session;
    tell_end(arg, err, -1, reason);
}

static enum shell_next on_line(const char *line, void *arg)
{
    struct twin *twin = arg;
    pthread_mutex_lock(&twin->mutex);
    bool fits = buf_put(&twin->lines, line, strlen(line) + 1) == 0;
    pthread_mutex_unlock(&twin->mutex);
    if (fits)
        loop_wake(twin->told);
    else
        tell_end(twin, ERR_INVALID, -1, "it says more than it was asked");
    return SHELL_ON;
}

static bool on_wants(void *arg)
{
    struct twin *twin = arg;
    pthread_mutex_lock(&twin->mutex);
    twin->wants = true;
    pthread_mutex_unlock(&twin->mutex);
    loop_wake(twin->told);
    return true;
}

static void on_asked(void *arg)
{
    struct twin *twin = arg;
    pthread_mutex_lock(&twin->mutex);
    struct order order = twin->order;
    bool ordered = twin->ordered, last = twin->last, leave = twin->leave;
    twin->ordered = twin->last = false;
    pthread_mutex_unlock(&twin->mutex);
    if (ordered && order.compress) { /* that one is the owner's */
        if (!twin->compress)
            twin->compress = compress_new(compress_program(order.compress));
        order.compress = twin->compress;
    }
    if (leave)
        loop_stop(twin->loop);
    else if (ordered || last)
        sender_order(twin->sender, ordered ? &order : NULL);
}

static void *run(void *arg)
{
    struct twin *twin = arg;
    loop_run(twin->loop);
    return NULL;
}

/* ---- on the owner's ---- */

static void on_told(void *arg)
{
    struct twin *twin = arg;
    pthread_mutex_lock(&twin->mutex);
    size_t bytes = buf_used(&twin->lines);
    char *lines = mem_copy(buf_peek(&twin->lines), bytes);
    bool wants = twin->wants && !twin->ended, ended = twin->ended && !twin->over;
    buf_consume(&twin->lines, bytes);
    twin->wants = false;
    pthread_mutex_unlock(&twin->mutex);
    twin->came |= wants;
    twin->over |= ended;
    if (ended && !twin->came)
        twin->first->alone = true;
    enum shell_next next = SHELL_ON;
    for (size_t at = 0; at < bytes && next != SHELL_GONE; at += strlen(lines + at) + 1)
        next = twin->callbacks.line(lines + at, twin->arg);
    mem_free(lines);
    if (next == SHELL_GONE || (wants && !twin->callbacks.wants(twin->arg)))
        return;
    if (ended)
        twin->callbacks.ended(twin->why.err, twin->status, twin->why.text, twin->arg); /* nobody writes them any more */
}

void twin_order(struct twin *twin, const struct order *order)
{
    pthread_mutex_lock(&twin->mutex);
    twin->ordered = order != NULL;
    twin->last = !order;
    if (order)
        twin->order = *order;
    pthread_mutex_unlock(&twin->mutex);
    loop_wake(twin->asked);
}

struct twin *twin_new(struct loop *loop, struct session *session, const char *command, uint64_t open_ns,
                      const struct source *source, const struct sender_callbacks *callbacks, void *arg)
{
    static const struct session_callbacks of_session = {.down = on_down};
    static const struct sender_callbacks of_sender = {.wants = on_wants, .line = on_line, .ended = on_ended};
    struct loop *own = session->alone ? NULL : loop_new(&(struct why){0});
    struct road *road = own ? road_tcp_again(own, session->road) : NULL;
    if (!road) {
        loop_free(own);
        return NULL;
    }
    struct twin *twin = mem_new(sizeof *twin);
    *twin = (struct twin){.callbacks = *callbacks, .arg = arg, .first = session, .loop = own, .told = loop_wake_new(loop, on_told, twin)};
    pthread_mutex_init(&twin->mutex, NULL);
    buf_init(&twin->lines, LINES_BYTES);
    twin->asked = loop_wake_new(own, on_asked, twin);
    twin->session = session_new(own, road, &session->settings, &of_session, twin);
    twin->sender = sender_new(twin->session, command, open_ns, source, &of_sender, twin);
    twin->runs = pthread_create(&twin->thread, NULL, run, twin) == 0;
    if (!twin->runs) {
        twin_free(twin);
        return NULL;
    }
    return twin;
}

void twin_free(struct twin *twin)
{
    if (!twin)
        return;
    pthread_mutex_lock(&twin->mutex);
    twin->leave = true;
    pthread_mutex_unlock(&twin->mutex);
    loop_wake(twin->asked);
    if (twin->runs)
        pthread_join(twin->thread, NULL);
    sender_free(twin->sender);
    session_free(twin->session);
    compress_free(twin->compress);
    loop_wake_free(twin->asked);
    loop_free(twin->loop);
    loop_wake_free(twin->told);
    buf_clear(&twin->lines);
    pthread_mutex_destroy(&twin->mutex);
    mem_free(twin);
}
