/*
 * A throw-away sshd of one's own: real keys, a free port on 127.0.0.1, gone with its sessions at the end, also when the test
 * dies. And a caller: a session that notes what it was told.
 */
#ifndef KEDGE_TESTS_SSHD_H
#define KEDGE_TESTS_SSHD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ssh/session/session.h"
#include "tests/helpers/place.h"

struct sshd {
    struct place place;   /* host_key, id, id.pub, authorized_keys, sshd.log, known_hosts */
    pid_t pid;
    uint16_t port;
    char extra[1000];     /* lines of its configuration, kept for a restart */
};

/* Is there a real sshd here? When not, the test skips. */
bool sshd_is_here(void);
/* Own keys (host and user: Ed25519), then the server. 0, or −1 with a word on stderr. */
int sshd_start(struct sshd *sshd, const char *extra);
void sshd_again(struct sshd *sshd);         /* the listener only, on the same port */
void sshd_kill_listener(struct sshd *sshd);
void sshd_kill_sessions(struct sshd *sshd); /* KILL, in whatever phase they are */
void sshd_stop(struct sshd *sshd);
/* ssh-keygen with these arguments in the place's folder; "" passphrases are written as ''. */
int sshd_keygen(struct sshd *sshd, const char *arguments);
const char *sshd_user(void); /* who runs the test */
void sshd_print_log(struct sshd *sshd);

struct caller {
    struct loop *loop;
    struct session *session;
    struct session_settings settings;
    bool is_up, is_down, is_asked;
    int err, asked_count;
    enum session_ask kind;
    char reason[SESSION_REASON], question[SESSION_REASON], art[HOSTKEY_ART];
    const char *const *answers; /* given in turn, NULL ends: then no answer comes */
};

/* For this sshd: the test's user, its key, the host key in known_hosts. No agent. */
void caller_init(struct caller *caller, struct loop *loop, struct sshd *sshd);
void caller_dial(struct caller *caller);                     /* over TCP */
void caller_over(struct caller *caller, struct road *road);  /* over any road */
bool caller_up(struct caller *caller);                       /* wait; false when it went down instead */
void caller_end(struct caller *caller);                      /* free, and a turn of the loop */

#endif
