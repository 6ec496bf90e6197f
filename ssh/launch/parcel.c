#include "ssh/launch/parcel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/child.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/launch/prepare.h"
#include "ssh/launch/runs.h"
#include "ssh/link/digest.h"

#define READ_BYTES ((size_t)1 << 20)
#define LDD_BYTES (64 * 1024)
#define LDD_DEADLINE_NS (20 * CLOCK_SECOND)

static struct digest *begin(struct parcel *parcel, const char *what)
{
    memset(parcel, 0, sizeof *parcel);
    parcel->what = what;
    return digest_new(DIGEST_SHA2);
}

static void finish(struct parcel *parcel, struct digest *digest)
{
    char hex[DIGEST_HEX];
    digest_finish(digest, hex);
    digest_free(digest);
    snprintf(parcel->id, sizeof parcel->id, "%.16s", hex);
}

static int add_content(const char *path, struct digest *digest, struct why *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *bytes = mem_new(READ_BYTES);
    ssize_t got = fd < 0 ? -1 : 0;
    while (fd >= 0 && (got = read(fd, bytes, READ_BYTES)) > 0)
        digest_add(digest, bytes, (size_t)got);
    int err = got < 0 ? why_errno(why, "cannot read %s", path) : 0;
    if (fd >= 0)
        close(fd);
    mem_free(bytes);
    return err;
}

