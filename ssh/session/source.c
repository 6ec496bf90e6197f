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
    source->digest = digest_new();
    return 0;
}

void source_close(struct source *source)
{
    digest_free(source->digest);
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

int source_hash(struct source *source, size_t most, struct why *why)
{
    uint64_t left = source->bytes - source->hashed_bytes;
    size_t bytes = left < most ? (size_t)left : most;
    int err = 0;
    for (size_t done = 0, part; !err && done < bytes; done += part) {
        part = bytes - done < sizeof source->piece ? bytes - done : sizeof source->piece;
        err = source_read(source, source->hashed_bytes, source->piece, part, why);
        if (!err) {
            digest_add(source->digest, source->piece, part);
            source->hashed_bytes += part;
        }
    }
    if (!err && source->hashed_bytes == source->bytes && !source->hash[0]) {
        uint8_t sum[DIGEST_SHA256];
        digest_finish(source->digest, sum);
        digest_hex(sum, source->hash);
    }
    return err;
}

void source_hash_anew(struct source *source)
{
    digest_free(source->digest);
    source->digest = digest_new();
    source->hashed_bytes = 0;
    source->hash[0] = '\0';
}
