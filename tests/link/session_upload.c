/* Files to a real sshd: whole, resumed, damaged, already there, onto a full disk, over a slow road, and with a peer
 * that dies. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/session/upload.h"
#include "tests/helpers/ends.h"
#include "tests/helpers/flaky.h"
#include "tests/helpers/server.h"

#define PIECE ((size_t)1 << 20) /* what arrived is noted in these */

struct outcome {
    bool done, sent;
    int err;
    char reason[1500];
    unsigned reports, phases; /* a bit each */
    struct upload_progress newest;
    uint64_t kill_at; /* bytes; then the sessions of sshd are killed */
    struct sshd *victim;
};

static void on_progress(struct upload *upload, const struct upload_progress *progress, void *arg)
{
    struct outcome *outcome = arg;
    (void)upload;
    outcome->reports++;
    outcome->phases |= 1u << progress->phase;
    outcome->newest = *progress;
}

static void on_done(struct upload *upload, int err, bool sent, const char *reason, void *arg)
{
    struct outcome *outcome = arg;
    outcome->done = true;
    outcome->err = err;
    outcome->sent = sent;
    snprintf(outcome->reason, sizeof outcome->reason, "%s", reason);
    upload_free(upload);
}

static void make_file(const char *name, size_t bytes, unsigned seed)
{
    FILE *file = fopen(place_file(&server.place, name), "w");
    uint64_t state = seed;
    assert_non_null(file);
    for (size_t at = 0; at < bytes; at += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        assert_int_equal(fwrite(&state, bytes - at < 8 ? bytes - at : 8, 1, file), 1);
    }
    fclose(file);
}

static void same(const char *one, const char *other)
{
    char command[1400];
    snprintf(command, sizeof command, "cd '%s' && cmp \"%s\" \"%s\"", server.place.folder, one, other);
    assert_int_equal(system(command), 0);
}

static bool is_there(const char *name)
{
    return access(place_file(&server.place, name), F_OK) == 0;
}

static struct upload *push_with(struct outcome *outcome, struct session *session, const char *local, const char *remote,
                                const char *programs)
{
    char from[600], to[600];
    struct why why = {0};
    static const struct upload_callbacks callbacks = {on_progress, on_done};
    snprintf(from, sizeof from, "%s", place_file(&server.place, local));
    snprintf(to, sizeof to, "%s", remote[0] == '/' ? remote : place_file(&server.place, remote));
    struct upload_settings settings = {
        .local = from, .remote = to, .programs = programs, .mode = 0755, .stall_ns = 10 * CLOCK_SECOND, .verify_ns = 60 * CLOCK_SECOND};
    memset(outcome, 0, sizeof *outcome);
    struct upload *upload = upload_new(loop, session, &settings, &callbacks, outcome, &why);
    if (!upload) {
        outcome->done = true;
        outcome->err = why.err;
        snprintf(outcome->reason, sizeof outcome->reason, "%s", why.text);
    }
    return upload;
}

static struct upload *push(struct outcome *outcome, struct session *session, const char *local, const char *remote)
{
    return push_with(outcome, session, local, remote, NULL);
}

static void pushed(struct outcome *outcome, int err, bool sent, const char *words)
{
    if (!loop_until(loop, &outcome->done, 60 * CLOCK_SECOND) || outcome->err != err || outcome->sent != sent ||
        !strstr(outcome->reason, words)) {
        fprintf(stderr, "err %d, sent %d, phase %s: %s\n", outcome->err, outcome->sent,
                upload_phase_name(outcome->newest.phase), outcome->reason);
        sshd_print_log(&server);
        fail();
    }
}

