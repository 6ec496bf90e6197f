#include "ssh/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/mem.h"

#define FIRST_READ_BYTES ((size_t)4096)

/* Sizes of /proc files are 0 and files grow: read until the end, whatever stat said. */
static int read_to_end(int fd, const char *path, size_t max_bytes, size_t hint, uint8_t **data, size_t *bytes,
                       struct why *why)
{
    size_t capacity = (hint < max_bytes ? hint : max_bytes) + FIRST_READ_BYTES, used = 0;
    uint8_t *block = mem_new(capacity);
    for (;;) {
        ssize_t got = read(fd, block + used, capacity - used - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int err = why_errno(why, "cannot read %s", path);
            mem_free(block);
            return err;
        }
        if (got == 0)
            break;
        used += (size_t)got;
        if (used > max_bytes) {
            mem_free(block);
            return why_set(why, ERR_FULL, "%s is larger than the %zu bytes that are allowed here", path, max_bytes);
        }
        if (used + 1 == capacity)
            block = mem_grow(block, capacity *= 2, 1);
    }
    block[used] = 0;
    *data = block;
    *bytes = used;
    return 0;
}

int file_read(const char *path, size_t max_bytes, uint8_t **data, size_t *bytes, struct why *why)
{
    struct stat status;
    int err, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not hold us */
    if (fd < 0)
        return why_errno(why, "cannot open %s", path);
    if (fstat(fd, &status) != 0)
        err = why_errno(why, "cannot look at %s", path);
    else if (!S_ISREG(status.st_mode))
        err = why_set(why, ERR_INVALID, "%s is not a regular file", path);
    else
        err = read_to_end(fd, path, max_bytes, (size_t)status.st_size, data, bytes, why);
    close(fd);
    return err;
}

static int write_all(int fd, const char *path, const uint8_t *data, size_t bytes, struct why *why)
{
    while (bytes) {
        ssize_t wrote = write(fd, data, bytes);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return why_errno(why, "cannot write %s", path);
        data += wrote;
        bytes -= (size_t)wrote;
    }
    return 0;
}

/* The rename is only durable when the folder is; some file systems cannot sync a folder and say EINVAL. */
int file_sync_folder(const char *path, struct why *why)
{
    char *folder = mem_text(path), *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int err = 0, fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != EROFS))
        err = why_errno(why, "%s is written but its folder could not be made durable", path);
    if (fd >= 0)
        close(fd);
    mem_free(folder);
    return err;
}

int file_write(const char *path, const void *data, size_t bytes, mode_t mode, struct why *why)
{
    char *temp = mem_format("%s.XXXXXX", path);
    int err, fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) {
        err = why_errno(why, "cannot make a file beside %s", path);
        goto free_temp;
    }
    err = write_all(fd, path, data, bytes, why);
    if (!err && (fchmod(fd, mode) != 0 || fsync(fd) != 0))
        err = why_errno(why, "cannot write %s", path);
    if (close(fd) != 0 && !err)
        err = why_errno(why, "cannot write %s", path);
    if (!err && rename(temp, path) != 0)
        err = why_errno(why, "cannot replace %s", path);
    if (err)
        unlink(temp);
    else
        err = file_sync_folder(path, why);
free_temp:
    mem_free(temp);
    return err;
}

int file_make_folders(const char *path, mode_t mode, struct why *why)
{
    char *part = mem_text(path);
    int err = 0;
    struct stat status;
    for (char *at = part + 1; part[0]; at++) {
        bool end = *at == 0;
        if (!end && *at != '/')
            continue;
        *at = 0;
        if (mkdir(part, mode) != 0 && errno != EEXIST && !(stat(part, &status) == 0 && S_ISDIR(status.st_mode))) {
            err = why_errno(why, "cannot make the folder %s", part);
            break;
        }
        if (end)
            break;
        *at = '/';
    }
    if (!err && (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)))
        err = why_set(why, ERR_INVALID, "%s is there already and is not a folder", path);
    mem_free(part);
    return err;
}

static int remove_entry(const FTSENT *entry, struct why *why)
{
    switch (entry->fts_info) {
    case FTS_D:
        return 0; /* its content comes first */
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        if (entry->fts_errno == ENOENT)
            return 0;
        errno = entry->fts_errno;
        return why_errno(why, "cannot look into %s", entry->fts_path);
    default:
        if (remove(entry->fts_accpath) == 0 || errno == ENOENT)
            return 0;
        return why_errno(why, "cannot remove %s", entry->fts_path);
    }
}

int file_remove_tree(const char *path, struct why *why)
{
    char *root = mem_text(path), *roots[] = {root, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    int err = walk ? 0 : why_errno(why, "cannot look into %s", path);
    FTSENT *entry;
    while (!err && (errno = 0, entry = fts_read(walk)) != NULL)
        err = remove_entry(entry, why);
    if (!err && errno && errno != ENOENT)
        err = why_errno(why, "cannot look into %s", path);
    if (walk)
        fts_close(walk);
    mem_free(root);
    return err;
}

uint64_t file_tree_bytes(const char *path)
{
    char *root = mem_text(path), *roots[] = {root, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    uint64_t bytes = 0;
    for (FTSENT *entry; walk && (entry = fts_read(walk)) != NULL;)
        if (entry->fts_info == FTS_D || entry->fts_info == FTS_F || entry->fts_info == FTS_SL || entry->fts_info == FTS_DEFAULT)
            bytes += (uint64_t)entry->fts_statp->st_blocks * 512;
    if (walk)
        fts_close(walk);
    mem_free(root);
    return bytes;
}

const char *file_no_text(const char *path)
{
    static const char weights[] = "holds weights: a model is no data", packed[] = "is compressed: unpack it first",
                      table[] = "is a table of binary columns: write its rows as lines of JSON, .jsonl";
    static const struct {
        const char *ending, *what;
    } strangers[] = {{".gguf", weights}, {".safetensors", weights}, {".parquet", table}, {".arrow", table},
                     {".gz", packed},    {".bz2", packed},          {".xz", packed},     {".zst", packed},  {".zip", packed}};
    for (size_t i = 0, length = strlen(path); i < sizeof strangers / sizeof *strangers; i++) {
        size_t letters = strlen(strangers[i].ending);
        if (length > letters && strcmp(path + length - letters, strangers[i].ending) == 0)
            return strangers[i].what;
    }
    return NULL;
}

int file_program_folder(char *out, size_t size, struct why *why)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        return why_errno(why, "cannot read /proc/self/exe (is /proc mounted?)");
    path[length] = 0;
    char *slash = strrchr(path, '/');
    if (!slash)
        return why_set(why, ERR_SYSTEM, "/proc/self/exe points to '%s', which is not a path", path);
    slash[slash == path] = 0;
    if (strlen(path) >= size)
        return why_set(why, ERR_FULL, "the folder of this program has a path longer than %zu bytes", size - 1);
    memcpy(out, path, strlen(path) + 1);
    return 0;
}
