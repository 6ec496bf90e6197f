/*
 * The mailbox between two real threads: nothing is lost, doubled or reordered, bounds hold, orders overtake, waits end. Run
 * it under SAN=thread as well.
 */
#include "gpu/train/mail.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/wire/wire.h"

#define LETTERS 3000

struct bench {
    struct loop *loop;
    struct mail *mail;
    pthread_t thread;
    unsigned collected; /* loop thread */
    bool ended;
    /* compute thread, read after the join */
    atomic_uint taken; /* the loop thread may look */
    uint64_t waited_ns;
    int last_err;
    struct mail_roads roads;
};

static struct letter letter_of(unsigned number, size_t bytes, enum mail_road road)
{
    uint8_t *payload = mem_new(bytes);
    memcpy(payload, &number, sizeof number);
    return (struct letter){.type = WIRE_ACT, .road = (uint8_t)road, .step = number, .payload = payload, .bytes = bytes};
}

static void on_wake(void *arg)
{
    struct bench *bench = arg;
    struct letter letter;
    while (mail_collect(bench->mail, &letter) == 0) {
        if (letter.type == MAIL_ENDED) {
            bench->ended = true;
        } else {
            unsigned number;
            memcpy(&number, letter.payload, sizeof number);
            assert_int_equal(number, bench->collected);
            bench->collected++;
        }
        mem_free(letter.payload);
    }
}

static void bench_begin(struct bench *bench, size_t letters, size_t bytes, void *(*work)(void *arg))
{
    memset(bench, 0, sizeof *bench);
    bench->loop = loop_new(NULL);
    assert_non_null(bench->loop);
    bench->mail = mail_new(bench->loop, on_wake, bench, letters, bytes);
    assert_int_equal(pthread_create(&bench->thread, NULL, work, bench), 0);
}

static void bench_end(struct bench *bench)
{
    pthread_join(bench->thread, NULL);
    mail_free(bench->mail);
    loop_free(bench->loop);
}

static void say_ended(struct bench *bench)
{
    struct letter letter = {.type = MAIL_ENDED};
    mail_send(bench->mail, &letter, NULL);
}

/* Sends back what comes. */
static void *echo(void *arg)
{
    struct bench *bench = arg;
    while (bench->taken < LETTERS) {
        struct letter letter;
        int err = mail_take(bench->mail, &letter, CLOCK_SECOND);
        mail_get_roads(bench->mail, &bench->roads);
        if (err == ERR_AGAIN)
            continue;
        unsigned number;
        memcpy(&number, letter.payload, sizeof number);
        if (number != bench->taken++)
            break;
        if (mail_send(bench->mail, &letter, &bench->waited_ns) < 0)
            break;
    }
    say_ended(bench);
    return NULL;
}

static void both_ways_in_order(void **state)
{
    (void)state;
    struct bench bench;
    bench_begin(&bench, 8, 4096, echo);
    unsigned posted = 0;
    while (!bench.ended) {
        for (int i = 0; i < 4 && posted < LETTERS; i++) {
            struct letter letter = letter_of(posted, 16 + posted % 600, MAIL_DOWNSTREAM);
            int err = mail_post(bench.mail, &letter);
            if (err == ERR_FULL) /* taken over and freed: as a link would, we fail; a test tries again */
                break;
            assert_int_equal(err, 0);
            posted++;
        }
        mail_set_roads(bench.mail, &(struct mail_roads){.unsent = {posted, 0}, .delay_ns = posted});
        loop_run_once(bench.loop, CLOCK_MS);
    }
    bench_end(&bench);
    assert_int_equal(bench.taken, LETTERS);
    assert_int_equal(bench.collected, LETTERS);
}

static void *fill_outbox(void *arg)
{
    struct bench *bench = arg;
    for (unsigned i = 0; i < 64; i++) {
        struct letter letter = letter_of(i, 1000, MAIL_DOWNSTREAM);
        bench->last_err = mail_send(bench->mail, &letter, &bench->waited_ns);
        if (bench->last_err)
            break;
        bench->taken++;
    }
    say_ended(bench);
    return NULL;
}

