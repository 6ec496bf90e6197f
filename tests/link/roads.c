/* Transports and listeners with real sockets: TCP, Unix sockets, descriptors; who holds a port; stale sockets; long
 * paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/ends.h"

static struct loop *loop;
static struct end a, b;
static struct listener *listener;
static char from_seen[200];

static int set_up(void **state)
{
    (void)state;
    struct why why = {0};
    loop = loop_new(&why);
    assert_non_null(loop);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    listener = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_free(&a, loop);
    end_free(&b, loop);
    listener_free(listener);
    loop_free(loop);
    return 0;
}

static const char *temp_path(const char *name)
{
    static char path[400];
    const char *folder = getenv("TMP");
    snprintf(path, sizeof path, "%s/%s.%ld", folder ? folder : "/tmp", name, (long)getpid());
    return path;
}

static void accept_b(struct road *road, const char *from, void *arg)
{
    (void)arg;
    struct link_settings settings = ends_settings("right");
    snprintf(from_seen, sizeof from_seen, "%s", from);
    end_begin(&b, loop, road, &settings);
}

static void dial_a(struct road *road)
{
    struct link_settings settings = ends_settings("left");
    assert_non_null(road);
    end_begin(&a, loop, road, &settings);
}

static void assert_both_up(void)
{
    if (!loop_until(loop, &a.is_up, 3 * CLOCK_SECOND) || !loop_until(loop, &b.is_up, 3 * CLOCK_SECOND))
        fail_msg("not up: '%s' '%s'", a.down_reason, b.down_reason);
}

static void tcp_stands(void **state)
{
    (void)state;
    struct why why = {0};
    listener = listener_tcp(loop, "127.0.0.1:0", accept_b, NULL, &why);
    assert_non_null(listener);
    const char *address = listener_address(listener);
    assert_memory_equal(address, "127.0.0.1:", 10);
    assert_string_not_equal(address, "127.0.0.1:0");
    dial_a(road_tcp_dial(loop, address, &why));
    assert_both_up();
    char expected[200];
    snprintf(expected, sizeof expected, "tcp %s → right", address);
    assert_string_equal(link_describe(a.link), expected);
    assert_memory_equal(from_seen, "127.0.0.1:", 10);
}

static void count_and_close(struct road *road, const char *from, void *arg)
{
    (void)from;
    ++*(int *)arg;
    road_free(road);
}

static void stands(struct road *road)
{
    struct why why = {0};
    assert_non_null(road);
    road_want(road, true, true);
    while (road_start(road, &why) == ERR_AGAIN)
        loop_run_once(loop, CLOCK_SECOND);
    assert_int_equal(why.err, 0);
    road_want(road, false, false);
}

/* Where a name has several addresses, the second road goes where the first one stands. */
static void a_road_is_dialled_again(void **state)
{
    (void)state;
    struct why why = {0};
    char address[100], where[200], again[200];
    int accepted = 0;
    listener = listener_tcp(loop, "127.0.0.1:0", count_and_close, &accepted, &why);
    assert_non_null(listener);
    snprintf(address, sizeof address, "localhost%s", strrchr(listener_address(listener), ':'));
    struct road *first = road_tcp_dial(loop, address, &why), *one, *other;
    assert_null(road_tcp_again(loop, first)); /* it does not stand yet */
    stands(first);
    struct road *second = road_tcp_again(loop, first);
    stands(second);
    while (accepted < 2)
        loop_run_once(loop, CLOCK_SECOND);
    road_describe(first, where, sizeof where);
    road_describe(second, again, sizeof again);
    assert_string_equal(where, again);
    road_free(first);
    road_free(second);
    road_pair(loop, 4096, &one, &other);
    assert_null(road_tcp_again(loop, one));
    road_free(one);
    road_free(other);
}

static void localhost_and_ipv6_stand(void **state)
{
    (void)state;
    struct why why = {0};
    char address[100];
    listener = listener_tcp(loop, "[::1]:0", accept_b, NULL, &why);
    if (!listener)
        skip(); /* a machine without IPv6 */
    /* 127.0.0.1 is tried first and refuses; ::1 stands. */
    snprintf(address, sizeof address, "localhost%s", strrchr(listener_address(listener), ':'));
    dial_a(road_tcp_dial(loop, address, &why));
    assert_both_up();
}

