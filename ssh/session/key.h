/*
 * What can be seen of a private key file without opening it: its kind, whether it wants a passphrase, and (OpenSSH's
 * own format, or a
 * .pub file beside it) its public half, so that it can be offered before anybody is asked for a passphrase.
 */
#ifndef KEDGE_SESSION_KEY_H
#define KEDGE_SESSION_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/session/known.h"

struct key {
    char path[KNOWN_PLACE];
    char type[64];           /* "ssh-ed25519", "ssh-rsa", …; "" = cannot be seen */
    bool encrypted;
    uint8_t blob[KNOWN_KEY]; /* the public half; bytes 0 = cannot be seen */
    size_t bytes;
};

/* ERR_ABSENT: no such file. ERR_INVALID: not a private key, with what it is instead. ERR_REFUSED: others may read it. */
int key_look(const char *path, struct key *key, struct why *why);
bool key_is_rsa(const char *type);

#endif
