/*
 * `kedge-worker receive PART` and `digest [PART]`: the host's end of an upload (ssh/session/upload.c). They take the very orders that the
 * shells there take where we are not yet, and do in one process each what costs those a dd, an unpacker, a sum and the pipes between.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "gpu/train/command.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/link/digest.h"
#include "ssh/wire/planes.h"

#define PIECE_BYTES ((size_t)128 << 10) /* stays in the cache between two steps */
#define PIPE_BYTES (1 << 20)            /* the most that everybody may have: what is not in the pipe waits in sshd (flow.h) */

struct receive {
    const char *path; /* of the part; what has arrived is noted in PATH.list */
    int part, list;
    uint8_t *packed, *split, *plain;
};

struct order {
    uint64_t begin, bytes, packed; /* packed: so many bytes of frames come instead; 0 = they come as they are */
};

/* "BEGIN BYTES" or "BEGIN BYTES COMPRESSED". */
static int read_order(const char *line, struct order *order, struct why *why)
{
    char copy[100], shown[100], *rest = copy;
    uint64_t *const numbers[] = {&order->begin, &order->bytes, &order->packed};
    size_t count = 0;
    *order = (struct order){0};
    snprintf(copy, sizeof copy, "%s", line);
    copy[strcspn(copy, "\n")] = '\0';
    for (const char *word; count < 3 && (word = strsep(&rest, " ")) && text_to_u64(word, numbers[count]) == 0;)
        count++;
    if (count < 2 || rest || !order->bytes || order->begin > INT64_MAX || order->bytes > INT64_MAX - order->begin)
        return why_set(why, ERR_INVALID, "'%s' is no order", text_harmless(line, strlen(line), shown, sizeof shown));
    return 0;
}

static int take(uint8_t *out, size_t bytes, struct why *why)
{
    if (fread(out, 1, bytes, stdin) == bytes)
        return 0;
    return ferror(stdin) ? why_errno(why, "cannot read") : why_set(why, ERR_GONE, "the connection ends within an order");
}

static int put(const struct receive *receive, uint64_t at, const uint8_t *bytes, size_t count, struct why *why)
{
    while (count) {
        ssize_t put = pwrite(receive->part, bytes, count, (off_t)at);
        if (put < 0 && errno != EINTR)
            return why_errno(why, "cannot write %s", receive->path);
        at += put > 0 ? (uint64_t)put : 0;
        bytes += put > 0 ? put : 0;
        count -= put > 0 ? (size_t)put : 0;
    }
    return 0;
}

/* A frame of what is left: `plain` has planes.plain bytes then. */
static int take_frame(struct receive *receive, uint64_t left, struct planes *planes, struct why *why)
{
    uint8_t header[PLANES_HEADER];
    int err = left < sizeof header ? why_set(why, ERR_INVALID, "a frame is cut off") : take(header, sizeof header, why);
    if (!err)
        err = planes_get(header, planes, why);
    if (!err && planes->packed > left - sizeof header)
        err = why_set(why, ERR_INVALID, "a frame is cut off");
    if (!err)
        err = take(receive->packed, planes->packed, why);
    if (err)
        return err;
    uint8_t *out = planes->stride == 1 ? receive->plain : receive->split;
    size_t got = ZSTD_decompress(out, planes->plain, receive->packed, planes->packed);
    if (ZSTD_isError(got) || got != planes->plain)
        return why_set(why, ERR_INVALID, "a frame is damaged%s%s", ZSTD_isError(got) ? ": " : "",
                       ZSTD_isError(got) ? ZSTD_getErrorName(got) : "");
    if (planes->stride > 1)
        planes_join(planes->stride, receive->split, planes->plain, receive->plain);
    return 0;
}

static int take_packed(struct receive *receive, const struct order *order, struct why *why)
{
    uint64_t at = order->begin, end = order->begin + order->bytes;
    for (uint64_t left = order->packed; left;) {
        struct planes planes;
        int err = take_frame(receive, left, &planes, why);
        if (!err && planes.plain > end - at)
            err = why_set(why, ERR_INVALID, "frames hold more than was ordered");
        if (!err)
            err = put(receive, at, receive->plain, planes.plain, why);
        if (err)
            return err;
        left -= PLANES_HEADER + planes.packed;
        at += planes.plain;
    }
    return at == end ? 0 : why_set(why, ERR_INVALID, "frames hold less than was ordered");
}

static int take_plain(struct receive *receive, const struct order *order, struct why *why)
{
    int err = 0;
    for (uint64_t done = 0, bytes; !err && done < order->bytes; done += bytes) {
        bytes = order->bytes - done < PIECE_BYTES ? order->bytes - done : PIECE_BYTES;
        err = take(receive->plain, (size_t)bytes, why);
        if (!err)
            err = put(receive, order->begin + done, receive->plain, (size_t)bytes, why);
    }
    return err;
}

