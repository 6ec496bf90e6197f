#include "ssh/session/blob.h"

#include <string.h>

bool blob_u32(struct blob *blob, uint32_t *value)
{
    if (blob->left < 4)
        return false;
    *value = (uint32_t)blob->at[0] << 24 | (uint32_t)blob->at[1] << 16 | (uint32_t)blob->at[2] << 8 | blob->at[3];
    return blob_skip(blob, 4);
}

bool blob_skip(struct blob *blob, size_t bytes)
{
    if (blob->left < bytes)
        return false;
    blob->at += bytes;
    blob->left -= bytes;
    return true;
}

bool blob_string(struct blob *blob, struct blob *string)
{
    uint32_t length;
    struct blob after = *blob;
    if (!blob_u32(&after, &length) || after.left < length)
        return false;
    *string = (struct blob){after.at, length};
    blob_skip(&after, length);
    *blob = after;
    return true;
}

bool blob_is(struct blob blob, const char *text)
{
    return blob.left == strlen(text) && memcmp(blob.at, text, blob.left) == 0;
}

void blob_put_u32(struct buf *buf, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};
    buf_put(buf, bytes, sizeof bytes);
}

void blob_put_string(struct buf *buf, const void *bytes, size_t count)
{
    blob_put_u32(buf, (uint32_t)count);
    buf_put(buf, bytes, count);
}

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int blob_from_base64(const char *text, size_t length, uint8_t *out, size_t room)
{
    uint32_t bits = 0;
    unsigned held = 0;
    size_t used = 0, padding = 0;
    while (length && padding < 2 && text[length - 1] == '=')
        length--, padding++;
    for (size_t i = 0; i < length; i++) {
        const char *letter = text[i] ? strchr(letters, text[i]) : NULL;
        if (!letter)
            return -1;
        bits = bits << 6 | (uint32_t)(letter - letters);
        held += 6;
        if (held < 8)
            continue;
        held -= 8;
        if (used == room)
            return -1;
        out[used++] = (uint8_t)(bits >> held);
    }
    return length % 4 == 1 ? -1 : (int)used;
}

char *blob_to_base64(const uint8_t *bytes, size_t count, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    if (size < (count + 2) / 3 * 4 + 1)
        return out;
    for (size_t i = 0; i < count; i += 3) {
        uint32_t three = (uint32_t)bytes[i] << 16 | (i + 1 < count ? (uint32_t)bytes[i + 1] << 8 : 0) |
                         (i + 2 < count ? bytes[i + 2] : 0);
        out[used++] = letters[three >> 18];
        out[used++] = letters[three >> 12 & 63];
        out[used++] = i + 1 < count ? letters[three >> 6 & 63] : '=';
        out[used++] = i + 2 < count ? letters[three & 63] : '=';
    }
    out[used] = '\0';
    return out;
}
