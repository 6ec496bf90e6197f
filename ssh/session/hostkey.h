/*
 * Is this the host that we mean? A key on file is accepted, a pinned one too; a changed or revoked key is refused,
 * whatever else
 * was said; an unknown one is refused unless the settings or a person accept it. Pure but for the files.
 */
#ifndef KEDGE_SESSION_HOSTKEY_H
#define KEDGE_SESSION_HOSTKEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ssh/base/why.h"
#include "ssh/session/known.h"

#define HOSTKEY_PRINT 64 /* "sha256:" and 43 letters */
#define HOSTKEY_ART 256  /* 11 lines of 19 letters */
#define HOSTKEY_FILES 6

struct hostkey_policy {
    char pin[HOSTKEY_PRINT + 16];            /* "sha256:…" or "SHA256:…"; "" = none. With a pin no file is asked. */
    bool accept_new;                         /* take an unknown key and save it; never a changed one */
    char files[HOSTKEY_FILES][KNOWN_PLACE];  /* known hosts, "" = unused */
    char save[KNOWN_PLACE];                  /* where an accepted key is noted; also looked at; "" = nowhere */
};

enum hostkey_verdict { HOSTKEY_TRUSTED, HOSTKEY_UNKNOWN, HOSTKEY_REFUSED };

/* The fingerprint as `ssh-keygen -l` prints it, with a small "sha256:" in front. */
char *hostkey_print(const uint8_t *key, size_t bytes, char out[HOSTKEY_PRINT]);
/* "ssh-ed25519 sha256:…" */
char *hostkey_words(const uint8_t *key, size_t bytes, char *out, size_t size);
/* The picture that `ssh -o VisualHostKey=yes` draws, lines separated by '\n'. */
char *hostkey_art(const uint8_t *key, size_t bytes, char out[HOSTKEY_ART]);
/* Whether the text is a usable pin. */
bool hostkey_is_pin(const char *text);

/* HOSTKEY_REFUSED and HOSTKEY_UNKNOWN fill `why` with the whole sentence. `known` (may be NULL) tells what is on file.
 * A negative
 * err when a file cannot be read. */
int hostkey_judge(const struct hostkey_policy *policy, const char *host, uint16_t port, const uint8_t *key, size_t bytes,
                  struct known *known, struct why *why);
/* Note an accepted key in policy->save. */
int hostkey_save(const struct hostkey_policy *policy, const char *host, uint16_t port, const uint8_t *key, size_t bytes,
                 struct why *why);
/* The key types to ask the server for, those on file first: else a host that is known by one key would look changed by
 * another. */
void hostkey_types(const struct hostkey_policy *policy, const char *host, uint16_t port, char *out, size_t size);

#endif
