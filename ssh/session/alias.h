/*
 * What a name means to the ssh program: `ssh -G NAME` prints the host name, port, user, key files, files of known hosts and
 * jump hosts that it would use, so that the aliases of ~/.ssh/config just work. Without the OpenSSH client a destination
 * means what it says.
 */
#ifndef KEDGE_SESSION_ALIAS_H
#define KEDGE_SESSION_ALIAS_H

#include <stdbool.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/link/address.h"
#include "ssh/session/hostkey.h"
#include "ssh/session/known.h"

#define ALIAS_IDENTITIES 8
#define ALIAS_JUMPS 4
#define ALIAS_WORD 160 /* "user@host:port" */

struct alias {
    char host[ADDRESS_HOST];
    uint16_t port;
    char user[64];
    char identities[ALIAS_IDENTITIES][KNOWN_PLACE]; /* "" = unused; ~/ is written out */
    char known[HOSTKEY_FILES][KNOWN_PLACE];         /* files of known hosts */
    char jumps[ALIAS_JUMPS][ALIAS_WORD];            /* in the order of travel */
    int jump_count;
    bool has_command; /* a ProxyCommand, which we do not run */
};

/* [USER@]HOST[:PORT], [V6]:PORT, ssh://… ; what is not given is "" and 0. */
int alias_split(const char *text, char user[64], char host[ADDRESS_HOST], uint16_t *port, struct why *why);
/* What `ssh -G` printed. Pure but for $HOME. */
int alias_parse(const char *text, struct alias *alias, struct why *why);
/* Asks the ssh program, once for each destination while its files stay as they are, which answers from files within a few milliseconds and is ended after five seconds; without it, from
 * the words alone. `config` is given to ssh as -F; NULL = its own, or $HOME/.ssh/config when HOME is not the home of the password file. */
int alias_resolve(const char *destination, const char *config, struct alias *alias, struct why *why);

#endif
