/* Mutual TLS between links: who is let in, and the sentences for those who are not, on both sides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/certs.h"
#include "tests/helpers/ends.h"

static struct loop *loop;
static struct end a, b;
static char folder[400], other_folder[400];
static struct credentials *left, *right, *stranger;

static int make_credentials(void **state)
{
    (void)state;
    certs_make(ENDS_RUN, folder, sizeof folder);
    certs_make(7, other_folder, sizeof other_folder);
    left = certs_load(folder, "left");
    right = certs_load(folder, "right");
    stranger = certs_load(other_folder, "left");
    return 0;
}

static int remove_credentials(void **state)
{
    (void)state;
    credentials_free(left);
    credentials_free(right);
    credentials_free(stranger);
    certs_remove(folder);
    certs_remove(other_folder);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    struct why why = {0};
    loop = loop_new(&why);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_free(&a, loop);
    end_free(&b, loop);
    loop_free(loop);
    return 0;
}

static const struct credentials *server_credentials;

static void accept_b(struct road *road, const char *from, void *arg)
{
    (void)from, (void)arg;
    struct why why = {0};
    struct link_settings settings = ends_settings("right");
    end_begin(&b, loop, server_credentials ? road_tls(loop, road, server_credentials, true, &why) : road, &settings);
}

static struct listener *listen_b(const struct credentials *credentials)
{
    struct why why = {0};
    server_credentials = credentials;
    struct listener *listener = listener_tcp(loop, "127.0.0.1:0", accept_b, NULL, &why);
    assert_non_null(listener);
    return listener;
}

/* `mine` dials `theirs` (NULL = plain) with these settings; both ends are known to be up or down afterwards. */
static void meet(const struct credentials *mine, const struct credentials *theirs, const struct link_settings *settings)
{
    struct why why = {0};
    struct listener *listener = listen_b(theirs);
    struct road *road = road_tcp_dial(loop, listener_address(listener), &why);
    end_begin(&a, loop, mine ? road_tls(loop, road, mine, false, &why) : road, settings);
    uint64_t until_ns = clock_now_ns() + 5 * CLOCK_SECOND;
    while (clock_now_ns() < until_ns && !((a.is_up || a.is_down) && (b.is_up || b.is_down)))
        loop_run_once(loop, 10 * CLOCK_MS);
    loop_for(loop, 30 * CLOCK_MS);
    listener_free(listener);
}

static void assert_says(const char *text, const char *expected)
{
    if (!strstr(text, expected))
        fail_msg("'%s' does not say '%s'", text, expected);
}

static void same_run_is_let_in(void **state)
{
    (void)state;
    struct link_settings settings = ends_settings("left");
    meet(left, right, &settings);
    if (!a.is_up || !b.is_up)
        fail_msg("'%s' '%s'", a.down_reason, b.down_reason);
    assert_says(link_describe(a.link), "tls tcp 127.0.0.1:");
    assert_says(link_describe(b.link), " → left");
}

static void certificate_of_another_run(void **state)
{
    (void)state;
    struct link_settings settings = ends_settings("left");
    meet(stranger, right, &settings);
    assert_true(a.is_down && b.is_down);
    assert_int_equal(a.down_err, ERR_REFUSED);
    assert_int_equal(b.down_err, ERR_REFUSED);
    /* The client looks first: it sees the server's certificate, and the server gets the alert. */
    assert_says(a.down_reason, "127.0.0.1:");
    assert_says(a.down_reason, " has a certificate of another run: it was issued by \"kedge run 1122334455667788\", our "
                               "authority is \"kedge run 0000000000000007\"");
    assert_says(b.down_reason, "127.0.0.1:");
    assert_says(b.down_reason, " says that our certificate is of another run");
}

static void wrong_host_name_is_refused(void **state)
{
    (void)state;
    struct link_settings settings = ends_settings("middle");
    meet(left, right, &settings);
    assert_true(a.is_down && b.is_down);
    assert_int_equal(b.down_err, ERR_REFUSED);
    assert_says(b.down_reason, "the HELLO names host 'middle', but the certificate is of 'left'");
    assert_int_equal(a.down_err, ERR_REFUSED);
    assert_says(a.down_reason, "the HELLO names host 'middle'");
}

