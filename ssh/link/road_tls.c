/*
 * Mutual TLS 1.3 as a filter. OpenSSL talks to the road below through a BIO of ours.
 *
 * Writing: a record is encrypted only when the one before it is gone. The BIO takes every record whole: what the road
 * below has no room for waits in `pending` (one record, or the flights of the handshake). So a write never has to be
 * repeated with the same bytes, and the link may change its mind about what comes next.
 *
 * Reading: OpenSSL reads ahead and may hold whole records that no descriptor tells of; while the last read gave
 * something, `again` stands for the descriptor.
 *
 * Failing: the words say what a person can act on (table below). After a failure what comes is dropped and what is
 * written is dropped, so that road_finish can still deliver the alert and wait for the peer to read it.
 */
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/buf.h"
#include "ssh/base/mem.h"
#include "ssh/link/cert.h"
#include "ssh/link/road.h"
#include "ssh/wire/wire.h"

#define TLS_RECORD_BYTES 16384
#define TLS_PENDING_MAX (256 * 1024)

struct road_tls {
    struct road road;
    struct road *below;
    SSL *ssl;
    char authority[100];
    bool below_stands, stands, failed, said_end;
    bool drained; /* the last read found nothing more */
    bool want_read, want_write;
    struct buf pending;
    struct loop_timer *again;
    struct why ended;     /* told by the next read */
    struct why below_why; /* of the last failed call of the road below, inside OpenSSL */
    char refusal[400];    /* why the peer's certificate was not accepted */
    char peer[WIRE_NAME];
};

/* ---- the BIO ---- */

static void road_tls_flush(struct road_tls *tls)
{
    while (buf_used(&tls->pending)) {
        ssize_t count = road_write(tls->below, buf_peek(&tls->pending), buf_used(&tls->pending), &tls->below_why);
        if (count < 0)
            return;
        buf_consume(&tls->pending, (size_t)count);
    }
}

static int bio_write(BIO *bio, const char *bytes, int count)
{
    struct road_tls *tls = BIO_get_data(bio);
    ssize_t written = 0;
    if (!buf_used(&tls->pending)) {
        written = road_write(tls->below, (const uint8_t *)bytes, (size_t)count, &tls->below_why);
        if (written < 0 && written != ERR_AGAIN)
            return -1;
        if (written < 0)
            written = 0;
    }
    return buf_put(&tls->pending, bytes + written, (size_t)(count - written)) == 0 ? count : -1;
}

static int bio_read(BIO *bio, char *bytes, int room)
{
    struct road_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t count = road_read(tls->below, (uint8_t *)bytes, (size_t)room, &tls->below_why);
    if (count > 0)
        return (int)count;
    if (count == ERR_AGAIN)
        BIO_set_retry_read(bio);
    return count == ERR_GONE ? 0 : -1;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;

static void bio_make_method(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "road");
    if (!bio_method || !BIO_meth_set_write(bio_method, bio_write) || !BIO_meth_set_read(bio_method, bio_read) ||
        !BIO_meth_set_ctrl(bio_method, bio_ctrl))
        BUG("OpenSSL cannot make a BIO method");
}

/* ---- words ---- */

/* OpenSSL's reasons, for people. */
static const struct {
    int reason, err;
    const char *words;
} road_tls_reasons[] = {
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, ERR_REFUSED, "shows no certificate: it does not belong to this run"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, ERR_REFUSED, "says that our certificate is of another run than its own"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, ERR_REFUSED, "wants a certificate and got none from us"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, ERR_REFUSED, "says that our certificate has expired: compare both clocks"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, ERR_REFUSED, "does not accept our certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, ERR_REFUSED, "does not accept our certificate"},
    {SSL_R_TLSV1_ALERT_DECRYPT_ERROR, ERR_REFUSED, "says that our certificate is of another run (a wrong signature)"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, ERR_REFUSED, "does not speak TLS 1.3"},
    {SSL_R_UNSUPPORTED_PROTOCOL, ERR_REFUSED, "does not speak TLS 1.3"},
    {SSL_R_HTTP_REQUEST, ERR_REFUSED, "speaks HTTP: this is not a web server"},
    {SSL_R_WRONG_VERSION_NUMBER, ERR_REFUSED, "does not speak TLS: is link.security=plain set on one side only?"},
    {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, ERR_INVALID, "sent bytes that were changed on the way (TLS: bad record)"},
    {SSL_R_SSLV3_ALERT_BAD_RECORD_MAC, ERR_INVALID, "says that our bytes were changed on the way (TLS: bad record)"},
};

