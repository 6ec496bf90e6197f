/* See lock.h. */
#include "gpu/train/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/train/family.h"
#include "ssh/base/mem.h"

struct lock {
    int fd;
    char *path;
};

/* The file that we have locked may have been removed by its holder between our open and our lock. */
static bool is_there(int fd, const char *path)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

static int refuse(int fd, const char *path, const char *who, struct why *why)
{
    char text[64] = "";
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    long pid = got > 0 ? strtol(text, NULL, 10) : 0;
    if (pid > 0)
        return why_set(why, ERR_REFUSED, "%s is running already: pid %ld (%s)", who, pid, path);
    return why_set(why, ERR_REFUSED, "%s is starting right now (%s)", who, path);
}

static int write_text(int fd, const char *path, uint64_t run_id, struct why *why)
{
    char text[96];
    struct family_member self;
    if (!family_look(getpid(), &self))
        return why_set(why, ERR_SYSTEM, "cannot read /proc/self/stat: is /proc mounted?");
    int length = snprintf(text, sizeof text, "%ld %" PRIu64 " %016" PRIx64 "\n", (long)self.pid, self.start, run_id);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length)
        return why_errno(why, "cannot write the lock %s", path);
    return 0;
}

int lock_take(const char *path, uint64_t run_id, const char *who, struct lock **lock, struct why *why)
{
    int fd, err;
    for (;;) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return why_errno(why, "cannot open the lock %s", path);
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            err = errno == EWOULDBLOCK ? refuse(fd, path, who, why) : why_errno(why, "cannot lock %s", path);
            goto close_fd;
        }
        if (is_there(fd, path))
            break;
        close(fd);
    }
    err = write_text(fd, path, run_id, why);
    if (err)
        goto close_fd;
    *lock = mem_new(sizeof **lock);
    (*lock)->fd = fd;
    (*lock)->path = mem_text(path);
    return 0;
close_fd:
    close(fd);
    return err;
}

void lock_release(struct lock *lock)
{
    if (!lock)
        return;
    unlink(lock->path);
    close(lock->fd);
    mem_free(lock->path);
    mem_free(lock);
}
