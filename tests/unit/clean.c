/*
 * Who of a run is alive, and ending it: by lock files whose pid, start time and run id agree, and by the run's mark. Never by name,
 * and never somebody else's process that got an old number.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/launch/clean.h"
#include "tests/helpers/place.h"

static struct place place;
static uint64_t run_id;

static int make_place(void **unused)
{
    (void)unused;
    run_id = hash_random();
    return place_init(&place);
}

static int clear_place(void **unused)
{
    (void)unused;
    place_clear(&place);
    return 0;
}

/* A child that sleeps; with `mark` the run's mark is in its environment; a stubborn one does not mind TERM. */
static pid_t start_child(bool mark, bool stubborn)
{
    char text[64], ready;
    char *const plain[] = {NULL};
    char *const marked[] = {text, NULL};
    int ends[2];
    snprintf(text, sizeof text, "KEDGE_RUN=%016" PRIx64, run_id);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execle("/bin/sh", "sh", "-c", stubborn ? "trap '' TERM; echo; while :; do sleep 60 & wait; done"
                                               : "echo; exec sleep 60 >/dev/null", (char *)NULL, mark ? marked : plain);
        _exit(127);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &ready, 1), 1); /* the program is there, with its environment and its trap */
    close(ends[0]);
    return child;
}

static void write_lock(const char *name, pid_t pid, uint64_t start, uint64_t run)
{
    char text[100];
    struct why why = {0};
    snprintf(text, sizeof text, "%ld %" PRIu64 " %016" PRIx64 "\n", (long)pid, start, run);
    assert_int_equal(file_write(place_file(&place, name), text, strlen(text), 0600, &why), 0);
}

static size_t count_holders(void)
{
    struct holder holders[8];
    return holders_find(place.folder, run_id, holders, 8);
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void a_lock_counts_only_when_all_agrees(void **unused)
{
    pid_t child = start_child(false, false);
    uint64_t start = holders_start_of(child);
    (void)unused;
    assert_true(start > 0);
    write_lock("agent@a.lock", child, start, run_id);
    assert_int_equal(count_holders(), 1);
    write_lock("agent@a.lock", child, start + 1, run_id); /* the number went to another process */
    assert_int_equal(count_holders(), 0);
    write_lock("agent@a.lock", child, start, run_id + 1); /* of another run */
    assert_int_equal(count_holders(), 0);
    write_lock("notes.txt", child, start, run_id);
    assert_int_equal(count_holders(), 0);
    assert_int_equal(file_write(place_file(&place, "agent@a.lock"), "garbage", 7, 0600, NULL), 0);
    assert_int_equal(count_holders(), 0);
    end_child(child);
    write_lock("agent@a.lock", child, start, run_id);
    assert_int_equal(count_holders(), 0);
}

static void a_zombie_does_not_live(void **unused)
{
    pid_t child = start_child(true, false);
    (void)unused;
    assert_int_equal(count_holders(), 1);
    kill(child, SIGKILL);
    siginfo_t info;
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
    assert_true(holders_start_of(child) == 0);
    assert_int_equal(count_holders(), 0);
    waitpid(child, NULL, 0);
}

/* A program that becomes another one carries its mark all the way. */
static void a_change_of_program_hides_nobody(void **unused)
{
    char mark[64];
    char *const marked[] = {mark, NULL};
    (void)unused;
    snprintf(mark, sizeof mark, "KEDGE_RUN=%016" PRIx64, run_id);
    pid_t child = fork();
    if (child == 0) {
        execle("/bin/sh", "sh", "-c", "exec /bin/sh -c \"$0\" \"$0\"", "exec /bin/sh -c \"$0\" \"$0\"", (char *)NULL, marked);
        _exit(127);
    }
    while (count_holders() == 0) /* until its first program is there */
        ;
    int missed = 0;
    for (int look = 0; look < 300; look++)
        missed += count_holders() != 1;
    end_child(child);
    assert_int_equal(missed, 0);
}

/* Step until it is done, reaping what ended; the clock is ours. */
static int run_clean(struct clean *clean, struct why *why)
{
    uint64_t now_ns = CLOCK_SECOND;
    for (int i = 0; i < 400; i++, now_ns += 50 * CLOCK_MS) {
        int err = clean_step(clean, now_ns, why);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (err != ERR_AGAIN)
            return err;
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    }
    return ERR_AGAIN;
}

static void marked_processes_end_and_others_do_not(void **unused)
{
    struct clean clean;
    struct why why = {0};
    pid_t marked = start_child(true, false), other = start_child(false, false);
    (void)unused;
    write_lock("kedged.lock", other, holders_start_of(other) + 7, run_id); /* a stale lock with a living number */
    assert_int_equal(file_write(place_file(&place, "kedged.sock"), "", 0, 0600, NULL), 0);
    clean_init(&clean, place.folder, run_id, CLOCK_SECOND);
    assert_int_equal(run_clean(&clean, &why), 0);
    assert_int_equal(clean.ended, 1);
    assert_true(holders_start_of(marked) == 0);
    assert_true(holders_start_of(other) != 0);
    assert_true(access(place_file(&place, "kedged.lock"), F_OK) != 0);
    assert_true(access(place_file(&place, "kedged.sock"), F_OK) != 0);
    end_child(other);
}

static void the_stubborn_are_killed_after_the_grace(void **unused)
{
    struct clean clean;
    struct why why = {0};
    pid_t child = start_child(true, true);
    (void)unused;
    write_lock("agent@a.lock", child, holders_start_of(child), run_id);
    clean_init(&clean, place.folder, run_id, CLOCK_SECOND);
    assert_int_equal(clean_step(&clean, CLOCK_SECOND, &why), ERR_AGAIN);
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    assert_true(holders_start_of(child) != 0); /* TERM was not enough */
    assert_int_equal(run_clean(&clean, &why), 0);
    assert_true(clean.killed_ns >= clean.began_ns + CLOCK_SECOND);
    assert_true(holders_start_of(child) == 0);
    assert_int_equal(count_holders(), 0);
}

static void a_held_lock_is_no_leftover(void **unused)
{
    (void)unused;
    write_lock("agent@b.lock", 1, 1, 1);
    int fd = open(place_file(&place, "agent@b.lock"), O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(holders_leftover_files(place.folder, true), 0);
    assert_int_equal(access(place_file(&place, "agent@b.lock"), F_OK), 0);
    close(fd);
    assert_int_equal(holders_leftover_files(place.folder, true), 1);
    assert_int_not_equal(access(place_file(&place, "agent@b.lock"), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lock_counts_only_when_all_agrees, make_place, clear_place),
        cmocka_unit_test_setup_teardown(a_zombie_does_not_live, make_place, clear_place),
        cmocka_unit_test_setup_teardown(a_change_of_program_hides_nobody, make_place, clear_place),
        cmocka_unit_test_setup_teardown(marked_processes_end_and_others_do_not, make_place, clear_place),
        cmocka_unit_test_setup_teardown(the_stubborn_are_killed_after_the_grace, make_place, clear_place),
        cmocka_unit_test_setup_teardown(a_held_lock_is_no_leftover, make_place, clear_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
