/*
 * Files to a host on this machine: ours beside OpenSSH's scp, in one run; and ours over a road of 200 Mbit/s and 100 ms beside what that
 * road can carry. Of noise, which nothing makes smaller; of the programs that hosts are sent; of weights in bf16; and of text.
 * BENCH_MIB=N changes the size, BENCH_MBIT=N the road, BENCH_KINDS="noise text" the choice.
 */
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/session/upload.h"
#include "tests/helpers/ends.h"
#include "tests/helpers/sshd.h"

#define SECOND 1e9

struct outcome {
    bool done;
    int err;
    char reason[1500];
};

static void on_done(struct upload *upload, int err, bool sent, const char *reason, void *arg)
{
    struct outcome *outcome = arg;
    outcome->done = true;
    outcome->err = err ? err : sent ? 0 : ERR_INVALID;
    snprintf(outcome->reason, sizeof outcome->reason, "%s", reason);
    upload_free(upload);
}

/* With the login, as a command has it; `login`, if it is not NULL, gets that part of it. */
static double upload_seconds(struct loop *loop, struct sshd *sshd, const struct slow_settings *slow, double *login)
{
    struct caller caller;
    struct outcome outcome = {0};
    struct why why = {0};
    char from[600], to[600], address[64];
    snprintf(address, sizeof address, "127.0.0.1:%u", sshd->port);
    snprintf(from, sizeof from, "%s", place_file(&sshd->place, "file"));
    snprintf(to, sizeof to, "%s", place_file(&sshd->place, "ours"));
    unlink(to);
    uint64_t began_ns = clock_now_ns();
    caller_init(&caller, loop, sshd);
    struct road *road = road_tcp_dial(loop, address, &why);
    caller_over(&caller, slow ? road_slow(loop, road, slow) : road);
    if (!caller_up(&caller))
        BUG("%s", caller.reason);
    const struct upload_callbacks callbacks = {.done = on_done};
    const char *build = getenv("O");
    char *programs = realpath(build ? build : "build", NULL); /* as if they were there: what is sent behind them */
    const struct upload_settings settings = {.programs = programs, .local = from, .remote = to, .mode = 0600, .stall_ns = 20 * CLOCK_SECOND};
    if (login)
        *login = (double)(clock_now_ns() - began_ns) / SECOND;
    if (!upload_new(loop, caller.session, &settings, &callbacks, &outcome, &why))
        BUG("%s", why.text);
    free(programs);
    loop_until(loop, &outcome.done, 600 * CLOCK_SECOND);
    double seconds = (double)(clock_now_ns() - began_ns) / SECOND;
    if (!outcome.done || outcome.err)
        BUG("%s", outcome.reason);
    caller_end(&caller);
    return seconds;
}

/* What the road itself gives: plain bytes to somebody who takes them all, under the same load of the machine. */
struct plain {
    struct road *road;
    uint64_t left;
    bool done;
};

static void on_plain(void *arg)
{
    struct plain *plain = arg;
    static uint8_t bytes[65536];
    struct why why = {0};
    ssize_t moved = road_start(plain->road, &why);
    if (moved == 0 && plain->left == 0)
        moved = road_read(plain->road, bytes, 1, &why); /* the other end closes when it has all */
    while (moved >= 0 && plain->left) {
        moved = road_write(plain->road, bytes, plain->left < sizeof bytes ? plain->left : sizeof bytes, &why);
        plain->left -= moved > 0 ? (uint64_t)moved : 0;
    }
    plain->done = moved < 0 && moved != ERR_AGAIN;
    road_want(plain->road, !plain->done && plain->left == 0, plain->left > 0);
}

static double plain_seconds(struct loop *loop, uint64_t bytes, const struct slow_settings *slow)
{
    struct plain plain = {.left = bytes};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t to_bytes = sizeof to;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&to, to_bytes) != 0 || listen(listening, 1) != 0 ||
        getsockname(listening, (struct sockaddr *)&to, &to_bytes) != 0)
        BUG("cannot listen");
    pid_t child = fork();
    if (child == 0) {
        static uint8_t sink[1 << 17];
        int fd = accept(listening, NULL, NULL);
        while (bytes) {
            ssize_t got = read(fd, sink, sizeof sink);
            if (got <= 0)
                break;
            bytes -= (uint64_t)got;
        }
        _exit(0);
    }
    close(listening);
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(to.sin_port));
    uint64_t began_ns = clock_now_ns();
    plain.road = road_slow(loop, road_tcp_dial(loop, address, &(struct why){0}), slow);
    road_on_ready(plain.road, on_plain, &plain);
    road_want(plain.road, true, true);
    on_plain(&plain); /* sets out; from then on the road says when */
    loop_until(loop, &plain.done, 600 * CLOCK_SECOND);
    double seconds = (double)(clock_now_ns() - began_ns) / SECOND;
    road_free(plain.road);
    waitpid(child, NULL, 0);
    return seconds;
}

