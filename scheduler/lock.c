#include "scheduler/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/text.h"

static uint64_t own_start_time(void)
{
    char text[1024];
    uint64_t start = 0;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    char *rest = strrchr(text, ')'), *field = NULL; /* the program's name may hold spaces */
    for (int i = 3; rest && i <= 23; i++)
        field = strsep(&rest, " "); /* the first one is what is left of the name: field 2 */
    return field && text_to_u64(field, &start) == 0 ? start : 0;
}

static int refuse(int fd, const char *path, struct why *why)
{
    char text[128] = "", shown[160];
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    text[got > 0 ? (size_t)got : 0] = '\0';
    text[strcspn(text, " \n")] = '\0';
    text_harmless(text, strlen(text), shown, sizeof shown);
    return why_set(why, ERR_REFUSED, "this run has its kedged already: %s is held by pid %s", path, shown[0] ? shown : "?");
}

/* The file that we hold must be the one with the name: another kedged may have removed it at its end just now. */
static int is_current(int fd, const char *path)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

int lock_take(const char *path, uint64_t run_id, struct why *why)
{
    char text[128];
    int fd;
    for (;;) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            return why_errno(why, "cannot make %s", path);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            int err = errno == EWOULDBLOCK ? refuse(fd, path, why) : why_errno(why, "cannot lock %s", path);
            close(fd);
            return err;
        }
        if (is_current(fd, path))
            break;
        close(fd);
    }
    int length = snprintf(text, sizeof text, "%ld %llu %016llx\n", (long)getpid(), (unsigned long long)own_start_time(),
                          (unsigned long long)run_id);
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)length, 0) != length) {
        int err = why_errno(why, "cannot write %s", path);
        lock_remove(path, fd);
        return err;
    }
    return fd;
}

void lock_remove(const char *path, int fd)
{
    unlink(path);
    close(fd);
}
