/*
 * One turn of the loop, in this order: wait for descriptors (not longer than the next timer), run what is ready, run the
 * timers that are due, run what was put off with loop_later. Descriptors come before timers, so that bytes which were
 * waiting while the process slept or computed are heard before a silence timer judges the peer.
 *
 * Timers are ours and not libevent's: a list sorted by deadline in clock_now_ns, so that a test that owns the clock
 * owns the timers too. A process has some dozens of them, mostly set near the end of the list, where the search begins.
 * While the clock is owned, the loop does not wait for timers at all: time passes only by clock_advance_ns
 * (loop_next_ns says how far). The wait ends by a timerfd: poll counts whole milliseconds, which a step over a short road
 * would feel at every message.
 *
 * The poll backend is asked for (EV_FEATURE_FDS): epoll refuses /dev/null and plain files, and for some dozens of
 * descriptors it is not faster.
 */
#include "ssh/link/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define LOOP_SIGNALS 16

TAILQ_HEAD(loop_timers, loop_timer);

struct loop_timer {
    TAILQ_ENTRY(loop_timer) entry;
    struct loop *loop;
    struct loop_timers *in; /* the list it is on: waiting or due; NULL = not armed */
    uint64_t deadline_ns;
    loop_cb *cb;
    void *arg;
};

struct loop_put_off {
    STAILQ_ENTRY(loop_put_off) entry;
    loop_cb *cb;
    void *arg;
};

struct loop_signal {
    struct event *event;
    loop_signal_cb *cb;
    void *arg;
};

struct loop {
    struct event_base *base;
    struct event *alarm;        /* ends the wait of one turn */
    int alarm_fd;
    uint64_t alarm_ns;          /* the deadline that it is set for; 0 = none */
    struct loop_timers waiting; /* by deadline; equal deadlines in order of arming */
    struct loop_timers due;     /* of this turn */
    STAILQ_HEAD(, loop_put_off) later;
    struct loop_signal signals[LOOP_SIGNALS];
    unsigned signal_count;
    unsigned watches, timers, wakes; /* alive, for loop_free to check */
    bool stopped;
};

struct loop_watch {
    struct loop *loop;
    struct event *event;
    int fd;
    short wanted;
    loop_watch_cb *cb;
    void *arg;
};

struct loop_wake {
    struct loop_watch *watch;
    struct loop *loop;
    int fd;
    atomic_bool woken;
    loop_cb *cb;
    void *arg;
};

static void loop_on_alarm(evutil_socket_t fd, short what, void *arg)
{
    struct loop *loop = arg;
    uint64_t rang;
    (void)what;
    if (read(fd, &rang, sizeof rang) == sizeof rang)
        loop->alarm_ns = 0;
}

static bool loop_add_alarm(struct loop *loop)
{
    loop->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (loop->alarm_fd >= 0)
        loop->alarm = event_new(loop->base, loop->alarm_fd, EV_READ | EV_PERSIST, loop_on_alarm, loop);
    return loop->alarm && event_add(loop->alarm, NULL) == 0;
}

static void loop_drop(struct loop *loop)
{
    if (loop->alarm)
        event_free(loop->alarm);
    if (loop->alarm_fd >= 0)
        close(loop->alarm_fd);
    if (loop->base)
        event_base_free(loop->base);
    mem_free(loop);
}

struct loop *loop_new(struct why *why)
{
    struct loop *loop = mem_new(sizeof *loop);
    loop->alarm_fd = -1;
    struct event_config *config = event_config_new();
    if (config && event_config_require_features(config, EV_FEATURE_FDS) == 0 &&
        event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV | EVENT_BASE_FLAG_NOLOCK) == 0)
        loop->base = event_base_new_with_config(config);
    if (config)
        event_config_free(config);
    if (!loop->base || !loop_add_alarm(loop)) {
        if (loop->base)
            why_errno(why, "cannot make the timer of an event loop");
        else
            why_set(why, ERR_SYSTEM, "libevent cannot make an event loop that can watch any descriptor");
        loop_drop(loop);
        return NULL;
    }
    TAILQ_INIT(&loop->waiting);
    TAILQ_INIT(&loop->due);
    STAILQ_INIT(&loop->later);
    /* A peer that goes away is a return value of write, not a reason to die. */
    signal(SIGPIPE, SIG_IGN);
    return loop;
}