static double command_seconds(const char *format, ...) __attribute__((format(printf, 1, 2)));
static double command_seconds(const char *format, ...)
{
    char command[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    uint64_t began_ns = clock_now_ns();
    if (system(command) != 0)
        BUG("failed: %s", command);
    return (double)(clock_now_ns() - began_ns) / SECOND;
}

static double scp_seconds(struct sshd *sshd, const char *options)
{
    const char *folder = sshd->place.folder;
    command_seconds("rm -f %s/scp", folder);
    return command_seconds("scp -q %s -F none -P %u -i %s/id -o UserKnownHostsFile=%s/known_hosts %s/file %s@127.0.0.1:%s/scp", options,
                           sshd->port, folder, folder, folder, sshd_user(), folder);
}

static double least(double one, double other)
{
    return one < other ? one : other;
}

/* ---- what is sent ---- */

static void make_noise(const char *path, double bytes)
{
    command_seconds("head -c %.0f /dev/urandom >%s", bytes, path);
}

/* Of what a host is sent of programs, as often as it fits: the same comes again 50 MB later, where no compressor of ours sees it. */
static void make_programs(const char *path, double bytes)
{
    command_seconds("o=${O:-build}; set -- $o/kedge-worker $o/kedge-cpu.so $o/kedged; set -- \"$@\" $(ldd \"$@\" | "
                    "sed -n 's/.*=> \\(\\/[^ ]*\\).*/\\1/p' | sort -u | grep -v '/libc[.]\\|/libm[.]'); "
                    "while cat \"$@\" 2>/dev/null; do :; done | head -c %.0f >%s", bytes, path);
}

/* Normal, in matrices of several scales, rounded to bf16. */
static void make_weights(const char *path, double bytes)
{
    FILE *file = fopen(path, "w");
    for (uint64_t i = 0, state = 1; file && i < (uint64_t)bytes / 2; i++) {
        float sum = 0, scale = 0.01f + 0.004f * (float)(i >> 22 & 7);
        for (int j = 0; j < 6; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(state >> 40) / (1 << 24) - 0.5f;
        }
        sum *= scale * sqrtf(2);
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        uint16_t word = (uint16_t)((bits + 0x8000) >> 16);
        fwrite(&word, sizeof word, 1, file);
    }
    if (!file || fclose(file) != 0)
        BUG("cannot write %s", path);
}

/* Our own, again and again: the same comes some MB later. */
static void make_text(const char *path, double bytes)
{
    command_seconds("while cat README.md man/* */*.[ch] */*/*.[ch] */*/*.sh; do :; done 2>/dev/null | head -c %.0f >%s", bytes, path);
}

static const struct kind {
    const char *name;
    void (*make)(const char *path, double bytes);
} kinds[] = {{"noise", make_noise}, {"programs", make_programs}, {"weights", make_weights}, {"text", make_text}};

/* The best of five each, in turn, all with their logins. scp once more with what both it and libssh2 have: how that ratio differs from the
 * one to scp shows how much of the difference is the library's ciphers. */
static void on_loopback(struct loop *loop, struct sshd *sshd, const char *name, double mib)
{
    double scp = 1e9, same = 1e9, ours = 1e9, login;
    for (int i = 0; i < 5; i++) {
        scp = least(scp, scp_seconds(sshd, ""));
        same = least(same, scp_seconds(sshd, "-c aes128-ctr -o MACs=hmac-sha2-256"));
        ours = least(ours, upload_seconds(loop, sshd, NULL, &login));
    }
    printf("upload of %.0f MiB of %s on loopback: scp %.2f s, scp with our cipher %.2f s; ours, verified, %.2f s (%.2f of it the login) = %.2f "
           "of scp's speed, %.2f of that with our cipher\n", mib, name, scp, same, ours, login, scp / ours, same / ours);
}

static void over_a_road(struct loop *loop, struct sshd *sshd, const char *name, double mib)
{
    const char *asked = getenv("BENCH_MBIT");
    double mbit = asked ? strtod(asked, NULL) : 200, login;
    const struct slow_settings far = {.rate_bps = (uint64_t)(mbit * 1e6), .delay_ns = 50 * CLOCK_MS};
    double plain = plain_seconds(loop, (uint64_t)(mib * 1048576), &far), slow = upload_seconds(loop, sshd, &far, &login) - login;
    printf("upload of %.0f MiB of %s, %.0f Mbit/s and 100 ms: plain bytes %.2f s, ours behind the login %.2f s = %.0f %% of the road\n", mib,
           name, mbit, plain, slow, 100 * plain / slow);
}

int main(void)
{
    struct sshd sshd;
    struct loop *loop = loop_new(&(struct why){0});
    const char *asked = getenv("BENCH_MIB"), *chosen = getenv("BENCH_KINDS");
    double mib = asked ? strtod(asked, NULL) : 256;
    setlinebuf(stdout);
    if (!sshd_is_here()) {
        printf("upload: no sshd here\n");
        return 0;
    }
    if (sshd_start(&sshd, "Subsystem sftp internal-sftp") != 0)
        BUG("sshd does not start");
    make_noise(place_file(&sshd.place, "file"), 0);
    printf("an empty file by scp: %.2f s, nearly all of it the login\n", scp_seconds(&sshd, ""));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (chosen && !strstr(chosen, kinds[i].name))
            continue;
        kinds[i].make(place_file(&sshd.place, "file"), mib * 1048576);
        on_loopback(loop, &sshd, kinds[i].name, mib);
        over_a_road(loop, &sshd, kinds[i].name, mib);
    }
    loop_free(loop);
    sshd_stop(&sshd);
    return 0;
}