/* It is whole and in its place: note it, and say so. One write, so that those of other channels do not mix with it. */
static int note(struct receive *receive, const struct order *order, struct why *why)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 "\n", order->begin, order->bytes);
    if (write(receive->list, line, (size_t)length) != length)
        return why_errno(why, "cannot write %s.list", receive->path);
    printf("done %" PRIu64 " %s", order->packed ? order->packed : order->bytes, line);
    return fflush(stdout) == 0 ? 0 : why_errno(why, "cannot answer");
}

/* For one order: a program that is open for writing would not start. The part was begun by the shell; what another one has put into its
 * place meanwhile is not made anew. */
static int open_part(struct receive *receive, struct why *why)
{
    char *list = mem_format("%s.list", receive->path);
    receive->part = open(receive->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    receive->list = receive->part < 0 ? -1 : open(list, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    mem_free(list);
    return receive->list < 0 ? why_errno(why, "cannot write %s", receive->path) : 0;
}

static void close_part(struct receive *receive)
{
    if (receive->list >= 0)
        close(receive->list);
    if (receive->part >= 0)
        close(receive->part);
    receive->part = receive->list = -1;
}

static int take_order(struct receive *receive, const char *line, struct why *why)
{
    struct order order;
    char end[8];
    int err = read_order(line, &order, why);
    if (!err)
        err = open_part(receive, why);
    if (!err)
        err = order.packed ? take_packed(receive, &order, why) : take_plain(receive, &order, why);
    if (!err && (!fgets(end, sizeof end, stdin) || strcmp(end, "end\n") != 0))
        err = why_set(why, ERR_INVALID, "an order is longer than it said, or the connection ends");
    if (!err)
        err = note(receive, &order, why);
    close_part(receive);
    return err;
}

static int say(const char *command, int err, const struct why *why)
{
    if (err)
        fprintf(stderr, "kedge-worker %s: %s\n", command, why->text);
    return err ? command_exit(err) : EXIT_DONE;
}

static bool one_word(const char *command, int count)
{
    if (count != 1)
        fprintf(stderr, "kedge-worker %s: it takes the path of a part, and orders on its input\n", command);
    return count == 1;
}

int receive_main(int count, char **words)
{
    struct why why = {0};
    char line[100];
    int err = 0;
    if (!one_word("receive", count))
        return EXIT_USAGE;
    struct receive receive = {.path = words[0], .part = -1, .list = -1};
    fcntl(STDIN_FILENO, F_SETPIPE_SZ, PIPE_BYTES); /* where it cannot be had, or is no pipe, it goes slower */
    receive.packed = mem_new(2 * PLANES_MOST);
    receive.split = mem_new(PLANES_MOST);
    receive.plain = mem_new(PLANES_MOST);
    while (!err && fgets(line, sizeof line, stdin))
        err = take_order(&receive, line, &why);
    mem_free(receive.packed);
    mem_free(receive.split);
    mem_free(receive.plain);
    return say("receive", err, &why);
}

/* ---- the sum of what has arrived ---- */

static int add_range(int part, const char *path, const struct order *order, struct digest *digest, struct why *why)
{
    static uint8_t piece[PIECE_BYTES];
    for (uint64_t done = 0; done < order->bytes;) {
        uint64_t left = order->bytes - done;
        ssize_t got = pread(part, piece, left < sizeof piece ? (size_t)left : sizeof piece, (off_t)(order->begin + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return why_errno(why, "cannot read %s", path);
        if (got == 0)
            return why_set(why, ERR_INVALID, "%s has become shorter", path);
        digest_add(digest, piece, (size_t)got);
        done += (uint64_t)got;
    }
    return 0;
}

/* Of a part: lines "BEGIN BYTES", then "end"; what stands behind that on the input is the shell's. */
static int add_part(const char *path, struct digest *digest, struct why *why)
{
    char line[100];
    setvbuf(stdin, NULL, _IONBF, 0);
    int part = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), err = part < 0 ? why_errno(why, "cannot read %s", path) : 0;
    while (!err) {
        struct order order;
        if (!fgets(line, sizeof line, stdin))
            err = why_set(why, ERR_GONE, "the connection ends");
        else if (strcmp(line, "end\n") == 0)
            break;
        else
            err = read_order(line, &order, why);
        if (!err)
            err = add_range(part, path, &order, digest, why);
    }
    if (part >= 0)
        close(part);
    return err;
}

static int add_input(struct digest *digest, struct why *why)
{
    static uint8_t piece[PIECE_BYTES];
    ssize_t got;
    while ((got = read(STDIN_FILENO, piece, sizeof piece)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0)
            digest_add(digest, piece, (size_t)got);
    return got < 0 ? why_errno(why, "cannot read") : 0;
}

int digest_main(int count, char **words)
{
    struct why why = {0};
    char hex[DIGEST_HEX];
    if (count && !one_word("digest", count))
        return EXIT_USAGE;
    struct digest *digest = digest_new(DIGEST_XXH3);
    int err = count ? add_part(words[0], digest, &why) : add_input(digest, &why);
    digest_finish(digest, hex);
    digest_free(digest);
    if (!err)
        printf("%s\n", hex);
    return say("digest", err, &why);
}
