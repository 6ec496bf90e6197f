/* The event loop: order of a turn, timers on an owned clock, wakes from other threads, signals, freeing inside callbacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/link/loop.h"

static struct loop *loop;
static char trace[200];

static void note(const char *word)
{
    size_t used = strlen(trace);
    snprintf(trace + used, sizeof trace - used, "%s ", word);
}

static void *arg_of(const char *word)
{
    return (void *)(uintptr_t)word;
}

static int set_up(void **state)
{
    (void)state;
    struct why why = {0};
    trace[0] = '\0';
    clock_own(CLOCK_SECOND);
    loop = loop_new(&why);
    assert_non_null(loop);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_free(loop);
    clock_disown();
    return 0;
}

static void on_word(void *arg)
{
    note(arg);
}

static void timers_fire_in_order_of_deadline(void **state)
{
    (void)state;
    struct loop_timer *a = loop_timer_new(loop, on_word, arg_of("a")), *b = loop_timer_new(loop, on_word, arg_of("b")),
                      *c = loop_timer_new(loop, on_word, arg_of("c")), *d = loop_timer_new(loop, on_word, arg_of("d"));
    assert_true(loop_next_ns(loop) == UINT64_MAX);
    loop_timer_set(a, 30);
    loop_timer_set(b, 10);
    loop_timer_set(c, 20);
    loop_timer_set(d, 20);
    loop_timer_set(a, 15); /* re-armed */
    assert_int_equal(loop_next_ns(loop), 10);
    loop_run_once(loop, 0);
    assert_string_equal(trace, "");
    clock_advance_ns(15);
    loop_run_once(loop, 0);
    assert_string_equal(trace, "b a ");
    clock_advance_ns(100);
    loop_timer_unset(c);
    loop_run_once(loop, 0);
    loop_run_once(loop, 0);
    assert_string_equal(trace, "b a d ");
    loop_timer_free(a);
    loop_timer_free(b);
    loop_timer_free(c);
    loop_timer_free(d);
    loop_timer_free(NULL);
}

static struct loop_timer *other;

static void on_free_other(void *arg)
{
    note(arg);
    loop_timer_free(other);
}

static void due_timer_may_be_freed_by_another(void **state)
{
    (void)state;
    struct loop_timer *first = loop_timer_new(loop, on_free_other, arg_of("first"));
    other = loop_timer_new(loop, on_word, arg_of("other"));
    loop_timer_set(first, 5);
    loop_timer_set(other, 5);
    clock_advance_ns(5);
    loop_run_once(loop, 0);
    assert_string_equal(trace, "first ");
    loop_timer_free(first);
}

static struct loop_timer *itself;

static void on_again(void *arg)
{
    note(arg);
    loop_timer_set(itself, 0);
}

static void timer_of_no_delay_does_not_spin_inside_a_turn(void **state)
{
    (void)state;
    itself = loop_timer_new(loop, on_again, arg_of("x"));
    loop_timer_set(itself, 0);
    loop_run_once(loop, 0);
    loop_run_once(loop, 0);
    assert_string_equal(trace, "x x ");
    loop_timer_free(itself);
}

static void far_deadlines_do_not_wrap(void **state)
{
    (void)state;
    struct loop_timer *never = loop_timer_new(loop, on_word, arg_of("never"));
    loop_timer_set(never, UINT64_MAX);
    clock_advance_ns(UINT64_C(1) << 62);
    loop_run_once(loop, 0);
    assert_string_equal(trace, "");
    loop_timer_free(never);
}

static void on_readable(int fd, bool readable, bool writable, void *arg)
{
    (void)writable;
    char byte;
    if (readable && read(fd, &byte, 1) == 1)
        note(arg);
}

static void descriptors_come_before_timers_before_later(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct loop_watch *watch = loop_watch_new(loop, ends[0], on_readable, arg_of("readable"));
    struct loop_timer *timer = loop_timer_new(loop, on_word, arg_of("timer"));
    loop_watch_want(watch, true, false);
    loop_later(loop, on_word, arg_of("later"));
    loop_timer_set(timer, 0);
    assert_int_equal(write(ends[1], "xx", 2), 2);
    loop_run_once(loop, CLOCK_SECOND);
    assert_string_equal(trace, "readable timer later ");
    loop_watch_want(watch, false, false); /* a byte is left, and nobody wants it */
    loop_run_once(loop, 0);
    assert_string_equal(trace, "readable timer later ");
    loop_watch_free(watch);
    loop_timer_free(timer);
    close(ends[0]);
    close(ends[1]);
}

static struct loop_watch *own_watch;

static void on_free_watch(int fd, bool readable, bool writable, void *arg)
{
    (void)fd, (void)readable, (void)writable;
    note(arg);
    loop_watch_free(own_watch);
}