static void loop_run_later(struct loop *loop)
{
    /* Only what is there now: what these put off again belongs to the next turn. */
    STAILQ_HEAD(, loop_put_off) now = STAILQ_HEAD_INITIALIZER(now);
    STAILQ_CONCAT(&now, &loop->later);
    struct loop_put_off *one;
    while ((one = STAILQ_FIRST(&now))) {
        STAILQ_REMOVE_HEAD(&now, entry);
        loop_cb *cb = one->cb;
        void *arg = one->arg;
        mem_free(one);
        cb(arg);
    }
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    while (!STAILQ_EMPTY(&loop->later))
        loop_run_later(loop);
    if (loop->watches || loop->timers || loop->wakes)
        BUG("loop freed with %u watches, %u timers and %u wakes still on it", loop->watches, loop->timers, loop->wakes);
    for (unsigned i = 0; i < loop->signal_count; i++)
        event_free(loop->signals[i].event);
    loop_drop(loop);
}

uint64_t loop_next_ns(const struct loop *loop)
{
    if (!STAILQ_EMPTY(&loop->later))
        return 0;
    const struct loop_timer *first = TAILQ_FIRST(&loop->waiting);
    if (!first)
        return UINT64_MAX;
    uint64_t now = clock_now_ns();
    return first->deadline_ns > now ? first->deadline_ns - now : 0;
}

/* For that deadline in clock_now_ns, which may be set already; 0 = for none. */
static void loop_set_alarm(struct loop *loop, uint64_t deadline_ns, uint64_t wait_ns)
{
    if (deadline_ns && deadline_ns == loop->alarm_ns)
        return;
    wait_ns = wait_ns < UINT64_MAX / 2 ? wait_ns : UINT64_MAX / 2; /* time_t may be signed */
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(wait_ns / CLOCK_SECOND), .tv_nsec = (long)(wait_ns % CLOCK_SECOND)}};
    BUG_IF(timerfd_settime(loop->alarm_fd, 0, &when, NULL) != 0);
    loop->alarm_ns = deadline_ns;
}

static void loop_wait(struct loop *loop, uint64_t at_most_ns)
{
    uint64_t next_ns = loop_next_ns(loop);
    if (clock_is_owned() && next_ns > 0)
        next_ns = UINT64_MAX;
    if (next_ns == 0 || at_most_ns == 0) {
        event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NONBLOCK); /* without ONCE it goes on while anything is ready */
        return;
    }
    if (at_most_ns < next_ns)
        loop_set_alarm(loop, 0, at_most_ns);
    else if (next_ns != UINT64_MAX)
        loop_set_alarm(loop, TAILQ_FIRST(&loop->waiting)->deadline_ns, next_ns);
    event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
}

static void loop_run_timers(struct loop *loop)
{
    uint64_t now = clock_now_ns();
    struct loop_timer *timer;
    while ((timer = TAILQ_FIRST(&loop->waiting)) && timer->deadline_ns <= now) {
        TAILQ_REMOVE(&loop->waiting, timer, entry);
        TAILQ_INSERT_TAIL(&loop->due, timer, entry);
        timer->in = &loop->due;
    }
    /* A due timer that is unset, re-armed or freed by an earlier one leaves this list. */
    while ((timer = TAILQ_FIRST(&loop->due))) {
        loop_timer_unset(timer);
        timer->cb(timer->arg);
    }
}

void loop_run_once(struct loop *loop, uint64_t at_most_ns)
{
    loop_wait(loop, at_most_ns);
    loop_run_timers(loop);
    loop_run_later(loop);
}

int loop_run(struct loop *loop)
{
    loop->stopped = false;
    while (!loop->stopped)
        loop_run_once(loop, UINT64_MAX);
    return 0;
}

void loop_stop(struct loop *loop)
{
    loop->stopped = true;
    event_base_loopbreak(loop->base);
}

/* ---- timers ---- */

struct loop_timer *loop_timer_new(struct loop *loop, loop_cb *cb, void *arg)
{
    struct loop_timer *timer = mem_new(sizeof *timer);
    *timer = (struct loop_timer){.loop = loop, .cb = cb, .arg = arg};
    loop->timers++;
    return timer;
}

void loop_timer_unset(struct loop_timer *timer)
{
    if (!timer->in)
        return;
    TAILQ_REMOVE(timer->in, timer, entry);
    timer->in = NULL;
}

void loop_timer_set(struct loop_timer *timer, uint64_t delay_ns)
{
    loop_timer_unset(timer);
    uint64_t now = clock_now_ns();
    timer->deadline_ns = delay_ns < UINT64_MAX - now ? now + delay_ns : UINT64_MAX;
    struct loop_timers *waiting = &timer->loop->waiting;
    struct loop_timer *before = TAILQ_LAST(waiting, loop_timers);
    while (before && before->deadline_ns > timer->deadline_ns)
        before = TAILQ_PREV(before, loop_timers, entry);
    if (before)
        TAILQ_INSERT_AFTER(waiting, before, timer, entry);
    else
        TAILQ_INSERT_HEAD(waiting, timer, entry);
    timer->in = waiting;
}

