#include "ssh/session/known.h"

#include <ctype.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/link/digest.h"
#include "ssh/session/blob.h"

#define FILE_BYTES ((size_t)16 << 20)

void known_name(const char *host, uint16_t port, char out[300])
{
    if (port == 22)
        snprintf(out, 300, "%s", host);
    else
        snprintf(out, 300, "[%s]:%u", host, port);
    for (char *letter = out; *letter; letter++)
        *letter = (char)tolower((unsigned char)*letter);
}

void known_init(struct known *known, const char *host, uint16_t port, const uint8_t *key, size_t bytes)
{
    memset(known, 0, sizeof *known);
    known_name(host, port, known->name);
    known->bytes = bytes < sizeof known->key ? bytes : sizeof known->key;
    if (key)
        memcpy(known->key, key, known->bytes);
}

/* |1|SALT|HASH with HASH = HMAC-SHA1(SALT, name) */
static bool hash_matches(const char *text, size_t length, const char *name)
{
    uint8_t salt[64], hash[DIGEST_SHA1 + 3], mine[DIGEST_SHA1];
    const char *middle = memchr(text + 3, '|', length - 3);
    if (!middle)
        return false;
    int salt_bytes = blob_from_base64(text + 3, (size_t)(middle - text) - 3, salt, sizeof salt);
    int hash_bytes = blob_from_base64(middle + 1, length - (size_t)(middle + 1 - text), hash, sizeof hash);
    if (salt_bytes <= 0 || hash_bytes != DIGEST_SHA1)
        return false;
    digest_hmac_sha1(salt, (size_t)salt_bytes, name, strlen(name), mine);
    return memcmp(mine, hash, DIGEST_SHA1) == 0;
}

/* '[' has no meaning in these patterns, but it has one for fnmatch. */
static bool pattern_matches(const char *pattern, const char *name)
{
    char escaped[700];
    size_t used = 0;
    for (; *pattern && used < sizeof escaped - 2; pattern++) {
        if (*pattern == '[' || *pattern == ']' || *pattern == '\\')
            escaped[used++] = '\\';
        escaped[used++] = (char)tolower((unsigned char)*pattern);
    }
    escaped[used] = '\0';
    return !*pattern && fnmatch(escaped, name, 0) == 0;
}

/* A list of patterns: one of them matches and no negated one does. */
static bool names_match(char *names, const char *name)
{
    bool matches = false;
    if (strncmp(names, "|1|", 3) == 0)
        return hash_matches(names, strlen(names), name);
    for (char *rest = names, *one; (one = strsep(&rest, ","));) {
        bool negated = *one == '!';
        if (!*one || !pattern_matches(one + negated, name))
            continue;
        if (negated)
            return false;
        matches = true;
    }
    return matches;
}

static void judge(struct known *known, enum known_verdict verdict, const char *place)
{
    if (verdict <= known->verdict)
        return;
    known->verdict = verdict;
    snprintf(known->place, sizeof known->place, "%s", place);
}

static void remember(struct known *known, const char *type, const uint8_t *key, size_t bytes, const char *place)
{
    if (known->old_count == KNOWN_OLD)
        return;
    struct known_key *old = &known->old[known->old_count++];
    snprintf(old->type, sizeof old->type, "%s", type);
    memcpy(old->key, key, bytes);
    old->bytes = bytes;
    snprintf(old->place, sizeof old->place, "%s", place);
}

static char *next_word(char **rest)
{
    char *word;
    while ((word = strsep(rest, " \t")) && !*word)
        ;
    return word;
}

static void look_at_line(struct known *known, char *line, const char *place)
{
    char *rest = line, *marker = NULL, *names = next_word(&rest);
    if (names && *names == '@') {
        marker = names;
        names = next_word(&rest);
    }
    char *type = next_word(&rest), *text = next_word(&rest);
    uint8_t key[KNOWN_KEY];
    if (!names || *names == '#' || !type || !text || !names_match(names, known->name))
        return;
    int bytes = blob_from_base64(text, strlen(text), key, sizeof key);
    if (bytes <= 0)
        return;
    bool same = (size_t)bytes == known->bytes && memcmp(key, known->key, known->bytes) == 0;
    if (marker) {
        if (same && strcmp(marker, "@revoked") == 0)
            judge(known, KNOWN_REVOKED, place);
        return;
    }
    if (!same)
        remember(known, type, key, (size_t)bytes, place);
    judge(known, same ? KNOWN_SAME : KNOWN_CHANGED, place);
}

void known_look(struct known *known, const char *file, const char *text)
{
    char *copy = mem_text(text), *rest = copy, place[KNOWN_PLACE];
    int number = 0;
    for (char *line; (line = strsep(&rest, "\n"));) {
        line[strcspn(line, "\r")] = '\0';
        snprintf(place, sizeof place, "%s:%d", file, ++number);
        look_at_line(known, line, place);
    }
    mem_free(copy);
}

int known_look_in(struct known *known, const char *path, struct why *why)
{
    struct why mine = {0};
    uint8_t *text;
    size_t bytes;
    int err = file_read(path, FILE_BYTES, &text, &bytes, &mine);
    if (err == ERR_ABSENT || strcmp(path, "/dev/null") == 0)
        return 0;
    if (err)
        return why_set(why, mine.err, "the file of known hosts cannot be used: %s", mine.text);
    known_look(known, path, (const char *)text);
    mem_free(text);
    return 0;
}

static int make_folder_of(const char *path, struct why *why)
{
    char *folder = mem_text(path), *slash = strrchr(folder, '/');
    int err = 0;
    if (slash && slash != folder) {
        *slash = '\0';
        err = file_make_folders(folder, 0700, why);
    }
    mem_free(folder);
    return err;
}

/* Whether the file ends in the middle of a line: then ours would be glued to it. */
static bool lacks_line_end(int fd)
{
    char last = '\n';
    off_t end = lseek(fd, 0, SEEK_END);
    return end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n';
}

int known_append(const char *path, const char *name, const uint8_t *key, size_t bytes, struct why *why)
{
    struct blob blob = {key, bytes}, type;
    char text[KNOWN_KEY * 2];
    int err = make_folder_of(path, why);
    if (err)
        return err;
    if (!blob_string(&blob, &type))
        return why_set(why, ERR_INVALID, "the host key of %s is not a key", name);
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return why_errno(why, "cannot note the key of %s in %s", name, path);
    flock(fd, LOCK_EX); /* several sessions may save at once; the lock goes with the descriptor */
    char *line = mem_format("%s%s %.*s %s\n", lacks_line_end(fd) ? "\n" : "", name, (int)type.left, (const char *)type.at,
                            blob_to_base64(key, bytes, text, sizeof text));
    size_t length = strlen(line);
    if (write(fd, line, length) != (ssize_t)length || fsync(fd) != 0)
        err = why_errno(why, "cannot note the key of %s in %s", name, path);
    close(fd);
    mem_free(line);
    return err;
}
