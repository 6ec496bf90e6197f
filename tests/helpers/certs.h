/*
 * Run credentials for tests, in a folder under $TMP that is removed again.
 */
#ifndef KEDGE_TESTS_CERTS_H
#define KEDGE_TESTS_CERTS_H

#include <stddef.h>
#include <stdint.h>

#include "ssh/link/cert.h"

/* Make FOLDER (its path goes to `folder`) with an authority for `run_id` and certificates for "left" and "right". */
void certs_make(uint64_t run_id, char *folder, size_t size);
struct credentials *certs_load(const char *folder, const char *host);
void certs_remove(const char *folder);
/* FOLDER/HOST.pem and .key signed by FOLDER's authority, valid from .. to seconds from now: what cert.c never makes. */
void certs_make_dated(const char *folder, const char *host, long from_seconds, long to_seconds);

#endif
