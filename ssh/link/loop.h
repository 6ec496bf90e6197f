/*
 * The event loop: libevent behind five nouns (loop, timer, watch, signal, wake), so that nobody else includes it. One
 * loop belongs to one thread; only loop_wake may be called from another. Timers go by clock_now_ns, so a test that owns
 * the clock owns them. Every descriptor can be watched, plain files and /dev/null too. loop_new ignores SIGPIPE for the
 * process.
 */
#ifndef KEDGE_LINK_LOOP_H
#define KEDGE_LINK_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/why.h"

struct loop;
struct loop_timer;
struct loop_watch;

typedef void loop_cb(void *arg);
typedef void loop_watch_cb(int fd, bool readable, bool writable, void *arg);
typedef void loop_signal_cb(int number, void *arg);

struct loop *loop_new(struct why *why);
void loop_free(struct loop *loop); /* everything on it must be gone, but signals */
int loop_run(struct loop *loop);   /* until loop_stop; 0 */
void loop_run_once(struct loop *loop, uint64_t at_most_ns); /* one turn, waiting at most that long: for tests */
void loop_stop(struct loop *loop);
/* Until the next timer; 0 = something is to be done now, UINT64_MAX = no timer. A simulation advances its clock by it. */
uint64_t loop_next_ns(const struct loop *loop);

struct loop_timer *loop_timer_new(struct loop *loop, loop_cb *cb, void *arg); /* not armed */
void loop_timer_set(struct loop_timer *timer, uint64_t delay_ns);             /* arm or re-arm, once */
void loop_timer_unset(struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer); /* NULL is fine */

struct loop_watch *loop_watch_new(struct loop *loop, int fd, loop_watch_cb *cb, void *arg); /* watches nothing yet */
void loop_watch_want(struct loop_watch *watch, bool read, bool write);
void loop_watch_free(struct loop_watch *watch); /* does not close fd; NULL is fine */

/* SIGINT, SIGTERM, SIGCHLD, SIGWINCH … as loop callbacks; freed with the loop. */
int loop_signal(struct loop *loop, int number, loop_signal_cb *cb, void *arg, struct why *why);

/* Call `cb` on the loop's thread soon, once per turn however often it was woken. Safe from any thread. */
struct loop_wake;
struct loop_wake *loop_wake_new(struct loop *loop, loop_cb *cb, void *arg);
void loop_wake(struct loop_wake *wake);
void loop_wake_free(struct loop_wake *wake);

/* Run `cb` at the end of this turn: the way to free a thing from inside its own callback. */
void loop_later(struct loop *loop, loop_cb *cb, void *arg);

#endif
