#include "ssh/launch/delivery.h"

#include <string.h>
#include <unistd.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/launch/nonce.h"

#define FILE_MOST ((size_t)1 << 20)
#define LINES_MOST 8192

/* D/programs/ID */
char *delivery_place(const char *data, enum part part, const struct parcel *parcel)
{
    return mem_format("%s/%s/%s", data, room_place(part), parcel->id);
}

static int put_file(const struct delivery *delivery, struct buf *out, const char *name, struct why *why)
{
    char *path = mem_format("%s/%s", delivery->folder, name);
    uint8_t *bytes;
    size_t count;
    int err = file_read(path, FILE_MOST, &bytes, &count, why);
    if (!err) {
        buf_format(out, "%zu %s\n", count, name);
        if (buf_put(out, bytes, count) != 0)
            err = why_set(why, ERR_FULL, "%s is too long to be delivered", path);
        explicit_bzero(bytes, count);
        mem_free(bytes);
    }
    mem_free(path);
    return err;
}

/* A certificate and its key. */
static int put_credentials(const struct delivery *delivery, struct buf *out, const char *name, struct why *why)
{
    static const char *const endings[] = {".pem", ".key"};
    int err = 0;
    for (int i = 0; i < 2 && !err; i++) {
        char *file = mem_format("creds/%s%s", name, endings[i]);
        err = put_file(delivery, out, file, why);
        mem_free(file);
    }
    return err;
}

static void put_path(const struct delivery *delivery, struct buf *lines, enum part part, const char *setting, const char *behind)
{
    const struct parcel *parcel = delivery->parcels[part];
    if (!parcel || !parcel->count)
        return;
    char *place = delivery_place(delivery->data, part, parcel);
    buf_format(lines, "%s=%s%s\n", setting, place, behind);
    mem_free(place);
}

/* Where the host keeps what the profile names. */
static void put_paths(const struct delivery *delivery, struct buf *out)
{
    struct buf lines;
    buf_init(&lines, LINES_MOST);
    put_path(delivery, &lines, PART_TEXT, "data.path", delivery->text_value + 1); /* "@/…" */
    put_path(delivery, &lines, PART_CHECKPOINT, "model.path", "");
    put_path(delivery, &lines, PART_ADAPTER, "lora.path", "");
    buf_format(out, "%zu paths@%s\n", buf_used(&lines), delivery->host);
    if (buf_used(&lines))
        buf_put(out, buf_peek(&lines), buf_used(&lines));
    buf_clear(&lines);
}

/* Does the run go on from a set? (prepare.h) */
static bool resumes(const struct delivery *delivery)
{
    char *path = mem_format("%s/resume", delivery->folder);
    bool is_there = access(path, F_OK) == 0;
    mem_free(path);
    return is_there;
}

int delivery_collect(const struct delivery *delivery, struct buf *out, struct why *why)
{
    bool plain = delivery->profile->security == SECURITY_PLAIN;
    int err = put_file(delivery, out, "run.id", why);
    if (!err && !plain)
        err = put_file(delivery, out, "creds/ca.pem", why);
    if (!err && !plain && delivery->agent)
        err = put_credentials(delivery, out, delivery->host, why);
    if (!err && !plain && delivery->head)
        err = put_credentials(delivery, out, "kedged", why);
    if (!err && delivery->head)
        err = put_file(delivery, out, "run.ini", why);
    if (!err && delivery->head && resumes(delivery))
        err = put_file(delivery, out, "resume", why);
    if (!err && nonce_read(delivery->folder, delivery->host).word) {
        char *nonce = mem_format("nonce@%s", delivery->host);
        err = put_file(delivery, out, nonce, why);
        mem_free(nonce);
    }
    if (!err && delivery->agent)
        put_paths(delivery, out);
    return err;
}