static void files_of_all_sizes(void **unused)
{
    static const size_t sizes[] = {0, 1, 4096, PIECE - 1, PIECE, 2 * PIECE + 12345};
    struct caller caller;
    struct outcome outcome;
    struct stat status;
    (void)unused;
    server_connect(&caller);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        make_file("a file", sizes[i], 7 + (unsigned)i);
        push(&outcome, caller.session, "a file", "deep/it's here");
        pushed(&outcome, 0, true, "sent and verified");
        same("a file", "deep/it's here");
        push(&outcome, caller.session, "a file", "deep/it's here");
        pushed(&outcome, 0, false, "is there already");
    }
    assert_int_equal(stat(place_file(&server.place, "deep/it's here"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0755);
    assert_false(is_there("deep/it's here.part") || is_there("deep/it's here.part.list"));
    caller_end(&caller);
}

static void a_changed_file_is_sent_again(void **unused)
{
    struct caller caller;
    struct outcome outcome;
    (void)unused;
    server_connect(&caller);
    make_file("one", 100000, 1);
    push(&outcome, caller.session, "one", "changing");
    pushed(&outcome, 0, true, "");
    make_file("one", 100000, 2); /* of the same size */
    push(&outcome, caller.session, "one", "changing");
    pushed(&outcome, 0, true, "");
    same("one", "changing");
    caller_end(&caller);
}

/* Killed at some point, a new session goes on; what was there is not sent twice. */
static void an_upload_that_broke_off_goes_on(void **unused)
{
    (void)unused;
    make_file("large", 20 * PIECE + 99, 3);
    for (int round = 0; round < 1; round++) {
        struct caller caller;
        struct outcome outcome;
        char command[1200];
        snprintf(command, sizeof command, "cd '%s' && rm -f arrived arrived.part*", server.place.folder);
        assert_int_equal(system(command), 0);
        server_connect(&caller);
        push(&outcome, caller.session, "large", "arrived");
        struct stat list = {0};
        for (int i = 0; i < 2000 && list.st_size < 50 + 6 * round && !outcome.done; i++) {
            loop_run_once(loop, 10 * CLOCK_MS);
            if (stat(place_file(&server.place, "arrived.part.list"), &list) != 0)
                list.st_size = 0;
        }
        sshd_kill_sessions(&server);
        pushed(&outcome, ERR_GONE, false, "closed the connection");
        caller_end(&caller);
        assert_false(is_there("arrived"));
        server_connect(&caller);
        push(&outcome, caller.session, "large", "arrived");
        pushed(&outcome, 0, true, "");
        same("large", "arrived");
        caller_end(&caller);
    }
}

static void a_part_is_really_used(void **unused)
{
    struct caller caller;
    struct outcome outcome;
    char command[1600];
    (void)unused;
    make_file("parted", 24 * PIECE, 4);
    server_connect(&caller);
    struct upload *upload = push(&outcome, caller.session, "parted", "goal");
    struct stat list = {0};
    for (int i = 0; i < 2000 && list.st_size < 50; i++) {
        loop_run_once(loop, 10 * CLOCK_MS);
        if (stat(place_file(&server.place, "goal.part.list"), &list) != 0)
            list.st_size = 0;
    }
    assert_false(outcome.done);
    upload_free(upload); /* left on purpose: the part stays */
    loop_for(loop, 100 * CLOCK_MS);
    snprintf(command, sizeof command, "cd '%s' && head -n 1 goal.part.list >head", server.place.folder);
    assert_int_equal(system(command), 0);
    push(&outcome, caller.session, "parted", "goal");
    pushed(&outcome, 0, true, "");
    same("parted", "goal");
    /* Now with a part that says it is whole, but is damaged: found by the hash, and sent again from the beginning. */
    snprintf(command, sizeof command,
             "cd '%s' && mv goal goal.part && printf X | dd of=goal.part bs=1 seek=777777 conv=notrunc "
             "status=none && (cat head; echo 0 %zu) >goal.part.list",
             server.place.folder, 24 * PIECE);
    assert_int_equal(system(command), 0);
    push(&outcome, caller.session, "parted", "goal");
    pushed(&outcome, 0, true, "");
    same("parted", "goal");
    caller_end(&caller);
}

static void a_full_disk(void **unused)
{
    struct caller caller;
    struct outcome outcome;
    char small[600], goal[700];
    (void)unused;
    snprintf(small, sizeof small, "%s", place_file(&server.place, "small disk"));
    mkdir(small, 0700);
    if (mount("none", small, "tmpfs", 0, "size=5m") != 0)
        skip();
    make_file("too large", 10 << 20, 5);
    server_connect(&caller);
    snprintf(goal, sizeof goal, "%s/goal", small);
    push(&outcome, caller.session, "too large", goal);
    loop_until(loop, &outcome.done, 30 * CLOCK_SECOND);
    bool left = access(goal, F_OK) == 0;
    caller_end(&caller);
    sshd_kill_sessions(&server);
    umount2(small, MNT_DETACH);
    assert_int_equal(outcome.err, ERR_FULL);
    assert_non_null(strstr(outcome.reason, "the disk is full: host one stopped taking the file"));
    assert_non_null(strstr(outcome.reason, "No space left on device"));
    assert_false(left);
}

static void what_cannot_be_sent(void **unused)
{
    struct caller caller;
    struct outcome outcome;
    (void)unused;
    server_connect(&caller);
    push(&outcome, caller.session, "absent", "x");
    pushed(&outcome, ERR_ABSENT, false, "cannot send");
    push(&outcome, caller.session, ".", "x");
    pushed(&outcome, ERR_INVALID, false, "not a regular file");
    make_file("file", 10, 1);
    push(&outcome, caller.session, "file", "/proc/nothing/x");
    pushed(&outcome, ERR_INVALID, false, "mkdir");
    caller_end(&caller);
}

static void over_a_road_that_gives_and_takes_as_it_likes(void **unused)
{
    (void)unused;
    make_file("flaky", 700000, 6);
    for (uint64_t seed = 11; seed < 12; seed++) {
        struct caller caller;
        struct outcome outcome;
        char address[64];
        caller_init(&caller, loop, &server);
        snprintf(address, sizeof address, "127.0.0.1:%u", server.port);
        caller_over(&caller, road_flaky(loop, road_tcp_dial(loop, address, &(struct why){0}), seed));
        assert_true(caller_up(&caller));
        push(&outcome, caller.session, "flaky", seed == 11 ? "flaky one" : "flaky two");
        pushed(&outcome, 0, true, "");
        same("flaky", seed == 11 ? "flaky one" : "flaky two");
        caller_end(&caller);
    }
}

/* 1 Mbit/s and 300 ms: it gets through, and says how far it is. */
static void over_a_slow_road(void **unused)
{
    const struct slow_settings slow = {.rate_bps = 1000000, .delay_ns = 150 * CLOCK_MS};
    struct caller caller;
    struct outcome outcome;
    char address[64];
    (void)unused;
    make_file("little", 300000, 8);
    caller_init(&caller, loop, &server);
    snprintf(address, sizeof address, "127.0.0.1:%u", server.port);
    caller_over(&caller, road_slow(loop, road_tcp_dial(loop, address, &(struct why){0}), &slow));
    assert_true(caller_up(&caller));
    push(&outcome, caller.session, "little", "little there");
    pushed(&outcome, 0, true, "");
    same("little", "little there");
    assert_true(outcome.reports >= 4);
    assert_true(outcome.phases & 1u << UPLOAD_SENDING);
    caller_end(&caller);
}

static void make_text(const char *name, size_t bytes)
{
    FILE *file = fopen(place_file(&server.place, name), "w");
    assert_non_null(file);
    for (unsigned i = 0; (size_t)ftell(file) < bytes; i++)
        fprintf(file, "%u bottles of beer on the wall, %u bottles of beer.\n", i, i * i);
    fclose(file);
}

/* Each: what the host has of programs to undo frames, and whether the text comes compressed: by our own worker, by those of the system; and
 * where they are broken, a second time as it is. At least the first orders go compressed, however fast the road is. */
static void text_goes_compressed_where_it_can_be_undone(void **unused)
{
    static const struct {
        const char *tools;
        bool compressed;
    } hosts[] = {
        {":", false},
        {"ln -s \"$W\" kedge-worker", true},
        {"ln -s /bin/gzip .", true},
        {"ln -s /bin/false kedge-worker; ln -s /bin/gzip .", true},
        {"printf '#!/bin/sh\nhead -c 1000; exit 1\n' >gzip; chmod +x gzip", false},
    };
    struct place bin;
    struct sshd host;
    struct caller caller;
    struct outcome outcome;
    char command[2000], extra[700];
    const char *build = getenv("O");
    (void)unused;
    make_text("text", 2 * PIECE + 77);
    assert_int_equal(place_init(&bin), 0);
    snprintf(command, sizeof command, "cd '%s' && ln -s /bin/* . 2>/dev/null", bin.folder);
    assert_int_equal(system(command), 0);
    snprintf(extra, sizeof extra, "ForceCommand PATH='%s' exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"", bin.folder);
    assert_int_equal(sshd_start(&host, extra), 0);
    caller_init(&caller, loop, &host);
    caller_dial(&caller);
    assert_true(caller_up(&caller));
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        snprintf(command, sizeof command, "W=$(realpath '%s/kedge-worker'); rm -f '%s/there'; cd '%s' && rm -f zstd gzip kedge-worker; %s",
                 build ? build : "build", server.place.folder, bin.folder, hosts[i].tools);
        assert_int_equal(system(command), 0);
        push_with(&outcome, caller.session, "text", "there", bin.folder);
        pushed(&outcome, 0, true, "sent and verified");
        same("text", "there");
        assert_int_equal(outcome.newest.arrived_bytes, outcome.newest.total_bytes);
        if ((outcome.newest.sent_bytes < outcome.newest.total_bytes) != hosts[i].compressed)
            fail_msg("with %s: %lu bytes were sent of %lu", hosts[i].tools, (unsigned long)outcome.newest.sent_bytes,
                     (unsigned long)outcome.newest.total_bytes);
        push_with(&outcome, caller.session, "text", "there", bin.folder);
        pushed(&outcome, 0, false, "is there already");
    }
    caller_end(&caller);
    sshd_stop(&host);
    place_clear(&bin);
}

/* Over a road of 2 Mbit/s nearly nothing of it is sent as it is, and what breaks off goes on. */
static void compressed_and_broken_off(void **unused)
{
    const struct slow_settings slow = {.rate_bps = 2000000, .delay_ns = 5 * CLOCK_MS};
    struct outcome outcome;
    char address[64];
    (void)unused;
    make_text("long text", 6 * PIECE + 77);
    snprintf(address, sizeof address, "127.0.0.1:%u", server.port);
    for (int round = 0; round < 2; round++) {
        struct caller caller;
        caller_init(&caller, loop, &server);
        caller_over(&caller, road_slow(loop, road_tcp_dial(loop, address, &(struct why){0}), &slow));
        assert_true(caller_up(&caller));
        struct upload *upload = push(&outcome, caller.session, "long text", "long there");
        while (round == 0 && outcome.newest.arrived_bytes == 0 && !outcome.done)
            loop_run_once(loop, CLOCK_SECOND);
        if (round == 0 && !outcome.done)
            upload_free(upload);
        else
            pushed(&outcome, 0, true, "");
        caller_end(&caller);
        if (round == 0)
            loop_for(loop, 100 * CLOCK_MS);
    }
    same("long text", "long there");
    assert_true(outcome.newest.resumed_bytes >= PIECE);
    assert_true(2 * outcome.newest.sent_bytes < outcome.newest.total_bytes - outcome.newest.resumed_bytes);
}

static void a_host_that_takes_no_more(void **unused)
{
    struct sshd frozen;
    struct caller caller;
    struct outcome outcome;
    char command[200], from[600], to[600];
    (void)unused;
    make_file("stuck", 160 * PIECE, 9);
    assert_int_equal(sshd_start(&frozen, ""), 0);
    caller_init(&caller, loop, &frozen);
    caller_dial(&caller);
    assert_true(caller_up(&caller));
    static const struct upload_callbacks callbacks = {on_progress, on_done};
    snprintf(from, sizeof from, "%s", place_file(&server.place, "stuck"));
    snprintf(to, sizeof to, "%s", place_file(&frozen.place, "stuck"));
    struct upload_settings settings = {.local = from, .remote = to, .mode = 0600, .stall_ns = 3 * CLOCK_SECOND};
    memset(&outcome, 0, sizeof outcome);
    assert_non_null(upload_new(loop, caller.session, &settings, &callbacks, &outcome, &(struct why){0}));
    while (outcome.newest.arrived_bytes == 0 && !outcome.done)
        loop_run_once(loop, CLOCK_SECOND);
    snprintf(command, sizeof command,
             "for p in $(ps -o pid= --ppid %d); do kill -STOP $p $(ps -o pid= --ppid $p); done 2>/dev/null",
             (int)frozen.pid);
    if (system(command) != 0)
        print_message("some of them had gone\n");
    if (!outcome.done) {
        pushed(&outcome, ERR_TIMEOUT, false, "host one"); /* on a busy machine one of its shells had not begun yet, and says so */
        assert_true(strstr(outcome.reason, "has not begun") || outcome.newest.stalled_ns >= CLOCK_SECOND); /* it was shown before */
    }
    caller_end(&caller);
    sshd_stop(&frozen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_all_sizes),
        cmocka_unit_test(a_changed_file_is_sent_again),
        cmocka_unit_test(an_upload_that_broke_off_goes_on),
        cmocka_unit_test(a_part_is_really_used),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(what_cannot_be_sent),
        cmocka_unit_test(over_a_road_that_gives_and_takes_as_it_likes),
        cmocka_unit_test(over_a_slow_road),
        cmocka_unit_test(text_goes_compressed_where_it_can_be_undone),
        cmocka_unit_test(compressed_and_broken_off),
        cmocka_unit_test(a_host_that_takes_no_more),
    };
    if (!sshd_is_here()) {
        printf("no sshd here (openssh-server): nothing was sent\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, server_begin, server_end);
}