/* What the last OpenSSL call failed of; the road is dead from here on. */
static int road_tls_failed(struct road_tls *tls, struct why *why)
{
    unsigned long code = ERR_peek_last_error();
    int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
    char text[200];
    tls->failed = true;
    loop_timer_unset(tls->again);
    if (tls->refusal[0])
        return why_set(why, ERR_REFUSED, "%s", tls->refusal);
    for (size_t i = 0; i < sizeof road_tls_reasons / sizeof *road_tls_reasons; i++)
        if (reason && road_tls_reasons[i].reason == reason)
            return why_set(why, road_tls_reasons[i].err, "%s", road_tls_reasons[i].words);
    if (tls->below_why.err) /* a close, which OpenSSL calls unexpected */
        return why_set(why, tls->below_why.err, "%s", tls->below_why.text);
    if (code == 0)
        return why_set(why, ERR_GONE, "closed the connection");
    ERR_error_string_n(code, text, sizeof text);
    return why_set(why, ERR_INVALID, "broke the rules of TLS (%s)", text);
}

static void road_tls_date(const ASN1_TIME *time, char *out, size_t size)
{
    struct tm date = {0};
    if (ASN1_TIME_to_tm(time, &date) != 1 || strftime(out, size, "%Y-%m-%d %H:%M UTC", &date) == 0)
        snprintf(out, size, "?");
}

/* OpenSSL's verdict over the peer's certificate: only the words are ours. */
static int road_tls_verify(int accepted, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct road_tls *tls = SSL_get_app_data(ssl);
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    char issuer[100] = "?", date[40];
    if (accepted || tls->refusal[0])
        return accepted;
    int verdict = X509_STORE_CTX_get_error(store);
    switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        road_tls_date(X509_get0_notAfter(certificate), date, sizeof date);
        snprintf(tls->refusal, sizeof tls->refusal, "has a certificate that expired on %s", date);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        road_tls_date(X509_get0_notBefore(certificate), date, sizeof date);
        snprintf(tls->refusal, sizeof tls->refusal,
                 "has a certificate that is not valid before %s: compare the clocks of both hosts", date);
        break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        X509_NAME_get_text_by_NID(X509_get_issuer_name(certificate), NID_commonName, issuer, sizeof issuer);
        snprintf(tls->refusal, sizeof tls->refusal,
                 "has a certificate of another run: it was issued by \"%s\", our authority is \"%s\"", issuer,
                 tls->authority);
        break;
    default:
        snprintf(tls->refusal, sizeof tls->refusal, "has a certificate that we do not accept: %s",
                 X509_verify_cert_error_string(verdict));
        break;
    }
    return 0;
}

/* ---- handshake ---- */

static int road_tls_take_name(struct road_tls *tls, struct why *why)
{
    X509 *certificate = SSL_get0_peer_certificate(tls->ssl);
    X509_NAME *name = certificate ? X509_get_subject_name(certificate) : NULL;
    int at = name ? X509_NAME_get_index_by_NID(name, NID_commonName, -1) : -1;
    const ASN1_STRING *text = at >= 0 ? X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)) : NULL;
    int length = text ? ASN1_STRING_length(text) : 0;
    if (length <= 0 || length >= WIRE_NAME || memchr(ASN1_STRING_get0_data(text), 0, (size_t)length)) {
        tls->failed = true;
        return why_set(why, ERR_REFUSED, "has a certificate without a usable common name");
    }
    memcpy(tls->peer, ASN1_STRING_get0_data(text), (size_t)length);
    return 0;
}

