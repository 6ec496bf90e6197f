/*
 * How fast links carry ACT messages over loopback, beside what they are made of:
 *   TLS link   against OpenSSL alone: SSL_write and SSL_read on blocking sockets, the same cipher and bytes, each message in
 *              fresh memory and put together again on the other side, as every user of either has to
 *   plain link against iperf3, one stream
 * Every pair runs alternately in one go, two processes each; the median of ROUNDS counts. A line is: name value unit
 * (what it is compared with). Seconds of CPU are given too, since on a busy machine MB/s say little.
 */
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/certs.h"
#include "tests/helpers/ends.h"

#define ROUNDS 3
#define MESSAGE_BYTES ((size_t)1 << 20)
#define MESSAGES 384

static struct credentials *left, *right;

static double megabytes_per_second(uint64_t ns)
{
    return (double)(MESSAGES * MESSAGE_BYTES) / 1e6 / ((double)ns / 1e9);
}

/* Seconds of CPU that this process and its children have used: unlike MB/s it hardly depends on what else the machine
 * does. */
static double cpu_seconds(void)
{
    double sum = 0;
    const int who[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    for (int i = 0; i < 2; i++) {
        struct rusage usage;
        getrusage(who[i], &usage);
        sum += (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
        sum += (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    }
    return sum;
}

static double median(double *values, int count)
{
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && values[k] < values[k - 1]; k--) {
            double swap = values[k];
            values[k] = values[k - 1];
            values[k - 1] = swap;
        }
    return values[count / 2];
}

/* ---- a link ---- */

struct bench {
    struct loop *loop;
    struct end end;
    bool tls;
    int sent;
    bool over;
    size_t message_bytes;
    uint64_t begin_ns, end_ns;
};

static struct bench bench;

static int on_receive(struct end *end, const struct frame_header *header, const uint8_t *payload, size_t bytes)
{
    (void)header, (void)payload, (void)bytes;
    if (end->bytes[LANE_ACT] == MESSAGES * MESSAGE_BYTES)
        link_send(end->link, WIRE_DONE, &(struct wire_done){.step = 1}, 0, 0);
    return 0;
}

static void on_end(struct end *end)
{
    (void)end;
    bench.over = true;
}

static void serve_accept(struct road *road, const char *from, void *arg)
{
    (void)from, (void)arg;
    struct why why = {0};
    struct link_settings settings = ends_settings("right");
    settings.silent_ns = 30 * CLOCK_SECOND;
    bench.end.on_message = on_receive;
    bench.end.on_down = on_end;
    end_begin(&bench.end, bench.loop, bench.tls ? road_tls(bench.loop, road, right, true, &why) : road, &settings);
}

static void serve(int report_fd, bool tls)
{
    struct why why = {0};
    memset(&bench, 0, sizeof bench);
    bench.tls = tls;
    bench.loop = loop_new(&why);
    struct listener *listener = listener_tcp(bench.loop, "127.0.0.1:0", serve_accept, NULL, &why);
    char address[WIRE_ADDRESS] = "";
    snprintf(address, sizeof address, "%s", listener_address(listener));
    if (write(report_fd, address, sizeof address) != sizeof address)
        _exit(1);
    loop_until(bench.loop, &bench.over, 60 * CLOCK_SECOND);
    _exit(0);
}

/* Keep a few messages queued: as a worker does that computes faster than the road carries. */
static void top_up(void)
{
    struct link_counters counters;
    link_get_counters(bench.end.link, LANE_ACT, &counters);
    size_t queued = counters.queued_bytes;
    while ((size_t)bench.sent * bench.message_bytes < MESSAGES * MESSAGE_BYTES && queued < 4 * MESSAGE_BYTES) {
        link_send_encoded(bench.end.link, WIRE_ACT, mem_new(bench.message_bytes), bench.message_bytes, 1, 0);
        bench.sent++;
        queued += bench.message_bytes;
    }
}

static int on_done(struct end *end, const struct frame_header *header, const uint8_t *payload, size_t bytes)
{
    (void)end, (void)payload, (void)bytes;
    if (header->type == WIRE_DONE) {
        bench.end_ns = clock_now_ns();
        bench.over = true;
    }
    return 0;
}

static uint64_t run_link(bool tls, size_t message_bytes)
{
    int report[2];
    char address[WIRE_ADDRESS] = "";
    struct why why = {0};
    struct link_settings settings = ends_settings("left");
    settings.silent_ns = 30 * CLOCK_SECOND;
    if (pipe(report) != 0)
        BUG("pipe");
    pid_t child = fork();
    if (child == 0)
        serve(report[1], tls);
    if (read(report[0], address, sizeof address) != sizeof address)
        BUG("the server did not start");
    close(report[0]);
    close(report[1]);
    memset(&bench, 0, sizeof bench);
    bench.message_bytes = message_bytes;
    bench.loop = loop_new(&why);
    bench.end.on_message = on_done;
    struct road *road = road_tcp_dial(bench.loop, address, &why);
    end_begin(&bench.end, bench.loop, tls ? road_tls(bench.loop, road, left, false, &why) : road, &settings);
    if (!loop_until(bench.loop, &bench.end.is_up, 10 * CLOCK_SECOND))
        BUG("%s", bench.end.down_reason);
    bench.begin_ns = clock_now_ns();
    while (!bench.over && !bench.end.is_down) {
        top_up();
        loop_run_once(bench.loop, CLOCK_SECOND);
    }
    if (bench.end.is_down)
        BUG("%s", bench.end.down_reason);
    end_free(&bench.end, bench.loop);
    loop_free(bench.loop);
    waitpid(child, NULL, 0);
    return bench.end_ns - bench.begin_ns;
}

/* ---- OpenSSL alone ---- */

static int listen_on_loopback(struct sockaddr_in *at)
{
    socklen_t bytes = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)at, sizeof *at) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)at, &bytes) != 0)
        BUG("cannot listen");
    return fd;
}

