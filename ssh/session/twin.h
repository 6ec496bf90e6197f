/*
 * Another session to the same host, on a thread of its own, with a sender in it: where a road is quicker than one processor enciphers, two
 * do it. It logs in by itself, at the very address at which the first session stands, and asks nobody.
 *
 * All of it is made and freed on the owner's thread; in between only the twin's loop runs on the other one, and what passes between them
 * is put down under a lock, with a wake.
 */
#ifndef KEDGE_SESSION_TWIN_H
#define KEDGE_SESSION_TWIN_H

#include "ssh/session/sender.h"

struct twin;

/* As sender_new, and all callbacks come from `loop`, `packed` never; the session outlives it. NULL when the session cannot have a twin: it goes
 * through a jump host, a person had to be asked, or one was not let in before: hosts ban who fails again and again. That a twin does not get
 * in is told by `ended`. */
struct twin *twin_new(struct loop *loop, struct session *session, const char *command, uint64_t open_ns,
                      const struct source *source, const struct sender_callbacks *callbacks, void *arg);
void twin_free(struct twin *twin); /* at once; allowed in its callbacks; NULL is fine */
/* As sender_order; it compresses by itself what is to be compressed. */
void twin_order(struct twin *twin, const struct order *order);

#endif
