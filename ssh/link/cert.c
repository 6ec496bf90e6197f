/*
 * One authority per run, and certificates that live as long as a run may: trust means "of this run", nothing else. So
 * the store of a context holds exactly one authority, and what is wrong with a file is said when it is loaded, not when
 * a peer closes.
 */
#include "ssh/link/cert.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/wire/wire.h"

#define CERT_DAYS 90
#define CERT_SKEW_SECONDS 3600 /* rented hosts' clocks may be behind */
#define CERT_FILE_MAX (64 * 1024)

static int cert_openssl(struct why *why, const char *what)
{
    char text[200] = "unknown reason";
    unsigned long code = ERR_get_error();
    if (code)
        ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return why_set(why, ERR_SYSTEM, "%s: OpenSSL says %s", what, text);
}

/* ---- making ---- */

static bool cert_add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_nconf_nid(NULL, &context, nid, value);
    bool added = extension && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static bool cert_set_serial(X509 *certificate)
{
    uint8_t bytes[16];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] &= 0x7f; /* a positive number */
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool set = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return set;
}

struct cert_extension {
    int nid;
    const char *value;
};

/* `issuer` NULL: self-signed. NULL with OpenSSL's error queue filled when something fails. */
static X509 *cert_make(const char *common_name, EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key,
                       const struct cert_extension *extensions, size_t count)
{
    X509 *certificate = X509_new();
    X509_NAME *name = certificate ? X509_get_subject_name(certificate) : NULL;
    bool good = certificate && X509_set_version(certificate, X509_VERSION_3) && cert_set_serial(certificate) &&
                X509_gmtime_adj(X509_getm_notBefore(certificate), -CERT_SKEW_SECONDS) &&
                X509_time_adj_ex(X509_getm_notAfter(certificate), CERT_DAYS, 0, NULL) &&
                X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const uint8_t *)common_name, -1, -1, 0) &&
                X509_set_issuer_name(certificate, issuer ? X509_get_subject_name(issuer) : name) &&
                X509_set_pubkey(certificate, key);
    for (size_t i = 0; good && i < count; i++)
        good = cert_add_extension(certificate, issuer ? issuer : certificate, extensions[i].nid, extensions[i].value);
    if (good && X509_sign(certificate, issuer_key, EVP_sha256()) > 0)
        return certificate;
    X509_free(certificate);
    return NULL;
}

static int cert_write(const char *folder, const char *name, const char *suffix, X509 *certificate, EVP_PKEY *key,
                      struct why *why)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *path = mem_format("%s/%s.%s", folder, name, suffix), *bytes = NULL;
    int err;
    if (bio && (certificate ? PEM_write_bio_X509(bio, certificate)
                            : PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL))) {
        long count = BIO_get_mem_data(bio, &bytes);
        err = file_write(path, bytes, (size_t)count, 0600, why);
    } else {
        err = cert_openssl(why, path);
    }
    BIO_free(bio);
    mem_free(path);
    return err;
}

static int cert_write_both(const char *folder, const char *name, X509 *certificate, EVP_PKEY *key, struct why *why)
{
    int err = cert_write(folder, name, "key", NULL, key, why);
    return err ? err : cert_write(folder, name, "pem", certificate, NULL, why);
}

int cert_make_authority(const char *folder, uint64_t run_id, struct why *why)
{
    static const struct cert_extension extensions[] = {
        {NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
        {NID_key_usage, "critical,keyCertSign"},
        {NID_subject_key_identifier, "hash"},
    };
    char name[40];
    snprintf(name, sizeof name, "kedge run %016llx", (unsigned long long)run_id);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = key ? cert_make(name, key, NULL, key, extensions, sizeof extensions / sizeof *extensions) : NULL;
    int err = certificate ? cert_write_both(folder, "ca", certificate, key, why)
                          : cert_openssl(why, "cannot make a certificate");
    X509_free(certificate);
    EVP_PKEY_free(key);
    return err;
}

static BIO *cert_open(const char *path, uint8_t **bytes, struct why *why)
{
    size_t count;
    if (file_read(path, CERT_FILE_MAX, bytes, &count, why) != 0)
        return NULL;
    BIO *bio = BIO_new_mem_buf(*bytes, (int)count);
    if (!bio)
        cert_openssl(why, path);
    return bio;
}

static X509 *cert_read(const char *path, struct why *why)
{
    uint8_t *bytes = NULL;
    BIO *bio = cert_open(path, &bytes, why);
    X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    if (bio && !certificate) {
        why_set(why, ERR_INVALID, "%s is not a certificate in PEM form", path);
        ERR_clear_error();
    }
    BIO_free(bio);
    mem_free(bytes);
    return certificate;
}

static int cert_no_passphrase(char *out, int size, int writing, void *arg)
{
    (void)out, (void)size, (void)writing, (void)arg;
    return -1; /* never ask on a terminal */
}

static EVP_PKEY *cert_read_key(const char *path, struct why *why)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        why_errno(why, "%s", path);
        return NULL;
    }
    if (status.st_mode & 077) {
        why_set(why, ERR_REFUSED,
                "%s can be read by others (mode %04o): chmod 600 it, and make new credentials if they may have", path,
                (unsigned)(status.st_mode & 07777));
        return NULL;
    }
    uint8_t *bytes = NULL;
    BIO *bio = cert_open(path, &bytes, why);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, cert_no_passphrase, NULL) : NULL;
    if (bio && !key) {
        why_set(why, ERR_INVALID, "%s is not an unencrypted private key in PEM form", path);
        ERR_clear_error();
    }
    BIO_free(bio);
    mem_free(bytes);
    return key;
}