static void wrong_run_id_is_refused(void **state)
{
    (void)state;
    struct link_settings settings = ends_settings("left");
    settings.run_id = 9;
    meet(left, right, &settings);
    assert_true(a.is_down && b.is_down);
    assert_int_equal(b.down_err, ERR_INVALID);
    assert_says(b.down_reason, "a frame of another run");
}

static void plain_against_tls(void **state)
{
    (void)state;
    struct link_settings settings = ends_settings("left");
    meet(left, NULL, &settings);
    assert_true(a.is_down && b.is_down);
    assert_says(a.down_reason, "does not speak TLS: is link.security=plain set on one side only?");
    assert_int_equal(b.down_err, ERR_INVALID);
}

static void tls_against_plain(void **state)
{
    (void)state;
    struct link_settings settings = ends_settings("left");
    meet(NULL, right, &settings);
    assert_true(a.is_down && b.is_down);
    assert_says(b.down_reason, "does not speak TLS");
}

/* ---- strangers that only OpenSSL itself can play ---- */

struct stranger {
    int port;
    const char *certificate, *key; /* NULL = none */
    int handshake;                 /* 1 = the client side thinks it is through */
};

static void *stranger_main(void *arg)
{
    struct stranger *me = arg;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (me->certificate && (SSL_CTX_use_certificate_file(context, me->certificate, SSL_FILETYPE_PEM) != 1 ||
                            SSL_CTX_use_PrivateKey_file(context, me->key, SSL_FILETYPE_PEM) != 1))
        BUG("cannot load %s", me->certificate);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)me->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    connect(fd, (struct sockaddr *)&to, sizeof to);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    me->handshake = SSL_connect(ssl);
    char bytes[100];
    SSL_read(ssl, bytes, sizeof bytes); /* until the server has its say */
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    return NULL;
}

static void meet_stranger(const char *host)
{
    char certificate[600], key[600];
    struct listener *listener = listen_b(right);
    struct stranger me = {.port = (int)strtol(strrchr(listener_address(listener), ':') + 1, NULL, 10)};
    pthread_t thread;
    if (host) {
        snprintf(certificate, sizeof certificate, "%s/%s.pem", folder, host);
        snprintf(key, sizeof key, "%s/%s.key", folder, host);
        me.certificate = certificate;
        me.key = key;
    }
    assert_int_equal(pthread_create(&thread, NULL, stranger_main, &me), 0);
    assert_true(loop_until(loop, &b.is_down, 5 * CLOCK_SECOND));
    pthread_join(thread, NULL);
    listener_free(listener);
}

static void no_certificate(void **state)
{
    (void)state;
    meet_stranger(NULL);
    assert_int_equal(b.down_err, ERR_REFUSED);
    assert_says(b.down_reason, "shows no certificate: it does not belong to this run");
}

static void expired_certificate(void **state)
{
    (void)state;
    certs_make_dated(folder, "old", -7200, -3600);
    meet_stranger("old");
    assert_int_equal(b.down_err, ERR_REFUSED);
    assert_says(b.down_reason, "has a certificate that expired on 2");
}

static void certificate_of_the_future(void **state)
{
    (void)state;
    certs_make_dated(folder, "new", 3600, 7200);
    meet_stranger("new");
    assert_says(b.down_reason, "is not valid before 2");
}

static void assert_not_loaded(const char *host, const char *expected)
{
    struct why why = {0};
    assert_null(credentials_load_folder(folder, host, &why));
    assert_says(why.text, expected);
}

