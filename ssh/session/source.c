#include "ssh/session/source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "ssh/base/mem.h"

int source_open(struct source *source, const char *path, struct why *why)
{
    struct stat status;
    *source = (struct source){.path = mem_text(path), .fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
    if (source->fd < 0)
        return why_errno(why, "cannot send %s", path);
    if (fstat(source->fd, &status) != 0 || !S_ISREG(status.st_mode))
        return why_set(why, ERR_INVALID, "cannot send %s: it is not a regular file", path);
    source->bytes = (uint64_t)status.st_size;
    source->changed = status.st_mtim;
    return 0;
}

void source_close(struct source *source)
{
    if (source->fd >= 0)
        close(source->fd);
    mem_free(source->path);
    *source = (struct source){.fd = -1};
}

int source_read(const struct source *source, uint64_t at, uint8_t *out, size_t bytes, struct why *why)
{
    ssize_t got;
    for (size_t used = 0; used < bytes; used += (size_t)got) {
        got = pread(source->fd, out + used, bytes - used, (off_t)(at + used));
        if (got < 0 && errno == EINTR)
            got = 0;
        else if (got < 0)
            return why_errno(why, "cannot read %s", source->path);
        else if (got == 0)
            return why_set(why, ERR_INVALID, "%s has become shorter while it was sent", source->path);
    }
    return 0;
}