static void road_tls_want_below(struct road_tls *tls)
{
    bool pending = buf_used(&tls->pending);
    if (!tls->stands && !tls->failed)
        road_want(tls->below, true, pending);
    else
        road_want(tls->below, tls->want_read, tls->want_write || pending);
}

static int road_tls_start(struct road *base, struct why *why)
{
    struct road_tls *tls = (struct road_tls *)base;
    if (tls->stands)
        return 0;
    if (!tls->below_stands) {
        int err = road_start(tls->below, why);
        if (err)
            return err;
        tls->below_stands = true;
    }
    ERR_clear_error();
    tls->below_why = (struct why){0};
    int result = SSL_do_handshake(tls->ssl), reason = SSL_get_error(tls->ssl, result);
    if (result != 1 && reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE)
        return road_tls_failed(tls, why);
    if (result == 1) {
        int err = road_tls_take_name(tls, why);
        if (err)
            return err;
        tls->stands = true;
        loop_timer_set(tls->again, 0); /* it may have read beyond the handshake */
    }
    road_tls_want_below(tls);
    return result == 1 ? 0 : ERR_AGAIN;
}

/* ---- bytes ---- */

static void road_tls_want(struct road *base, bool read, bool write)
{
    struct road_tls *tls = (struct road_tls *)base;
    tls->want_read = read;
    tls->want_write = write;
    road_tls_want_below(tls);
    if (read && tls->stands && !tls->drained && !tls->failed)
        loop_timer_set(tls->again, 0);
}

static ssize_t road_tls_drop(struct road_tls *tls, struct why *why)
{
    uint8_t bytes[4096];
    ssize_t count;
    while ((count = road_read(tls->below, bytes, sizeof bytes, why)) > 0)
        ;
    return count;
}