static void bad_files_are_refused_when_loaded(void **state)
{
    (void)state;
    char path[600], other[600], ca[600];
    certs_make_dated(folder, "old", -7200, -3600);
    assert_not_loaded("old", "/old.pem expired on ");
    certs_make_dated(folder, "new", 3600, 7200);
    assert_not_loaded("new", "is not valid before ");
    assert_not_loaded("nobody", "nobody.pem");
    certs_make_dated(folder, "open", -60, 3600);
    snprintf(path, sizeof path, "%s/open.key", folder);
    chmod(path, 0640);
    assert_not_loaded("open", "open.key can be read by others (mode 0640): chmod 600 it");
    chmod(path, 0600);
    FILE *file = fopen(path, "w");
    fputs("not a key\n", file);
    fclose(file);
    assert_not_loaded("open", "open.key is not an unencrypted private key in PEM form");

    struct why why = {0};
    snprintf(ca, sizeof ca, "%s/ca.pem", other_folder);
    snprintf(path, sizeof path, "%s/left.pem", folder);
    snprintf(other, sizeof other, "%s/left.key", folder);
    assert_null(credentials_load(ca, path, other, &why));
    assert_says(why.text, "left.pem is a certificate of another run: issued by \"kedge run 1122334455667788\"");
    why = (struct why){0};
    snprintf(ca, sizeof ca, "%s/ca.pem", folder);
    snprintf(other, sizeof other, "%s/right.key", folder);
    assert_null(credentials_load(ca, path, other, &why));
    assert_says(why.text, "do not belong together");
    assert_int_equal(cert_make_host(folder, "../x", &(struct why){0}), ERR_INVALID);
    assert_int_equal(cert_make_host(folder, "ca", &(struct why){0}), ERR_INVALID);
}

static void files_are_private(void **state)
{
    (void)state;
    static const char *const names[] = {"ca.pem", "ca.key", "left.pem", "left.key"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat status;
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(stat(path, &status), 0);
        assert_int_equal(status.st_mode & 0777, 0600);
    }
}

static uint8_t *pattern(size_t bytes)
{
    uint8_t *data = mem_new(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 31 + (i >> 8));
    return data;
}

static int check_pattern(struct end *end, const struct frame_header *header, const uint8_t *payload, size_t bytes)
{
    (void)header;
    for (size_t i = 0; i < bytes; i++)
        if (payload[i] != (uint8_t)(i * 31 + (i >> 8)))
            return ERR_INVALID;
    if (end->messages[LANE_ACT] == 3)
        *(bool *)end->user = true;
    return 0;
}

static void large_messages_arrive_whole(void **state)
{
    (void)state;
    static const size_t sizes[] = {5 << 20, 0, 16384};
    struct link_settings settings = ends_settings("left");
    bool all = false;
    b.on_message = check_pattern;
    b.user = &all;
    meet(left, right, &settings);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(link_send_encoded(a.link, WIRE_ACT, sizes[i] ? pattern(sizes[i]) : NULL, sizes[i], 1, 2), 0);
    if (!loop_until(loop, &all, 10 * CLOCK_SECOND))
        fail_msg("%s", b.down_reason);
    assert_int_equal(b.bytes[LANE_ACT], (5 << 20) + 16384);
}

static void goodbye_arrives(void **state)
{
    (void)state;
    struct link_settings settings = ends_settings("left");
    meet(left, right, &settings);
    for (int i = 0; i < 20; i++) /* unread bytes on both sides must not cost the BYE */
        link_send_encoded(b.link, WIRE_ACT, pattern(1 << 20), 1 << 20, 1, 0);
    link_close(a.link, 0, "work is done", CLOCK_SECOND);
    assert_true(loop_until(loop, &b.is_down, 3 * CLOCK_SECOND));
    assert_true(loop_until(loop, &a.is_down, 3 * CLOCK_SECOND));
    assert_int_equal(a.down_err, 0);
    assert_int_equal(b.down_err, 0);
    assert_says(b.down_reason, "said goodbye: work is done");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(same_run_is_let_in),
        TEST(certificate_of_another_run),
        TEST(wrong_host_name_is_refused),
        TEST(wrong_run_id_is_refused),
        TEST(plain_against_tls),
        TEST(tls_against_plain),
        TEST(no_certificate),
        TEST(expired_certificate),
        TEST(certificate_of_the_future),
        TEST(bad_files_are_refused_when_loaded),
        TEST(files_are_private),
        TEST(large_messages_arrive_whole),
        TEST(goodbye_arrives),
    };
    return cmocka_run_group_tests(tests, make_credentials, remove_credentials);
}