void loop_timer_free(struct loop_timer *timer)
{
    if (!timer)
        return;
    loop_timer_unset(timer);
    timer->loop->timers--;
    mem_free(timer);
}

/* ---- descriptors ---- */

static void loop_on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct loop_watch *watch = arg;
    watch->cb(fd, what & EV_READ, what & EV_WRITE, watch->arg);
}

struct loop_watch *loop_watch_new(struct loop *loop, int fd, loop_watch_cb *cb, void *arg)
{
    struct loop_watch *watch = mem_new(sizeof *watch);
    *watch = (struct loop_watch){.loop = loop, .fd = fd, .cb = cb, .arg = arg};
    watch->event = event_new(loop->base, fd, EV_READ | EV_WRITE | EV_PERSIST, loop_on_watch, watch);
    if (!watch->event)
        BUG("libevent refuses a watch of descriptor %d", fd);
    loop->watches++;
    return watch;
}

void loop_watch_want(struct loop_watch *watch, bool read, bool write)
{
    short wanted = (short)((read ? EV_READ : 0) | (write ? EV_WRITE : 0));
    if (wanted == watch->wanted)
        return;
    watch->wanted = wanted;
    event_del(watch->event);
    if (!wanted)
        return;
    event_assign(watch->event, watch->loop->base, watch->fd, (short)(wanted | EV_PERSIST), loop_on_watch, watch);
    if (event_add(watch->event, NULL) != 0)
        BUG("libevent cannot watch descriptor %d", watch->fd);
}

void loop_watch_free(struct loop_watch *watch)
{
    if (!watch)
        return;
    event_free(watch->event);
    watch->loop->watches--;
    mem_free(watch);
}

/* ---- signals ---- */

static void loop_on_signal(evutil_socket_t number, short what, void *arg)
{
    (void)what;
    struct loop_signal *mine = arg;
    mine->cb((int)number, mine->arg);
}

int loop_signal(struct loop *loop, int number, loop_signal_cb *cb, void *arg, struct why *why)
{
    BUG_IF(loop->signal_count == LOOP_SIGNALS);
    struct loop_signal *mine = &loop->signals[loop->signal_count];
    *mine = (struct loop_signal){.cb = cb, .arg = arg};
    mine->event = event_new(loop->base, number, EV_SIGNAL | EV_PERSIST, loop_on_signal, mine);
    if (!mine->event || event_add(mine->event, NULL) != 0) {
        if (mine->event)
            event_free(mine->event);
        return why_set(why, ERR_SYSTEM, "cannot watch signal %d (%s)", number, strsignal(number));
    }
    loop->signal_count++;
    return 0;
}

/* ---- other threads ---- */

static void loop_on_wake(int fd, bool readable, bool writable, void *arg)
{
    (void)writable;
    struct loop_wake *wake = arg;
    uint64_t count;
    if (!readable || read(fd, &count, sizeof count) != sizeof count)
        return;
    /* Cleared before the callback looks: a wake during the callback is not lost. */
    atomic_store(&wake->woken, false);
    wake->cb(wake->arg);
}

struct loop_wake *loop_wake_new(struct loop *loop, loop_cb *cb, void *arg)
{
    struct loop_wake *wake = mem_new(sizeof *wake);
    *wake = (struct loop_wake){.loop = loop, .cb = cb, .arg = arg};
    atomic_init(&wake->woken, false);
    wake->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake->fd < 0)
        BUG("eventfd: %s", strerror(errno));
    wake->watch = loop_watch_new(loop, wake->fd, loop_on_wake, wake);
    loop_watch_want(wake->watch, true, false);
    loop->watches--; /* counted as a wake */
    loop->wakes++;
    return wake;
}

void loop_wake(struct loop_wake *wake)
{
    if (atomic_exchange(&wake->woken, true))
        return;
    uint64_t one = 1;
    ssize_t written = write(wake->fd, &one, sizeof one);
    BUG_IF(written != sizeof one);
}

void loop_wake_free(struct loop_wake *wake)
{
    if (!wake)
        return;
    struct loop *loop = wake->loop;
    loop->watches++;
    loop_watch_free(wake->watch);
    loop->wakes--;
    close(wake->fd);
    mem_free(wake);
}

void loop_later(struct loop *loop, loop_cb *cb, void *arg)
{
    struct loop_put_off *one = mem_new(sizeof *one);
    *one = (struct loop_put_off){.cb = cb, .arg = arg};
    STAILQ_INSERT_TAIL(&loop->later, one, entry);
}
