/*
 * Which sessions there are: who answers a question later, out of a queue, refers to the session by its number, because it may
 * be gone by then. Sessions belong to one thread, and so does this list.
 */
#include "ssh/session/inner.h"

static TAILQ_HEAD(living, session) living = TAILQ_HEAD_INITIALIZER(living);
static uint64_t newest;

void session_enlist(struct session *session)
{
    session->id = ++newest;
    TAILQ_INSERT_TAIL(&living, session, entry);
}

void session_delist(struct session *session)
{
    TAILQ_REMOVE(&living, session, entry);
}

uint64_t session_id(const struct session *session)
{
    return session->id;
}

struct session *session_find(uint64_t id)
{
    struct session *session;
    TAILQ_FOREACH(session, &living, entry)
        if (session->id == id)
            break;
    return session;
}
