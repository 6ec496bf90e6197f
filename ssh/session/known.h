/*
 * Files of known hosts, as OpenSSH writes them: plain and hashed names, patterns, negations, [HOST]:PORT, @revoked.
 * Pure but for
 * reading and appending. @cert-authority lines are passed over: the library cannot verify host certificates.
 */
#ifndef KEDGE_SESSION_KNOWN_H
#define KEDGE_SESSION_KNOWN_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"

#define KNOWN_KEY 4096   /* longest public key, as bytes */
#define KNOWN_OLD 8      /* so many other keys of the host are remembered for the message */
#define KNOWN_PLACE 600

enum known_verdict {
    KNOWN_NOT,     /* no line names this host */
    KNOWN_CHANGED, /* there are keys of this host, and this is none of them */
    KNOWN_SAME,    /* this key is on file for it */
    KNOWN_REVOKED, /* this key is marked @revoked */
};

struct known_key { /* of a line that names the host */
    char type[64];
    uint8_t key[KNOWN_KEY];
    size_t bytes;
    char place[KNOWN_PLACE]; /* FILE:LINE */
};

struct known {
    char name[300];          /* "host", "[host]:2222" */
    uint8_t key[KNOWN_KEY];  /* the key to be judged; bytes 0 = only collect what is on file */
    size_t bytes;
    enum known_verdict verdict;
    char place[KNOWN_PLACE]; /* of the line that decided */
    struct known_key old[KNOWN_OLD];
    int old_count;
};

/* The name under which a host is filed: lower case, with the port unless it is 22. */
void known_name(const char *host, uint16_t port, char out[300]);
void known_init(struct known *known, const char *host, uint16_t port, const uint8_t *key, size_t bytes);
/* Look through one file's text; call for each file. The strongest verdict wins, in the order of the enum. */
void known_look(struct known *known, const char *file, const char *text);
/* The same from disk; a file that is absent says nothing. Unreadable is an error: silence would look like "unknown". */
int known_look_in(struct known *known, const char *path, struct why *why);
/* Append a line (0600; folder is made). */
int known_append(const char *path, const char *name, const uint8_t *key, size_t bytes, struct why *why);

#endif
