#include "ssh/launch/needed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Versions stand in a table of names behind each other, closed by NUL; none of ours defines one of them. */
static unsigned newest_in(const char *bytes, size_t count)
{
    static const char begin[] = "GLIBC_2.";
    unsigned newest = 0;
    const char *at = bytes, *end = bytes + count;
    while ((at = memmem(at, (size_t)(end - at), begin, sizeof begin - 1))) {
        char digits[8] = "";
        at += sizeof begin - 1;
        for (size_t i = 0; i < sizeof digits - 1 && at < end && *at >= '0' && *at <= '9'; i++)
            digits[i] = *at++;
        unsigned minor = (unsigned)strtoul(digits, NULL, 10);
        if (digits[0] && minor < 1000 && minor > newest)
            newest = minor;
    }
    return newest;
}

static unsigned newest_of(const char *path)
{
    struct stat status;
    unsigned newest = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (fstat(fd, &status) == 0 && status.st_size > 0) {
        size_t count = (size_t)status.st_size;
        void *bytes = mmap(NULL, count, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            newest = newest_in(bytes, count);
            munmap(bytes, count);
        }
    }
    close(fd);
    return newest;
}

unsigned needed_glibc(const struct parcel *programs)
{
    unsigned newest = 0;
    for (size_t i = 0; i < programs->count; i++) {
        unsigned one = newest_of(programs->files[i].local);
        newest = one > newest ? one : newest;
    }
    return newest ? 2000 + newest : 0;
}

unsigned needed_version(const char *text)
{
    const char *digits = strpbrk(text, "0123456789");
    unsigned major, minor;
    return digits && sscanf(digits, "%u.%u", &major, &minor) == 2 && minor < 1000 ? major * 1000 + minor : 0;
}

bool needed_is_more(unsigned needed, const char *has, char *out, size_t size)
{
    unsigned version = needed_version(has);
    if (!version || version >= needed)
        return false;
    snprintf(out, size, "its %s is older than the glibc %u.%u that the programs here need: build kedge on a system as old as that host, or take a "
             "host with a newer system", has, needed / 1000, needed % 1000);
    return true;
}
