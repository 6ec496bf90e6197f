/*
 * Files that are never torn. The system calls of a write are replaced here, so that the n-th of them fails for every n:
 * the old file must stay whole and no temporary file may stay. Then once more with limits that the kernel itself sets.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/place.h"

#define MORE_BYTES ((size_t)200000)

static struct place place;

/* ---- the system calls of file_write, the n-th of which fails ---- */

static int calls_until_failure = -1; /* −1: none fails */
static int failure = EIO;
static bool short_writes;
static const char *failed_call;
static char calls[200]; /* all since it was emptied */

static bool fails(const char *call)
{
    size_t used = strlen(calls);
    snprintf(calls + used, sizeof calls - used, "%s ", call);
    if (calls_until_failure < 0 || calls_until_failure-- > 0)
        return false;
    failed_call = call;
    errno = failure;
    return true;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    if (fails("write"))
        return -1;
    return syscall(SYS_write, fd, bytes, short_writes && count > 1 ? count / 2 : count);
}

int fsync(int fd)
{
    return fails("fsync") ? -1 : (int)syscall(SYS_fsync, fd);
}

int fchmod(int fd, mode_t mode)
{
    return fails("fchmod") ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int rename(const char *from, const char *to)
{
    return fails("rename") ? -1 : (int)syscall(SYS_renameat2, -100 /* AT_FDCWD */, from, -100, to, 0);
}

/* ---- helpers ---- */

static int set_up(void **state)
{
    (void)state;
    calls_until_failure = -1;
    short_writes = false;
    failure = EIO;
    return place_init(&place);
}

static int tear_down(void **state)
{
    (void)state;
    calls_until_failure = -1;
    place_clear(&place);
    return 0;
}

static void expect_content(const char *path, const void *content, size_t count)
{
    uint8_t *data = NULL;
    size_t bytes = 0;
    struct why why = {0};
    if (file_read(path, 1 << 20, &data, &bytes, &why) != 0)
        fail_msg("%s", why.text);
    assert_int_equal(bytes, count);
    assert_memory_equal(data, content, count);
    assert_int_equal(data[bytes], 0);
    mem_free(data);
}

/* ---- writing ---- */

static void written_files_have_content_and_mode(void **state)
{
    (void)state;
    const char *path = place_file(&place, "file");
    struct stat status;
    mode_t mask = umask(0077);
    assert_int_equal(file_write(path, "one", 3, 0644, NULL), 0);
    expect_content(path, "one", 3);
    assert_int_equal(file_write(path, "", 0, 0600, NULL), 0);
    expect_content(path, "", 0);
    umask(mask);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(file_write(path, "three", 5, 0644, NULL), 0);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0644);
    assert_int_equal(place_count(&place), 1);
}

static void short_writes_are_continued(void **state)
{
    (void)state;
    uint8_t *bytes = mem_new(MORE_BYTES);
    memset(bytes, 'm', MORE_BYTES);
    short_writes = true;
    assert_int_equal(file_write(place_file(&place, "file"), bytes, MORE_BYTES, 0600, NULL), 0);
    expect_content(place.path, bytes, MORE_BYTES);
    mem_free(bytes);
}

static void the_nth_call_fails(int number, int expected_err)
{
    bool replaced = false;
    int n = 0, err;
    const char *path = place_file(&place, "file");
    failure = number;
    short_writes = true;
    assert_int_equal(file_write(path, "old content", 11, 0600, NULL), 0);
    do {
        struct why why = {0};
        failed_call = NULL;
        calls[0] = 0;
        calls_until_failure = n++;
        err = file_write(path, "new", 3, 0600, &why);
        bool failed = calls_until_failure < 0;
        calls_until_failure = -1;
        assert_int_equal(place_count(&place), 1);
        if (!failed)
            break;
        assert_int_equal(err, expected_err);
        assert_non_null(strstr(why.text, path));
        assert_non_null(strstr(why.text, strerror(number)));
        /* Only the folder's own fsync comes after the rename. */
        if (n > 1 && strcmp(failed_call, "fsync") == 0 && strstr(why.text, "folder")) {
            expect_content(path, "new", 3);
            replaced = true;
        } else {
            assert_false(replaced);
            expect_content(path, "old content", 11);
        }
    } while (n < 50);
    assert_int_equal(err, 0);
    assert_true(replaced);
    assert_string_equal(calls, "write write write fchmod fsync rename fsync ");
    expect_content(path, "new", 3);
}