int cert_make_host(const char *folder, const char *host, struct why *why)
{
    static const struct cert_extension extensions[] = {
        {NID_basic_constraints, "critical,CA:FALSE"},
        {NID_key_usage, "critical,digitalSignature"},
        {NID_ext_key_usage, "serverAuth,clientAuth"},
        {NID_authority_key_identifier, "keyid"},
    };
    const size_t count = sizeof extensions / sizeof *extensions;
    if (strlen(host) == 0 || strlen(host) >= WIRE_NAME || strchr(host, '/') || strcmp(host, "ca") == 0)
        return why_set(why, ERR_INVALID, "'%.100s' cannot be the name of a host: 1 to %d bytes, no '/', not 'ca'", host,
                       WIRE_NAME - 1);
    char *authority_path = mem_format("%s/ca.pem", folder), *authority_key_path = mem_format("%s/ca.key", folder);
    X509 *authority = cert_read(authority_path, why), *certificate = NULL;
    EVP_PKEY *authority_key = authority ? cert_read_key(authority_key_path, why) : NULL, *key = NULL;
    int err = why ? why->err : ERR_INVALID;
    if (authority_key) {
        key = EVP_EC_gen("P-256");
        certificate = key ? cert_make(host, key, authority, authority_key, extensions, count) : NULL;
        err = certificate ? cert_write_both(folder, host, certificate, key, why)
                          : cert_openssl(why, "cannot make a certificate");
    }
    X509_free(certificate);
    X509_free(authority);
    EVP_PKEY_free(key);
    EVP_PKEY_free(authority_key);
    mem_free(authority_path);
    mem_free(authority_key_path);
    return err;
}

/* ---- loading ---- */

struct credentials {
    SSL_CTX *context;
    char authority[100];
};

static void cert_common_name(X509_NAME *name, char *out, size_t size)
{
    if (X509_NAME_get_text_by_NID(name, NID_commonName, out, (int)size) < 0)
        snprintf(out, size, "?");
}

static void cert_date(const ASN1_TIME *time, char *out, size_t size)
{
    struct tm date = {0};
    if (ASN1_TIME_to_tm(time, &date) != 1 || strftime(out, size, "%Y-%m-%d %H:%M UTC", &date) == 0)
        snprintf(out, size, "?");
}

static int cert_check(X509 *certificate, const char *path, X509 *authority, EVP_PKEY *key, struct why *why)
{
    char date[40], issuer[100], ours[100];
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
        cert_date(X509_get0_notAfter(certificate), date, sizeof date);
        return why_set(why, ERR_REFUSED, "%s expired on %s: make new credentials, or set this machine's clock", path, date);
    }
    if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
        cert_date(X509_get0_notBefore(certificate), date, sizeof date);
        return why_set(why, ERR_REFUSED, "%s is not valid before %s: set this machine's clock", path, date);
    }
    if (X509_verify(certificate, X509_get0_pubkey(authority)) != 1) {
        ERR_clear_error();
        cert_common_name(X509_get_issuer_name(certificate), issuer, sizeof issuer);
        cert_common_name(X509_get_subject_name(authority), ours, sizeof ours);
        return why_set(why, ERR_REFUSED,
                       "%s is a certificate of another run: issued by \"%s\", the authority here is \"%s\"", path, issuer,
                       ours);
    }
    if (X509_check_private_key(certificate, key) != 1) {
        ERR_clear_error();
        return why_set(why, ERR_REFUSED, "%s and its key do not belong together", path);
    }
    return 0;
}

static SSL_CTX *cert_context(X509 *authority, X509 *certificate, EVP_PKEY *key, struct why *why)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    if (context && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) &&
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) &&
        SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384") &&
        X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority) && SSL_CTX_use_certificate(context, certificate) &&
        SSL_CTX_use_PrivateKey(context, key) && SSL_CTX_set_num_tickets(context, 0)) {
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_verify_depth(context, 1);
        return context;
    }
    SSL_CTX_free(context);
    cert_openssl(why, "cannot make a TLS context");
    return NULL;
}

struct credentials *credentials_load(const char *ca_path, const char *certificate_path, const char *key_path,
                                     struct why *why)
{
    struct credentials *credentials = NULL;
    X509 *authority = cert_read(ca_path, why);
    X509 *certificate = authority ? cert_read(certificate_path, why) : NULL;
    EVP_PKEY *key = certificate ? cert_read_key(key_path, why) : NULL;
    if (key && cert_check(certificate, certificate_path, authority, key, why) == 0) {
        SSL_CTX *context = cert_context(authority, certificate, key, why);
        if (context) {
            credentials = mem_new(sizeof *credentials);
            credentials->context = context;
            cert_common_name(X509_get_subject_name(authority), credentials->authority, sizeof credentials->authority);
        }
    }
    X509_free(authority);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return credentials;
}

struct credentials *credentials_load_folder(const char *folder, const char *host, struct why *why)
{
    char *ca = mem_format("%s/ca.pem", folder);
    char *certificate = mem_format("%s/%s.pem", folder, host), *key = mem_format("%s/%s.key", folder, host);
    struct credentials *credentials = credentials_load(ca, certificate, key, why);
    mem_free(ca);
    mem_free(certificate);
    mem_free(key);
    return credentials;
}

void credentials_free(struct credentials *credentials)
{
    if (!credentials)
        return;
    SSL_CTX_free(credentials->context);
    mem_free(credentials);
}

struct ssl_ctx_st *credentials_context(const struct credentials *credentials)
{
    return credentials->context;
}

const char *credentials_authority(const struct credentials *credentials)
{
    return credentials->authority;
}