static void full_outbox_waits_and_counts_the_time(void **state)
{
    (void)state;
    struct bench bench;
    bench_begin(&bench, 100, 4000, fill_outbox); /* four letters fit */
    uint64_t began_ns = clock_now_ns();
    while (clock_now_ns() - began_ns < 50 * CLOCK_MS)
        ;
    while (!bench.ended)
        loop_run_once(bench.loop, 10 * CLOCK_MS);
    bench_end(&bench);
    assert_int_equal(bench.collected, 64);
    assert_true(bench.waited_ns > 10 * CLOCK_MS);
}

static void an_order_frees_who_waits_for_room(void **state)
{
    (void)state;
    struct bench bench;
    bench_begin(&bench, 100, 4000, fill_outbox);
    uint64_t began_ns = clock_now_ns();
    while (clock_now_ns() - began_ns < 20 * CLOCK_MS)
        ;
    mail_order(bench.mail, MAIL_STOP);
    while (!bench.ended)
        loop_run_once(bench.loop, 10 * CLOCK_MS);
    bench_end(&bench);
    assert_int_equal(bench.last_err, ERR_GONE);
    assert_int_equal(bench.collected, 4); /* what was in the box still comes out */
}

static void *wait_for_letters(void *arg)
{
    struct bench *bench = arg;
    struct letter letter;
    for (;;) {
        bench->last_err = mail_take(bench->mail, &letter, 100 * CLOCK_SECOND);
        mail_get_roads(bench->mail, &bench->roads);
        if (bench->last_err == ERR_GONE)
            break;
        if (bench->last_err == 0)
            mem_free(letter.payload);
        bench->taken++;
    }
    say_ended(bench);
    return NULL;
}

static void an_order_overtakes_letters_and_waits(void **state)
{
    (void)state;
    struct bench bench;
    bench_begin(&bench, 100, 4000, wait_for_letters);
    mail_order(bench.mail, MAIL_ABANDON);
    struct letter late = letter_of(0, 8, MAIL_UPSTREAM);
    assert_int_equal(mail_post(bench.mail, &late), ERR_GONE);
    while (!bench.ended)
        loop_run_once(bench.loop, 10 * CLOCK_MS);
    assert_int_equal(mail_orders(bench.mail), MAIL_ABANDON);
    bench_end(&bench);
    assert_int_equal(bench.last_err, ERR_GONE);
}

static void news_of_the_roads_end_a_wait(void **state)
{
    (void)state;
    struct bench bench;
    bench_begin(&bench, 100, 4000, wait_for_letters);
    mail_set_roads(bench.mail, &(struct mail_roads){.unsent = {0, 7}, .rate_bps = 9});
    for (int i = 0; i < 20000 && !atomic_load(&bench.taken); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    mail_order(bench.mail, MAIL_STOP);
    while (!bench.ended)
        loop_run_once(bench.loop, 10 * CLOCK_MS);
    bench_end(&bench);
    assert_int_equal(bench.taken, 1);
    assert_int_equal(bench.roads.unsent[1], 7);
    assert_int_equal(bench.roads.rate_bps, 9);
}

static void *do_nothing(void *arg)
{
    (void)arg;
    return NULL;
}

static void bounds_hold_and_leftovers_are_freed(void **state)
{
    (void)state;
    struct bench bench;
    bench_begin(&bench, 3, 1000, do_nothing);
    struct letter big = letter_of(0, 5000, MAIL_UPSTREAM); /* one letter always fits: its size was checked by the wire */
    assert_int_equal(mail_post(bench.mail, &big), 0);
    struct letter more = letter_of(1, 8, MAIL_UPSTREAM);
    assert_int_equal(mail_post(bench.mail, &more), ERR_FULL);
    bench_end(&bench);
    bench_begin(&bench, 3, 1000, do_nothing);
    for (unsigned i = 0; i < 3; i++) {
        struct letter letter = letter_of(i, 8, MAIL_UPSTREAM);
        assert_int_equal(mail_post(bench.mail, &letter), 0);
    }
    struct letter fourth = letter_of(3, 8, MAIL_UPSTREAM);
    assert_int_equal(mail_post(bench.mail, &fourth), ERR_FULL);
    bench_end(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_in_order),
        cmocka_unit_test(full_outbox_waits_and_counts_the_time),
        cmocka_unit_test(an_order_frees_who_waits_for_room),
        cmocka_unit_test(an_order_overtakes_letters_and_waits),
        cmocka_unit_test(news_of_the_roads_end_a_wait),
        cmocka_unit_test(bounds_hold_and_leftovers_are_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