static void any_failing_call_leaves_the_old_file(void **state)
{
    (void)state;
    the_nth_call_fails(EIO, ERR_SYSTEM);
}

static void a_full_disk_is_err_full(void **state)
{
    (void)state;
    the_nth_call_fails(ENOSPC, ERR_FULL);
}

static void the_kernels_file_limit_leaves_the_old_file(void **state)
{
    (void)state;
    const char *path = place_file(&place, "file");
    struct rlimit before, limit;
    struct why why = {0};
    uint8_t *bytes = mem_new(MORE_BYTES);
    assert_int_equal(file_write(path, "old", 3, 0600, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 5000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int err = file_write(path, bytes, MORE_BYTES, 0600, &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    mem_free(bytes);
    assert_int_equal(err, ERR_SYSTEM);
    assert_non_null(strstr(why.text, strerror(EFBIG)));
    expect_content(path, "old", 3);
    assert_int_equal(place_count(&place), 1);
}

/* In a child with its own mounts; 0 = as it should be, 77 = mounting is not permitted here, else a line number. */
static int on_a_full_disk(const char *folder)
{
    char path[600];
    struct place there = {0};
    struct why why = {0};
    static uint8_t bytes[MORE_BYTES], *data;
    size_t count;
    snprintf(there.folder, sizeof there.folder, "%s", folder);
    if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) != 0
        || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("tmpfs", folder, "tmpfs", 0, "size=64k") != 0)
        return 77;
    snprintf(path, sizeof path, "%s/file", folder);
    if (file_write(path, "old", 3, 0600, NULL) != 0)
        return __LINE__;
    if (file_write(path, bytes, sizeof bytes, 0600, &why) != ERR_FULL)
        return __LINE__;
    if (!strstr(why.text, strerror(ENOSPC)))
        return __LINE__;
    if (file_read(path, 100, &data, &count, NULL) != 0 || count != 3 || memcmp(data, "old", 3) != 0)
        return __LINE__;
    mem_free(data);
    return place_count(&there) == 1 ? 0 : __LINE__;
}

static void a_really_full_disk(void **state)
{
    (void)state;
    int status;
    char folder[sizeof place.folder];
    snprintf(folder, sizeof folder, "%s", place_file(&place, "disk"));
    assert_int_equal(file_make_folders(folder, 0700, NULL), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(on_a_full_disk(folder));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        print_message("a really full disk was not tried: mounting a tmpfs is not permitted here\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

static void nowhere_to_write(void **state)
{
    (void)state;
    struct why why = {0};
    assert_int_equal(file_write(place_file(&place, "absent/file"), "x", 1, 0600, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "absent/file"));
    assert_int_equal(file_make_folders(place_file(&place, "folder"), 0700, NULL), 0);
    assert_true(file_write(place.path, "x", 1, 0600, NULL) < 0); /* a folder is not replaced */
    assert_int_equal(place_count(&place), 1);
}

/* ---- reading ---- */

static void reading_has_a_limit(void **state)
{
    (void)state;
    const char *path = place_file(&place, "file");
    uint8_t untouched[] = "untouched", *data = untouched;
    size_t bytes = 77;
    struct why why = {0};
    assert_int_equal(file_write(path, "0123456789", 10, 0600, NULL), 0);
    assert_int_equal(file_read(path, 9, &data, &bytes, &why), ERR_FULL);
    assert_non_null(strstr(why.text, path));
    assert_ptr_equal(data, untouched);
    assert_int_equal(bytes, 77);
    assert_int_equal(file_read(path, 10, &data, &bytes, NULL), 0);
    assert_int_equal(bytes, 10);
    mem_free(data);
    assert_int_equal(file_read("/proc/self/status", 1 << 20, &data, &bytes, NULL), 0); /* its size is said to be 0 */
    assert_true(bytes > 100);
    mem_free(data);
}

static void what_is_not_a_file_is_refused(void **state)
{
    (void)state;
    uint8_t *data;
    size_t bytes;
    struct why why = {0};
    assert_int_equal(file_read(place_file(&place, "absent"), 10, &data, &bytes, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "absent"));
    assert_int_equal(file_read(place.folder, 10, &data, &bytes, NULL), ERR_INVALID);
    assert_int_equal(mkfifo(place_file(&place, "fifo"), 0600), 0);
    assert_int_equal(file_read(place.path, 10, &data, &bytes, NULL), ERR_INVALID); /* and does not wait for a writer */
}

/* ---- folders ---- */

static void folders_are_made_and_removed(void **state)
{
    (void)state;
    struct why why = {0};
    char outside[600];
    assert_int_equal(file_make_folders(place_file(&place, "a/b//c/"), 0700, NULL), 0);
    assert_int_equal(file_make_folders(place_file(&place, "a/b/c"), 0700, NULL), 0);
    assert_int_equal(file_write(place_file(&place, "a/b/c/file"), "x", 1, 0600, NULL), 0);
    assert_int_equal(file_make_folders(place_file(&place, "a/b/c/file/d"), 0700, &why), ERR_SYSTEM);
    assert_non_null(strstr(why.text, "a/b/c/file"));
    why = (struct why){0};
    assert_int_equal(file_make_folders(place_file(&place, "a/b/c/file"), 0700, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "not a folder"));

    snprintf(outside, sizeof outside, "%s", place_file(&place, "outside"));
    assert_int_equal(file_write(outside, "keep", 4, 0600, NULL), 0);
    assert_int_equal(symlink(outside, place_file(&place, "a/link")), 0);
    assert_int_equal(symlink(place.folder, place_file(&place, "a/loop")), 0);
    uint64_t before = file_tree_bytes(place_file(&place, "a")), size = (uint64_t)1 << 20;
    char *grown = mem_format("%s/grown", place.path), *inside = mem_new(size);
    memset(inside, 'x', size); /* no holes */
    assert_int_equal(file_write(grown, inside, size, 0600, NULL), 0);
    uint64_t after = file_tree_bytes(place_file(&place, "a"));
    assert_true(after >= before + size && after < before + size + 65536);
    assert_int_equal(file_tree_bytes(place_file(&place, "nothing")), 0);
    mem_free(grown);
    mem_free(inside);
    assert_int_equal(file_remove_tree(place_file(&place, "a"), NULL), 0);
    assert_int_equal(place_count(&place), 1);
    expect_content(outside, "keep", 4);
    assert_int_equal(file_remove_tree(place_file(&place, "a"), NULL), 0); /* absent is fine */
    assert_int_equal(file_remove_tree(outside, NULL), 0);                 /* a single file too */
    assert_int_equal(place_count(&place), 0);
}

static void the_program_knows_its_folder(void **state)
{
    (void)state;
    char folder[4096], expected[4096], small[2] = "x";
    ssize_t length = readlink("/proc/self/exe", expected, sizeof expected - 1);
    assert_true(length > 0);
    expected[length] = 0;
    *strrchr(expected, '/') = 0;
    assert_int_equal(file_program_folder(folder, sizeof folder, NULL), 0);
    assert_string_equal(folder, expected);
    assert_int_equal(file_program_folder(small, sizeof small, NULL), ERR_FULL);
    assert_string_equal(small, "x");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(written_files_have_content_and_mode),
        TEST(short_writes_are_continued),
        TEST(any_failing_call_leaves_the_old_file),
        TEST(a_full_disk_is_err_full),
        TEST(the_kernels_file_limit_leaves_the_old_file),
        TEST(a_really_full_disk),
        TEST(nowhere_to_write),
        TEST(reading_has_a_limit),
        TEST(what_is_not_a_file_is_refused),
        TEST(folders_are_made_and_removed),
        TEST(the_program_knows_its_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