static void any_descriptor_can_be_watched(void **state)
{
    (void)state;
    int fd = open("/dev/null", O_RDWR);
    own_watch = loop_watch_new(loop, fd, on_free_watch, arg_of("null"));
    loop_watch_want(own_watch, true, true);
    loop_run_once(loop, CLOCK_SECOND);
    loop_run_once(loop, 0);
    assert_string_equal(trace, "null ");
    close(fd);
}

static void on_later_again(void *arg)
{
    note(arg);
    loop_later(loop, on_word, arg_of("second"));
}

static void later_of_later_is_the_next_turn(void **state)
{
    (void)state;
    loop_later(loop, on_later_again, arg_of("first"));
    assert_int_equal(loop_next_ns(loop), 0);
    loop_run_once(loop, CLOCK_SECOND);
    assert_string_equal(trace, "first ");
    loop_run_once(loop, CLOCK_SECOND);
    assert_string_equal(trace, "first second ");
    loop_later(loop, on_word, arg_of("last")); /* run by loop_free: what is put off is often a release of memory */
}

/* ---- other threads ---- */

#define WAKES 10000
static unsigned produced; /* under the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned woken;

static void on_wake(void *arg)
{
    (void)arg;
    woken++;
    pthread_mutex_lock(&lock);
    bool all = produced == WAKES;
    pthread_mutex_unlock(&lock);
    if (all)
        loop_stop(loop);
}

static void *producer(void *arg)
{
    for (int i = 0; i < WAKES; i++) {
        pthread_mutex_lock(&lock);
        produced++;
        pthread_mutex_unlock(&lock);
        loop_wake(arg);
    }
    return NULL;
}

static void no_wake_is_lost(void **state)
{
    (void)state;
    pthread_t thread;
    clock_disown();
    produced = woken = 0;
    struct loop_wake *wake = loop_wake_new(loop, on_wake, NULL);
    assert_int_equal(pthread_create(&thread, NULL, producer, wake), 0);
    assert_int_equal(loop_run(loop), 0); /* returns only when the last one was seen */
    pthread_join(thread, NULL);
    assert_in_range(woken, 1, WAKES);
    woken = 0;
    loop_wake(wake);
    loop_wake(wake);
    loop_run_once(loop, 0);
    loop_run_once(loop, 0);
    assert_in_range(woken, 1, 2); /* one may be left of the thread's; two wakes are one call */
    loop_wake_free(wake);
}

static void on_signal(int number, void *arg)
{
    assert_int_equal(number, SIGUSR1);
    note(arg);
}

static void signals_are_callbacks(void **state)
{
    (void)state;
    struct why why = {0};
    assert_int_equal(loop_signal(loop, SIGUSR1, on_signal, arg_of("usr1"), &why), 0);
    raise(SIGUSR1);
    loop_run_once(loop, CLOCK_SECOND);
    assert_string_equal(trace, "usr1 ");
}

static void broken_pipe_is_no_death(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(write(ends[1], "x", 1), -1);
    close(ends[1]);
}

static void wait_ends_with_the_next_timer(void **state)
{
    (void)state;
    clock_disown();
    struct loop_timer *timer = loop_timer_new(loop, on_word, arg_of("timer"));
    uint64_t begin_ns = clock_now_ns();
    loop_timer_set(timer, 20 * CLOCK_MS);
    while (!trace[0])
        loop_run_once(loop, 10 * CLOCK_SECOND);
    assert_in_range(clock_now_ns() - begin_ns, 20 * CLOCK_MS, 5 * CLOCK_SECOND);
    loop_timer_free(timer);
}

/* The shortest of many: others may take the processor in any of them. */
static void waits_are_not_whole_milliseconds(void **state)
{
    (void)state;
    clock_disown();
    struct loop_timer *timer = loop_timer_new(loop, on_word, arg_of("timer"));
    uint64_t shortest_ns = UINT64_MAX;
    for (int i = 0; i < 200; i++) {
        uint64_t begin_ns = clock_now_ns();
        trace[0] = '\0';
        loop_timer_set(timer, CLOCK_MS / 5);
        while (!trace[0])
            loop_run_once(loop, CLOCK_SECOND);
        uint64_t took_ns = clock_now_ns() - begin_ns;
        shortest_ns = took_ns < shortest_ns ? took_ns : shortest_ns;
    }
    assert_in_range(shortest_ns, CLOCK_MS / 5, CLOCK_MS - 1);
    loop_timer_free(timer);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(timers_fire_in_order_of_deadline),
        TEST(due_timer_may_be_freed_by_another),
        TEST(timer_of_no_delay_does_not_spin_inside_a_turn),
        TEST(far_deadlines_do_not_wrap),
        TEST(descriptors_come_before_timers_before_later),
        TEST(any_descriptor_can_be_watched),
        TEST(later_of_later_is_the_next_turn),
        TEST(no_wake_is_lost),
        TEST(signals_are_callbacks),
        TEST(broken_pipe_is_no_death),
        TEST(wait_ends_with_the_next_timer),
        TEST(waits_are_not_whole_milliseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