static SSL *raw_ssl(const struct credentials *credentials, int fd, bool server)
{
    SSL *ssl = SSL_new(credentials_context(credentials));
    SSL_set_fd(ssl, fd);
    SSL_set_read_ahead(ssl, 1);
    if ((server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1)
        BUG("raw handshake");
    return ssl;
}

static void raw_serve(int listening)
{
    static uint8_t message[MESSAGE_BYTES];
    int fd = accept(listening, NULL, NULL);
    SSL *ssl = raw_ssl(right, fd, true);
    size_t left_bytes = MESSAGES * MESSAGE_BYTES;
    while (left_bytes) {
        size_t missing = (left_bytes - 1) % MESSAGE_BYTES + 1;
        int count = SSL_read(ssl, message + MESSAGE_BYTES - missing, (int)missing);
        if (count <= 0)
            BUG("raw read");
        left_bytes -= (size_t)count;
    }
    SSL_write(ssl, "k", 1);
    SSL_shutdown(ssl);
    _exit(0);
}

static uint64_t run_openssl(void)
{
    struct sockaddr_in at;
    int listening = listen_on_loopback(&at), yes = 1;
    pid_t child = fork();
    if (child == 0)
        raw_serve(listening);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
        BUG("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    SSL *ssl = raw_ssl(left, fd, false);
    char answer;
    uint64_t begin_ns = clock_now_ns();
    for (int i = 0; i < MESSAGES; i++) {
        uint8_t *message = mem_new(MESSAGE_BYTES);
        for (size_t sent = 0; sent < MESSAGE_BYTES;) {
            int count = SSL_write(ssl, message + sent, (int)(MESSAGE_BYTES - sent));
            if (count <= 0)
                BUG("raw write");
            sent += (size_t)count;
        }
        mem_free(message);
    }
    if (SSL_read(ssl, &answer, 1) != 1)
        BUG("raw answer");
    uint64_t passed_ns = clock_now_ns() - begin_ns;
    SSL_free(ssl);
    close(fd);
    close(listening);
    waitpid(child, NULL, 0);
    return passed_ns;
}

/* ---- iperf3 ---- */

/* MB/s of one stream; 0 = it is not here or would not run. */
static double run_iperf(void)
{
    struct sockaddr_in at;
    char command[200], server[200];
    close(listen_on_loopback(&at)); /* a port that is free now */
    int port = ntohs(at.sin_port);
    snprintf(server, sizeof server, "iperf3 -s -1 -p %d -B 127.0.0.1 >/dev/null 2>&1 &", port);
    snprintf(command, sizeof command, "sleep 0.3; iperf3 -c 127.0.0.1 -p %d -n %zuM -J 2>/dev/null", port,
             MESSAGES * (MESSAGE_BYTES >> 20));
    if (system("command -v iperf3 >/dev/null") != 0 || system(server) != 0)
        return 0;
    FILE *pipe = popen(command, "r");
    json_t *report = pipe ? json_loadf(pipe, 0, NULL) : NULL;
    json_t *sum = json_object_get(json_object_get(report, "end"), "sum_received");
    double result = json_number_value(json_object_get(sum, "bits_per_second")) / 8e6;
    json_decref(report);
    if (pipe)
        pclose(pipe);
    return result;
}

/* One kind of carrying: rounds of it, alternating with the others. */
struct kind {
    const char *name;
    size_t compared_with; /* index in kinds */
    const char *words;
    double rate[ROUNDS], cpu[ROUNDS];
};

enum { TLS, TLS_SMALL, OPENSSL, PLAIN, IPERF, KINDS };

static struct kind kinds[KINDS] = {
    [TLS] = {.name = "link-tls", .compared_with = OPENSSL, .words = "OpenSSL alone"},
    [TLS_SMALL] = {.name = "link-tls-16KiB-messages", .compared_with = OPENSSL, .words = "OpenSSL alone"},
    [OPENSSL] = {.name = "openssl-alone", .compared_with = OPENSSL, .words = "OpenSSL alone"},
    [PLAIN] = {.name = "link-plain", .compared_with = IPERF, .words = "iperf3"},
    [IPERF] = {.name = "iperf3", .compared_with = IPERF, .words = "iperf3"},
};

static double run(int kind)
{
    switch (kind) {
    case TLS:
        return megabytes_per_second(run_link(true, MESSAGE_BYTES));
    case TLS_SMALL:
        return megabytes_per_second(run_link(true, 16384));
    case OPENSSL:
        return megabytes_per_second(run_openssl());
    case PLAIN:
        return megabytes_per_second(run_link(false, MESSAGE_BYTES));
    default:
        return run_iperf();
    }
}

int main(void)
{
    char folder[400];
    signal(SIGPIPE, SIG_IGN);
    certs_make(ENDS_RUN, folder, sizeof folder);
    left = certs_load(folder, "left");
    right = certs_load(folder, "right");
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < KINDS; i++) {
            double begin = cpu_seconds();
            kinds[i].rate[round] = run(i);
            kinds[i].cpu[round] = (cpu_seconds() - begin) * 1e9 / (double)(MESSAGES * MESSAGE_BYTES);
        }
    for (int i = 0; i < KINDS; i++) {
        struct kind *kind = &kinds[i], *other = &kinds[kind->compared_with];
        double rate = median(kind->rate, ROUNDS), than = median(other->rate, ROUNDS);
        if (than > 0)
            printf("%s %.0f MB/s (%.2f of %s)\n", kind->name, rate, rate / than, kind->words);
        else if (rate > 0)
            printf("%s %.0f MB/s (%s is not here)\n", kind->name, rate, kind->words);
        if (i != IPERF) /* its server is not our child */
            printf("%s-cpu %.3f s/GB, both ends\n", kind->name, median(kind->cpu, ROUNDS));
    }
    credentials_free(left);
    credentials_free(right);
    certs_remove(folder);
    return 0;
}