static void nobody_listens(void **state)
{
    (void)state;
    struct why why = {0};
    char address[100];
    listener = listener_tcp(loop, "127.0.0.1:0", accept_b, NULL, &why);
    snprintf(address, sizeof address, "%s", listener_address(listener));
    listener_free(listener);
    listener = NULL;
    dial_a(road_tcp_dial(loop, address, &why));
    assert_true(loop_until(loop, &a.is_down, 3 * CLOCK_SECOND));
    assert_int_equal(a.down_err, ERR_GONE);
    char expected[200];
    snprintf(expected, sizeof expected, "%s cannot be reached: Connection refused", address);
    assert_string_equal(a.down_reason, expected);
}

static void unknown_name_is_said(void **state)
{
    (void)state;
    struct why why = {0};
    dial_a(road_tcp_dial(loop, "no-such-host.invalid:4711", &why));
    if (!loop_until(loop, &a.is_down, 4 * CLOCK_SECOND))
        skip(); /* this machine's resolver is slow to say no */
    assert_non_null(strstr(a.down_reason, "no-such-host.invalid"));
    assert_non_null(strstr(a.down_reason, "looking up"));
}

static void bad_addresses_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",          ":",     "127.0.0.1",    "127.0.0.1:",       ":4711", "127.0.0.1:65536",
                                      "::1:4711",  "a b:1", "127.0.0.1:1x", "127.0.0.1:000001", "[::1:4711", "127.0.0.1:-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct why why = {0};
        assert_null(road_tcp_dial(loop, bad[i], &why));
        assert_int_equal(why.err, ERR_INVALID);
        assert_null(listener_tcp(loop, bad[i], accept_b, NULL, &why));
    }
    struct why why = {0};
    assert_null(listener_tcp(loop, "example.org:0", accept_b, NULL, &why));
    assert_non_null(strstr(why.text, "in numbers"));
}

static void taken_port_names_its_holder(void **state)
{
    (void)state;
    struct why why = {0};
    char expected[100];
    listener = listener_tcp(loop, "127.0.0.1:0", accept_b, NULL, &why);
    assert_null(listener_tcp(loop, listener_address(listener), accept_b, NULL, &why));
    assert_int_equal(why.err, ERR_REFUSED);
    snprintf(expected, sizeof expected, "pid %ld (roads)", (long)getpid());
    if (!strstr(why.text, expected))
        fail_msg("%s", why.text);
}

