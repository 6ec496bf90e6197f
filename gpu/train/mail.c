/* See mail.h. One mutex guards both queues, the orders and the roads' numbers; it is held for moments only. */
#include "gpu/train/mail.h"

#include <pthread.h>
#include <time.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

#define SPARE_LETTERS 64 /* of the outbox for the words to kedged: no order may make them wait */

struct queue {
    struct letter *letters; /* ring of `capacity` */
    size_t capacity, first, count, bytes, most_letters, most_bytes;
};

struct mail {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the compute thread */
    struct queue inbox, outbox;
    unsigned orders;
    bool looked; /* the compute thread has seen the newest `roads` */
    struct mail_roads roads;
    struct loop_wake *wake;
};

static void queue_init(struct queue *queue, size_t most_letters, size_t most_bytes)
{
    *queue =
        (struct queue){.capacity = most_letters + SPARE_LETTERS, .most_letters = most_letters, .most_bytes = most_bytes};
    queue->letters = mem_array(queue->capacity, sizeof *queue->letters);
}

static bool queue_has_room(const struct queue *queue, size_t bytes)
{
    return queue->count < queue->most_letters && (queue->count == 0 || queue->bytes + bytes <= queue->most_bytes);
}

static void queue_put(struct queue *queue, const struct letter *letter)
{
    BUG_IF(queue->count == queue->capacity);
    queue->letters[(queue->first + queue->count++) % queue->capacity] = *letter;
    queue->bytes += letter->bytes;
}

static int queue_get(struct queue *queue, struct letter *letter)
{
    if (queue->count == 0)
        return ERR_AGAIN;
    *letter = queue->letters[queue->first];
    queue->first = (queue->first + 1) % queue->capacity;
    queue->count--;
    queue->bytes -= letter->bytes;
    return 0;
}

static void queue_clear(struct queue *queue)
{
    struct letter letter;
    while (queue_get(queue, &letter) == 0)
        mem_free(letter.payload);
}

struct mail *mail_new(struct loop *loop, loop_cb *wake, void *arg, size_t most_letters, size_t most_bytes)
{
    BUG_IF(most_letters == 0 || most_bytes == 0);
    struct mail *mail = mem_new(sizeof *mail);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    if (pthread_mutex_init(&mail->lock, NULL) != 0 || pthread_cond_init(&mail->changed, &monotonic) != 0)
        BUG("no mutex or condition variable");
    pthread_condattr_destroy(&monotonic);
    queue_init(&mail->inbox, most_letters, most_bytes);
    queue_init(&mail->outbox, most_letters, most_bytes);
    mail->looked = true;
    mail->wake = loop_wake_new(loop, wake, arg);
    return mail;
}

void mail_free(struct mail *mail)
{
    if (!mail)
        return;
    loop_wake_free(mail->wake);
    queue_clear(&mail->inbox);
    queue_clear(&mail->outbox);
    mem_free(mail->inbox.letters);
    mem_free(mail->outbox.letters);
    pthread_cond_destroy(&mail->changed);
    pthread_mutex_destroy(&mail->lock);
    mem_free(mail);
}

int mail_post(struct mail *mail, const struct letter *letter)
{
    int err = 0;
    pthread_mutex_lock(&mail->lock);
    if (mail->orders)
        err = ERR_GONE;
    else if (!queue_has_room(&mail->inbox, letter->bytes))
        err = ERR_FULL;
    else
        queue_put(&mail->inbox, letter);
    pthread_cond_signal(&mail->changed);
    pthread_mutex_unlock(&mail->lock);
    if (err)
        mem_free(letter->payload);
    return err;
}

int mail_collect(struct mail *mail, struct letter *letter)
{
    pthread_mutex_lock(&mail->lock);
    int err = queue_get(&mail->outbox, letter);
    pthread_cond_signal(&mail->changed);
    pthread_mutex_unlock(&mail->lock);
    return err;
}

void mail_order(struct mail *mail, enum mail_order order)
{
    pthread_mutex_lock(&mail->lock);
    mail->orders |= order;
    queue_clear(&mail->inbox);
    pthread_cond_signal(&mail->changed);
    pthread_mutex_unlock(&mail->lock);
}

void mail_set_roads(struct mail *mail, const struct mail_roads *roads)
{
    pthread_mutex_lock(&mail->lock);
    bool left = roads->unsent[0] != mail->roads.unsent[0] || roads->unsent[1] != mail->roads.unsent[1];
    mail->roads = *roads;
    if (left) { /* what a wait is counted as may change */
        mail->looked = false;
        pthread_cond_signal(&mail->changed);
    }
    pthread_mutex_unlock(&mail->lock);
}

void mail_get_roads(struct mail *mail, struct mail_roads *roads)
{
    pthread_mutex_lock(&mail->lock);
    *roads = mail->roads;
    mail->looked = true;
    pthread_mutex_unlock(&mail->lock);
}

unsigned mail_orders(struct mail *mail)
{
    pthread_mutex_lock(&mail->lock);
    unsigned orders = mail->orders;
    pthread_mutex_unlock(&mail->lock);
    return orders;
}

static struct timespec moment_after(uint64_t wait_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t nanoseconds = (uint64_t)now.tv_nsec + wait_ns % CLOCK_SECOND;
    now.tv_sec += (time_t)(wait_ns / CLOCK_SECOND + nanoseconds / CLOCK_SECOND);
    now.tv_nsec = (long)(nanoseconds % CLOCK_SECOND);
    return now;
}

int mail_take(struct mail *mail, struct letter *letter, uint64_t at_most_ns)
{
    struct timespec deadline = moment_after(at_most_ns);
    int err, late = 0;
    pthread_mutex_lock(&mail->lock);
    for (;;) {
        err = mail->orders ? ERR_GONE : queue_get(&mail->inbox, letter);
        if (err != ERR_AGAIN || !mail->looked || late)
            break;
        late = pthread_cond_timedwait(&mail->changed, &mail->lock, &deadline);
    }
    pthread_mutex_unlock(&mail->lock);
    return err;
}

int mail_send(struct mail *mail, const struct letter *letter, uint64_t *waited_ns)
{
    bool words = letter->road == MAIL_CONTROL || letter->type >= MAIL_FAILED;
    uint64_t began_ns = 0;
    int err = 0;
    pthread_mutex_lock(&mail->lock);
    while (!queue_has_room(&mail->outbox, letter->bytes)) {
        if (mail->orders && (!words || mail->outbox.count < mail->outbox.capacity))
            break;
        if (!began_ns)
            began_ns = clock_now_ns();
        struct timespec deadline = moment_after(CLOCK_SECOND);
        pthread_cond_timedwait(&mail->changed, &mail->lock, &deadline);
    }
    if (mail->orders && !words)
        err = ERR_GONE;
    else
        queue_put(&mail->outbox, letter);
    pthread_mutex_unlock(&mail->lock);
    if (waited_ns && began_ns)
        *waited_ns += clock_now_ns() - began_ns;
    if (err)
        mem_free(letter->payload);
    else
        loop_wake(mail->wake);
    return err;
}
