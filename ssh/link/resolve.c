/*
 * The question is shared by two holders, the loop and the helper thread, and freed by the last of them. The thread may
 * outlive the loop (a resolver can take a minute): it touches the wake only under the lock and only while nobody has
 * left.
 */
#include "ssh/link/resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/mem.h"

struct resolve {
    pthread_mutex_t lock;
    unsigned holders;      /* under the lock */
    bool left;             /* under the lock: the loop does not want the answer any more */
    struct loop_wake *wake;/* under the lock, gone once `left` */
    char host[ADDRESS_HOST];
    uint16_t port;
    /* The answer: written by the thread before the wake, read by the loop after it. */
    struct address list[ADDRESS_LIST];
    int count;
    char reason[400];
    resolve_cb *cb;
    void *arg;
};

static void resolve_release(struct resolve *resolve)
{
    pthread_mutex_lock(&resolve->lock);
    bool last = --resolve->holders == 0;
    pthread_mutex_unlock(&resolve->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&resolve->lock);
    mem_free(resolve);
}

static void resolve_ask(struct resolve *resolve)
{
    char service[8];
    snprintf(service, sizeof service, "%u", resolve->port);
    struct addrinfo hints = {.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int status = getaddrinfo(resolve->host, service, &hints, &found);
    if (status != 0)
        snprintf(resolve->reason, sizeof resolve->reason, "looking up its name failed (%s)", gai_strerror(status));
    for (struct addrinfo *one = found; one && resolve->count < ADDRESS_LIST; one = one->ai_next) {
        struct address *address = &resolve->list[resolve->count++];
        memcpy(&address->to, one->ai_addr, one->ai_addrlen);
        address->bytes = one->ai_addrlen;
    }
    if (found)
        freeaddrinfo(found);
}

static void *resolve_thread(void *arg)
{
    struct resolve *resolve = arg;
    resolve_ask(resolve);
    pthread_mutex_lock(&resolve->lock);
    if (!resolve->left)
        loop_wake(resolve->wake);
    pthread_mutex_unlock(&resolve->lock);
    resolve_release(resolve);
    return NULL;
}

static void resolve_answer(void *arg)
{
    struct resolve *resolve = arg;
    resolve->cb(resolve->list, resolve->count, resolve->reason, resolve->arg);
}

struct resolve *resolve_start(struct loop *loop, const char *host, uint16_t port, resolve_cb *cb, void *arg,
                              struct why *why)
{
    struct resolve *resolve = mem_new(sizeof *resolve);
    *resolve = (struct resolve){.holders = 2, .port = port, .cb = cb, .arg = arg};
    snprintf(resolve->host, sizeof resolve->host, "%s", host);
    pthread_mutex_init(&resolve->lock, NULL);
    resolve->wake = loop_wake_new(loop, resolve_answer, resolve);
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int status = pthread_create(&thread, &detached, resolve_thread, resolve);
    pthread_attr_destroy(&detached);
    if (status == 0)
        return resolve;
    why_set(why, ERR_SYSTEM, "cannot start a thread to look up host '%s': %s", host, strerror(status));
    resolve->holders = 1;
    resolve_free(resolve);
    return NULL;
}

void resolve_free(struct resolve *resolve)
{
    if (!resolve)
        return;
    pthread_mutex_lock(&resolve->lock);
    resolve->left = true;
    loop_wake_free(resolve->wake);
    resolve->wake = NULL;
    pthread_mutex_unlock(&resolve->lock);
    resolve_release(resolve);
}
