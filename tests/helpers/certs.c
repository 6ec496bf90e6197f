#include "tests/helpers/certs.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/file.h"
#include "ssh/base/why.h"

void certs_make(uint64_t run_id, char *folder, size_t size)
{
    static unsigned count;
    const char *temp = getenv("TMP");
    struct why why = {0};
    snprintf(folder, size, "%s/creds.%ld.%u", temp ? temp : "/tmp", (long)getpid(), count++);
    if (file_make_folders(folder, 0700, &why) != 0 || cert_make_authority(folder, run_id, &why) != 0 ||
        cert_make_host(folder, "left", &why) != 0 || cert_make_host(folder, "right", &why) != 0)
        BUG("%s", why.text);
}

struct credentials *certs_load(const char *folder, const char *host)
{
    struct why why = {0};
    struct credentials *credentials = credentials_load_folder(folder, host, &why);
    if (!credentials)
        BUG("%s", why.text);
    return credentials;
}

void certs_remove(const char *folder)
{
    file_remove_tree(folder, NULL);
}

void certs_make_dated(const char *folder, const char *host, long from_seconds, long to_seconds)
{
    char path[600];
    snprintf(path, sizeof path, "%s/ca.pem", folder);
    FILE *file = fopen(path, "r");
    X509 *authority = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    snprintf(path, sizeof path, "%s/ca.key", folder);
    file = fopen(path, "r");
    EVP_PKEY *authority_key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    fclose(file);

    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 4711);
    X509_gmtime_adj(X509_getm_notBefore(certificate), from_seconds);
    X509_gmtime_adj(X509_getm_notAfter(certificate), to_seconds);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)host, -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(authority));
    X509_set_pubkey(certificate, key);
    if (!X509_sign(certificate, authority_key, EVP_sha256()))
        BUG("cannot sign");

    snprintf(path, sizeof path, "%s/%s.pem", folder, host);
    file = fopen(path, "w");
    PEM_write_X509(file, certificate);
    fclose(file);
    snprintf(path, sizeof path, "%s/%s.key", folder, host);
    file = fopen(path, "w");
    fchmod(fileno(file), 0600);
    PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
    fclose(file);
    X509_free(certificate);
    X509_free(authority);
    EVP_PKEY_free(key);
    EVP_PKEY_free(authority_key);
}
