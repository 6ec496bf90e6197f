#include "ssh/session/sum.h"

#include <pthread.h>
#include <string.h>

#include "ssh/base/mem.h"

#define PIECE_BYTES ((size_t)128 << 10) /* stays in the cache between reading and hashing */

struct sum {
    const struct source *source;
    enum digest_kind kind;
    struct loop_wake *wake;
    pthread_t thread;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    uint64_t until;
    bool ends;
    int err; /* ERR_AGAIN until it is known */
    struct why why;
    char hash[DIGEST_HEX];
};

/* Waits until something may be hashed behind `at`; 0 = not any more. */
static size_t next_piece(struct sum *sum, uint64_t at)
{
    pthread_mutex_lock(&sum->mutex);
    while (!sum->ends && sum->until <= at)
        pthread_cond_wait(&sum->changed, &sum->mutex);
    uint64_t left = sum->ends ? 0 : sum->until - at;
    pthread_mutex_unlock(&sum->mutex);
    return left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
}

static void tell(struct sum *sum, int err, const struct why *why, struct digest *digest)
{
    pthread_mutex_lock(&sum->mutex);
    digest_finish(digest, sum->hash);
    sum->err = err;
    sum->why = *why;
    pthread_mutex_unlock(&sum->mutex);
    loop_wake(sum->wake);
}

static void *run(void *arg)
{
    struct sum *sum = arg;
    struct digest *digest = digest_new(sum->kind);
    uint8_t *piece = mem_new(PIECE_BYTES);
    struct why why = {0};
    uint64_t at = 0;
    int err = 0;
    size_t bytes = 1;
    while (!err && at < sum->source->bytes && (bytes = next_piece(sum, at))) {
        err = source_read(sum->source, at, piece, bytes, &why);
        if (!err)
            digest_add(digest, piece, bytes);
        at += bytes;
    }
    if (bytes)
        tell(sum, err, &why, digest);
    mem_free(piece);
    digest_free(digest);
    return NULL;
}

struct sum *sum_new(struct loop *loop, const struct source *source, enum digest_kind kind, loop_cb *cb, void *arg)
{
    struct sum *sum = mem_new(sizeof *sum);
    *sum = (struct sum){.source = source, .kind = kind, .wake = loop_wake_new(loop, cb, arg), .err = ERR_AGAIN};
    pthread_mutex_init(&sum->mutex, NULL);
    pthread_cond_init(&sum->changed, NULL);
    int code = pthread_create(&sum->thread, NULL, run, sum);
    if (code)
        BUG("cannot start a thread: %s", strerror(code));
    return sum;
}

void sum_free(struct sum *sum)
{
    if (!sum)
        return;
    pthread_mutex_lock(&sum->mutex);
    sum->ends = true;
    pthread_cond_signal(&sum->changed);
    pthread_mutex_unlock(&sum->mutex);
    pthread_join(sum->thread, NULL);
    pthread_cond_destroy(&sum->changed);
    pthread_mutex_destroy(&sum->mutex);
    loop_wake_free(sum->wake);
    mem_free(sum);
}

void sum_until(struct sum *sum, uint64_t end)
{
    pthread_mutex_lock(&sum->mutex);
    if (end > sum->until)
        sum->until = end;
    pthread_cond_signal(&sum->changed);
    pthread_mutex_unlock(&sum->mutex);
}

int sum_get(struct sum *sum, char hash[DIGEST_HEX], struct why *why)
{
    pthread_mutex_lock(&sum->mutex);
    int err = sum->err;
    if (!err)
        memcpy(hash, sum->hash, sizeof sum->hash);
    else if (err != ERR_AGAIN)
        why_set(why, err, "%s", sum->why.text);
    pthread_mutex_unlock(&sum->mutex);
    return err;
}