/* 0 = only nothing more for now. */
static int road_tls_read_ended(struct road_tls *tls, struct why *why)
{
    switch (SSL_get_error(tls->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return why_set(why, ERR_GONE, "closed the connection");
    default:
        return road_tls_failed(tls, why);
    }
}

static ssize_t road_tls_read(struct road *base, uint8_t *bytes, size_t room, struct why *why)
{
    struct road_tls *tls = (struct road_tls *)base;
    size_t used = 0, count;
    if (tls->ended.err) { /* OpenSSL says why only once, and it was behind good bytes */
        int err = why_set(why, tls->ended.err, "%s", tls->ended.text);
        tls->ended = (struct why){0};
        return err;
    }
    if (tls->failed)
        return road_tls_drop(tls, why);
    ERR_clear_error();
    tls->below_why = (struct why){0};
    while (used < room && SSL_read_ex(tls->ssl, bytes + used, room - used, &count))
        used += count;
    if (buf_used(&tls->pending))
        road_tls_want_below(tls); /* a key update is answered, or an alert said */
    tls->drained = used < room;
    int err = tls->drained ? road_tls_read_ended(tls, used ? &tls->ended : why) : 0;
    if (!tls->drained || tls->ended.err)
        loop_timer_set(tls->again, 0);
    else
        loop_timer_unset(tls->again);
    return used ? (ssize_t)used : err ? err : ERR_AGAIN;
}

static ssize_t road_tls_write(struct road *base, const uint8_t *bytes, size_t count, struct why *why)
{
    struct road_tls *tls = (struct road_tls *)base;
    size_t used = 0, written;
    if (tls->failed)
        return (ssize_t)count;
    tls->below_why = (struct why){0};
    road_tls_flush(tls);
    ERR_clear_error();
    while (used < count && !buf_used(&tls->pending) && !tls->below_why.err) {
        size_t record = count - used < TLS_RECORD_BYTES ? count - used : TLS_RECORD_BYTES;
        if (!SSL_write_ex(tls->ssl, bytes + used, record, &written))
            return used ? (ssize_t)used : road_tls_failed(tls, why);
        used += written;
    }
    if (buf_used(&tls->pending))
        road_tls_want_below(tls); /* the link may have nothing more to write and not ask for the road again */
    if (used)
        return (ssize_t)used;
    return tls->below_why.err ? why_set(why, tls->below_why.err, "%s", tls->below_why.text) : ERR_AGAIN;
}

static int road_tls_finish(struct road *base, struct why *why)
{
    struct road_tls *tls = (struct road_tls *)base;
    if (tls->stands && !tls->failed && !tls->said_end) {
        ERR_clear_error();
        SSL_shutdown(tls->ssl);
        tls->said_end = true;
    }
    tls->below_why = (struct why){0};
    road_tls_flush(tls);
    if (tls->below_why.err)
        return why_set(why, tls->below_why.err, "%s", tls->below_why.text);
    if (buf_used(&tls->pending))
        return ERR_AGAIN;
    return road_finish(tls->below, why);
}

/* ---- the loop ---- */

static void road_tls_ready(void *arg)
{
    struct road_tls *tls = arg;
    if (buf_used(&tls->pending)) {
        road_tls_flush(tls);
        if (!buf_used(&tls->pending))
            road_tls_want_below(tls);
    }
    if (tls->road.ready)
        tls->road.ready(tls->road.ready_arg);
}

static void road_tls_again(void *arg)
{
    struct road_tls *tls = arg;
    if (tls->want_read && tls->road.ready)
        tls->road.ready(tls->road.ready_arg);
}

static void road_tls_free(struct road *base)
{
    struct road_tls *tls = (struct road_tls *)base;
    SSL_free(tls->ssl);
    loop_timer_free(tls->again);
    buf_clear(&tls->pending);
    road_free(tls->below);
    mem_free(tls);
}

static void road_tls_describe(const struct road *base, char *out, size_t size)
{
    const struct road_tls *tls = (const struct road_tls *)base;
    char below[200];
    road_describe(tls->below, below, sizeof below);
    snprintf(out, size, "tls %s", below);
}

static void road_tls_set_queue(struct road *base, size_t bytes)
{
    road_set_queue(((struct road_tls *)base)->below, bytes);
}

static const char *road_tls_peer_name(const struct road *base)
{
    return ((const struct road_tls *)base)->peer;
}

static const struct road_ops road_tls_ops = {
    .name = "tls",
    .start = road_tls_start,
    .want = road_tls_want,
    .read = road_tls_read,
    .write = road_tls_write,
    .finish = road_tls_finish,
    .free = road_tls_free,
    .describe = road_tls_describe,
    .set_queue = road_tls_set_queue,
    .tls_peer = road_tls_peer_name,
};

static SSL *road_tls_new_ssl(struct road_tls *tls, const struct credentials *credentials, bool server)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, bio_make_method);
    SSL *ssl = SSL_new(credentials_context(credentials));
    BIO *bio = ssl ? BIO_new(bio_method) : NULL;
    if (!bio) {
        SSL_free(ssl);
        return NULL;
    }
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, tls);
    SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, road_tls_verify);
    SSL_set_read_ahead(ssl, 1); /* with its own small buffer: it moves all that is left in it for every record */
    if (server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

struct road *road_tls(struct loop *loop, struct road *below, const struct credentials *credentials, bool server,
                      struct why *why)
{
    struct road_tls *tls = mem_new(sizeof *tls);
    tls->road.ops = &road_tls_ops;
    tls->below = below;
    snprintf(tls->authority, sizeof tls->authority, "%s", credentials_authority(credentials));
    buf_init(&tls->pending, TLS_PENDING_MAX);
    tls->again = loop_timer_new(loop, road_tls_again, tls);
    tls->ssl = road_tls_new_ssl(tls, credentials, server);
    if (!tls->ssl) {
        why_set(why, ERR_SYSTEM, "OpenSSL cannot make a TLS connection");
        tls->below = NULL;
        road_tls_free(&tls->road);
        return NULL;
    }
    road_on_ready(below, road_tls_ready, tls);
    return &tls->road;
}
