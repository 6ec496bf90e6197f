/*
 * Run credentials: a CA per run, a certificate per host. Minted by the console, delivered over a verified session, 0600.
 */
#ifndef KEDGE_LINK_CERT_H
#define KEDGE_LINK_CERT_H

#include <stdint.h>

#include "ssh/base/why.h"

/* Make FOLDER/ca.pem, FOLDER/ca.key (both 0600), valid 90 days; common name "kedge run RUN_ID". P-256. */
int cert_make_authority(const char *folder, uint64_t run_id, struct why *why);
/* Make FOLDER/HOST.pem and FOLDER/HOST.key signed by it; common name = host. */
int cert_make_host(const char *folder, const char *host, struct why *why);

struct credentials;
/* From three PEM files. Refuses a key that others can read, an expired certificate, one of another CA. */
struct credentials *credentials_load(const char *ca_path, const char *certificate_path, const char *key_path,
                                     struct why *why);
/* The same from FOLDER/ca.pem, FOLDER/HOST.pem, FOLDER/HOST.key. */
struct credentials *credentials_load_folder(const char *folder, const char *host, struct why *why);
void credentials_free(struct credentials *credentials);

/* For road_tls.c: the OpenSSL context, and the authority's common name ("kedge run 0123…"). */
struct ssl_ctx_st;
struct ssl_ctx_st *credentials_context(const struct credentials *credentials);
const char *credentials_authority(const struct credentials *credentials);

#endif