static void unix_stands(void **state)
{
    (void)state;
    struct why why = {0};
    struct stat status;
    const char *path = temp_path("unix");
    mode_t mask = umask(0);
    listener = listener_unix(loop, path, accept_b, NULL, &why);
    umask(mask);
    assert_non_null(listener);
    assert_int_equal(lstat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    dial_a(road_unix_dial(loop, path, &why));
    assert_both_up();
    listener_free(listener);
    listener = NULL;
    assert_int_not_equal(lstat(path, &status), 0);
}

static void unix_live_one_is_refused_stale_one_replaced(void **state)
{
    (void)state;
    struct why why = {0};
    const char *path = temp_path("stale");
    listener = listener_unix(loop, path, accept_b, NULL, &why);
    assert_non_null(listener);
    assert_null(listener_unix(loop, path, accept_b, NULL, &why));
    assert_int_equal(why.err, ERR_REFUSED);
    assert_non_null(strstr(why.text, "another program listens there"));
    listener_free(listener);
    /* A socket whose program died: bound, never listened on. */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    why = (struct why){0};
    assert_null(road_unix_dial(loop, path, &why));
    assert_int_equal(why.err, ERR_GONE);
    why = (struct why){0};
    listener = listener_unix(loop, path, accept_b, NULL, &why);
    if (!listener)
        fail_msg("%s", why.text);
}

static void unix_leaves_other_files_alone(void **state)
{
    (void)state;
    struct why why = {0};
    const char *path = temp_path("file");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_null(listener_unix(loop, path, accept_b, NULL, &why));
    assert_non_null(strstr(why.text, "is not a socket"));
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
    why = (struct why){0};
    assert_null(road_unix_dial(loop, path, &why));
    assert_int_equal(why.err, ERR_ABSENT);
}

static void unix_path_of_any_length(void **state)
{
    (void)state;
    struct why why = {0};
    char folder[300], path[400];
    snprintf(folder, sizeof folder, "%.140s-%0150d", temp_path("long"), 7);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/kedged.sock", folder);
    listener = listener_unix(loop, path, accept_b, NULL, &why);
    if (!listener)
        fail_msg("%s", why.text);
    assert_string_equal(listener_address(listener), path);
    dial_a(road_unix_dial(loop, path, &why));
    assert_both_up();
    listener_free(listener);
    listener = NULL;
    assert_int_equal(rmdir(folder), 0);
}

static void descriptors_stand_and_get_their_flags_back(void **state)
{
    (void)state;
    int there[2], back[2];
    assert_int_equal(pipe(there), 0);
    assert_int_equal(pipe(back), 0);
    int kept = dup(there[0]);
    struct link_settings settings = ends_settings("right");
    dial_a(road_fd(loop, back[0], there[1], "stdio"));
    end_begin(&b, loop, road_fd(loop, there[0], back[1], "stdio"), &settings);
    assert_both_up();
    assert_string_equal(link_describe(a.link), "stdio → right");
    assert_true(fcntl(kept, F_GETFL) & O_NONBLOCK);
    end_free(&b, loop);
    assert_false(fcntl(kept, F_GETFL) & O_NONBLOCK);
    assert_true(loop_until(loop, &a.is_down, 3 * CLOCK_SECOND));
    assert_int_equal(a.down_err, ERR_GONE);
    close(kept);
}

static void peer_that_dies_is_noticed_at_once(void **state)
{
    (void)state;
    struct why why = {0};
    listener = listener_tcp(loop, "127.0.0.1:0", accept_b, NULL, &why);
    dial_a(road_tcp_dial(loop, listener_address(listener), &why));
    assert_both_up();
    uint64_t begin_ns = clock_now_ns();
    end_free(&b, loop); /* as a killed process: the kernel closes, no BYE */
    assert_true(loop_until(loop, &a.is_down, 3 * CLOCK_SECOND));
    assert_true(clock_now_ns() - begin_ns < CLOCK_SECOND);
    assert_int_equal(a.down_err, ERR_GONE);
    assert_non_null(strstr(a.down_reason, "right at 127.0.0.1:"));
}

/* A process that joins and is killed in the middle of things. */
static void child_main(const char *address)
{
    struct why why = {0};
    struct loop *own = loop_new(&why);
    struct link_settings settings = ends_settings("left");
    struct end mine = {0};
    end_begin(&mine, own, road_tcp_dial(own, address, &why), &settings);
    loop_until(own, &mine.is_up, 5 * CLOCK_SECOND);
    for (int i = 0; i < 100; i++)
        link_send_encoded(mine.link, WIRE_ACT, mem_new(1 << 20), 1 << 20, 1, 0);
    loop_until(own, &mine.is_down, 30 * CLOCK_SECOND);
    _exit(0);
}

static void killed_process_is_noticed_at_once(void **state)
{
    (void)state;
    struct why why = {0};
    listener = listener_tcp(loop, "127.0.0.1:0", accept_b, NULL, &why);
    pid_t child = fork();
    if (child == 0)
        child_main(listener_address(listener));
    assert_true(loop_until(loop, &b.is_up, 5 * CLOCK_SECOND));
    while (b.messages[LANE_ACT] == 0)
        loop_run_once(loop, 100 * CLOCK_MS);
    assert_int_equal(kill(child, SIGKILL), 0);
    uint64_t begin_ns = clock_now_ns();
    assert_true(loop_until(loop, &b.is_down, 5 * CLOCK_SECOND));
    assert_true(clock_now_ns() - begin_ns < 2 * CLOCK_SECOND); /* not by silence, which takes 3 s */
    assert_int_equal(b.down_err, ERR_GONE);
    assert_non_null(strstr(b.down_reason, "left at 127.0.0.1:"));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tcp_stands),
        TEST(a_road_is_dialled_again),
        TEST(localhost_and_ipv6_stand),
        TEST(nobody_listens),
        TEST(unknown_name_is_said),
        TEST(bad_addresses_are_refused),
        TEST(taken_port_names_its_holder),
        TEST(unix_stands),
        TEST(unix_live_one_is_refused_stale_one_replaced),
        TEST(unix_leaves_other_files_alone),
        TEST(unix_path_of_any_length),
        TEST(descriptors_stand_and_get_their_flags_back),
        TEST(peer_that_dies_is_noticed_at_once),
        TEST(killed_process_is_noticed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