/* `by_content`: else the size and the time of change stand for it. */
static int add_file(struct parcel *parcel, const char *local, const char *name, bool by_content, struct digest *digest,
                    struct why *why)
{
    struct stat status;
    if (stat(local, &status) != 0)
        return why_errno(why, "cannot send %s", local);
    if (parcel->count == PARCEL_FILES)
        return why_set(why, ERR_FULL, "more than %d files of %s", PARCEL_FILES, parcel->what);
    if (strlen(name) >= PARCEL_NAME)
        return why_set(why, ERR_INVALID, "cannot send %s: its name is longer than %d bytes", local, PARCEL_NAME - 1);
    if ((parcel->count & (parcel->count + 1)) == 0) /* 0, 1, 3, 7 … */
        parcel->files = mem_grow(parcel->files, 2 * (parcel->count + 1), sizeof *parcel->files);
    struct parcel_file *file = &parcel->files[parcel->count++];
    memset(file, 0, sizeof *file);
    file->local = mem_text(local);
    snprintf(file->name, sizeof file->name, "%s", name);
    file->bytes = (uint64_t)status.st_size;
    file->mode = status.st_mode & S_IXUSR ? 0755 : 0644;
    parcel->bytes += file->bytes;
    uint64_t facts[3] = {file->bytes, by_content ? 0 : (uint64_t)status.st_mtim.tv_sec,
                         by_content ? 0 : (uint64_t)status.st_mtim.tv_nsec};
    digest_add(digest, name, strlen(name) + 1);
    digest_add(digest, facts, sizeof facts);
    return by_content ? add_content(local, digest, why) : 0;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- programs ---- */

/* The host's C library is its own: it belongs to its kernel and its loader. */
static bool is_of_the_system(const char *name)
{
    static const char *const names[] = {"libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libresolv.so",
                                        "ld-linux", "linux-vdso", "libasan.so", "libubsan.so", "libtsan.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static bool has_name(const struct parcel *parcel, const char *name)
{
    for (size_t i = 0; i < parcel->count; i++)
        if (strcmp(parcel->files[i].name, name) == 0)
            return true;
    return false;
}

/* Lines "libevent-2.1.so.7 => /lib/…/libevent-2.1.so.7 (0x…)". */
static int add_libraries(struct parcel *parcel, const char *program, struct digest *digest, struct why *why)
{
    const char *const argv[] = {"ldd", program, NULL};
    char *words = mem_new(LDD_BYTES), *rest = words;
    int status = 0, err = child_output(argv, false, words, LDD_BYTES, LDD_DEADLINE_NS, &status, why);
    for (char *line; !err && (line = strsep(&rest, "\n"));) {
        char name[PARCEL_NAME], path[RUNS_PATH], target[PARCEL_NAME + 8];
        if (sscanf(line, " %99s => %511s", name, path) != 2 || path[0] != '/' || is_of_the_system(name))
            continue;
        snprintf(target, sizeof target, "lib/%.95s", name);
        if (!has_name(parcel, target))
            err = add_file(parcel, path, target, true, digest, why);
    }
    mem_free(words);
    return err;
}

int parcel_programs(struct parcel *parcel, struct why *why)
{
    static const char *const names[] = {"kedge-worker", "kedge-cpu.so", "kedged"};
    struct digest *digest = begin(parcel, "programs");
    int err = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && !err; i++) {
        char path[RUNS_PATH];
        err = prepare_sibling(names[i], path, sizeof path, why);
        if (!err)
            err = add_file(parcel, path, names[i], true, digest, why);
        if (!err)
            err = add_libraries(parcel, path, digest, why);
    }
    finish(parcel, digest);
    return err;
}

/* ---- text and checkpoints ---- */

/* A folder of prepared data is sent with its own name. */
static int add_folder(struct parcel *parcel, const char *folder, const char *prefix, struct digest *digest, struct why *why)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort), err = count < 0 ? why_errno(why, "cannot read %s", folder) : 0;
    for (int i = 0; i < count; i++) {
        char *local = mem_format("%s/%s", folder, entries[i]->d_name), *name = mem_format("%s%s", prefix, entries[i]->d_name);
        struct stat status;
        if (!err && entries[i]->d_name[0] != '.' && stat(local, &status) == 0 && S_ISREG(status.st_mode))
            err = add_file(parcel, local, name, false, digest, why);
        mem_free(local);
        mem_free(name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return err;
}

/* The order of the files is the order of the text: the number in front keeps it. */
static int add_match(struct parcel *parcel, const char *path, int number, struct digest *digest, struct why *why)
{
    struct stat status;
    char name[PARCEL_NAME];
    if (stat(path, &status) != 0) /* a link to nowhere is no file: profile_check has seen that there are others */
        return errno == ENOENT ? 0 : why_errno(why, "cannot send %s", path);
    const char *base = base_of(path);
    size_t length = strlen(base);
    if (length > 60) /* the end says what kind of text it is */
        base += length - 60;
    snprintf(name, sizeof name, "%05d-%s%s", number, base, S_ISDIR(status.st_mode) ? "/" : "");
    if (S_ISDIR(status.st_mode))
        return add_folder(parcel, path, name, digest, why);
    return S_ISREG(status.st_mode) ? add_file(parcel, path, name, false, digest, why) : 0;
}

int parcel_text(const struct profile *profile, struct parcel *parcel, char *value, size_t size, struct why *why)
{
    struct digest *digest = begin(parcel, "text");
    char words[PROFILE_PATHS], *rest = words;
    int err = 0, number = 0;
    snprintf(words, sizeof words, "%s", profile->data_paths);
    for (char *word; !err && (word = strsep(&rest, " \t"));) {
        glob_t found;
        if (!*word || glob(word, 0, NULL, &found) != 0)
            continue;
        for (size_t i = 0; i < found.gl_pathc && !err; i++)
            err = add_match(parcel, found.gl_pathv[i], number++, digest, why);
        globfree(&found);
    }
    finish(parcel, digest);
    snprintf(value, size, "@/[0-9]*");
    return err;
}

static int parcel_folder(const char *what, const char *folder, struct parcel *parcel, struct why *why)
{
    struct digest *digest = begin(parcel, what);
    int err = add_folder(parcel, folder, "", digest, why);
    finish(parcel, digest);
    return err;
}

int parcel_checkpoint(const struct profile *profile, struct parcel *parcel, struct why *why)
{
    return parcel_folder("checkpoint", profile->model_path, parcel, why);
}

int parcel_adapter(const struct profile *profile, struct parcel *parcel, struct why *why)
{
    return parcel_folder("adapter", profile->lora_path, parcel, why);
}

/* ---- the archive of the small ones: POSIX ustar ---- */

static int write_all(FILE *out, const void *bytes, size_t count, const char *path, struct why *why)
{
    return fwrite(bytes, 1, count, out) == count ? 0 : why_errno(why, "cannot write %s", path);
}

static void fill_header(const struct parcel_file *file, char header[512])
{
    memset(header, 0, 512);
    memcpy(header, file->name, strlen(file->name)); /* shorter than 100 */
    snprintf(header + 100, 8, "%07o", (unsigned)file->mode);
    snprintf(header + 108, 8, "%07o", 0u);
    snprintf(header + 116, 8, "%07o", 0u);
    snprintf(header + 124, 12, "%011" PRIo64, file->bytes);
    snprintf(header + 136, 12, "%011o", 0u);
    header[156] = '0';
    memcpy(header + 257, "ustar\0" "00", 8);
    unsigned sum = 8 * ' ';
    for (int i = 0; i < 512; i++)
        sum += (uint8_t)header[i];
    snprintf(header + 148, 8, "%06o", sum & 0777777);
    header[155] = ' ';
}

static int pack_file(const struct parcel_file *file, FILE *out, const char *path, struct why *why)
{
    static const char zeros[512];
    char header[512];
    uint8_t *bytes = mem_new(READ_BYTES);
    uint64_t left = file->bytes;
    int fd = open(file->local, O_RDONLY | O_CLOEXEC), err = fd < 0 ? why_errno(why, "cannot send %s", file->local) : 0;
    fill_header(file, header);
    if (!err)
        err = write_all(out, header, sizeof header, path, why);
    while (!err && left) {
        ssize_t got = read(fd, bytes, left < READ_BYTES ? (size_t)left : READ_BYTES);
        if (got <= 0)
            err = got < 0 ? why_errno(why, "cannot read %s", file->local)
                          : why_set(why, ERR_INVALID, "%s has become shorter while it was read", file->local);
        else
            err = write_all(out, bytes, (size_t)got, path, why);
        left -= got > 0 ? (uint64_t)got : 0;
    }
    if (!err && file->bytes % 512)
        err = write_all(out, zeros, 512 - file->bytes % 512, path, why);
    if (fd >= 0)
        close(fd);
    mem_free(bytes);
    return err;
}

int parcel_pack(struct parcel *parcel, const char *folder, struct why *why)
{
    static const char end[1024];
    size_t small = 0;
    for (size_t i = 0; i < parcel->count; i++)
        small += parcel->files[i].bytes < PARCEL_LARGE;
    if (parcel->archive || !small)
        return 0;
    char *path = mem_format("%s/push-%s.tar", folder, parcel->id);
    FILE *out = fopen(path, "we");
    int err = out ? 0 : why_errno(why, "cannot write %s", path);
    for (size_t i = 0; i < parcel->count && !err; i++)
        if (parcel->files[i].bytes < PARCEL_LARGE)
            err = pack_file(&parcel->files[i], out, path, why);
    if (!err)
        err = write_all(out, end, sizeof end, path, why);
    long bytes = out ? ftell(out) : 0;
    if (out && fclose(out) != 0 && !err)
        err = why_errno(why, "cannot write %s", path);
    if (err) {
        unlink(path);
        mem_free(path);
        return err;
    }
    parcel->archive = path;
    parcel->archive_bytes = (uint64_t)bytes;
    return 0;
}

void parcel_clear(struct parcel *parcel)
{
    for (size_t i = 0; i < parcel->count; i++)
        mem_free(parcel->files[i].local);
    mem_free(parcel->files);
    if (parcel->archive)
        unlink(parcel->archive);
    mem_free(parcel->archive);
    memset(parcel, 0, sizeof *parcel);
}
