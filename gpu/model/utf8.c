#include "gpu/model/utf8.h"

#include <string.h>

#include <utf8proc.h>

size_t utf8_read(const uint8_t *at, size_t room, uint32_t *code)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (room == 0)
        return 0;
    uint32_t value = at[0];
    size_t length = value < 0x80 ? 1 : value < 0xc2 ? 0 : value < 0xe0 ? 2 : value < 0xf0 ? 3 : value < 0xf5 ? 4 : 0;
    if (length == 0 || length > room)
        return 0;
    if (length > 1)
        value &= 0x7fu >> length;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (at[i] & 0x3f);
    }
    if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *code = value;
    return length;
}

size_t utf8_length(const uint8_t *at, size_t room)
{
    uint32_t code;
    return utf8_read(at, room, &code);
}

size_t utf8_run(const uint8_t *at, size_t room, bool *valid)
{
    size_t used = 0, step;
    *valid = utf8_length(at, room) > 0;
    while (used < room) {
        if (at[used] < 0x80 && *valid) {
            used++;
            continue;
        }
        step = utf8_length(at + used, room - used);
        if ((step > 0) != *valid)
            break;
        used += step ? step : 1;
    }
    return used;
}

size_t utf8_before(const uint8_t *text, size_t at)
{
    for (size_t back = 1; back <= 4 && back <= at; back++)
        if (utf8_length(text + at - back, back) == back)
            return at - back;
    return at - 1;
}

const uint8_t *utf8_find(const uint8_t *text, size_t bytes, const void *word, size_t word_bytes)
{
    const uint8_t *first = word;
    while (bytes >= word_bytes) {
        const uint8_t *at = memchr(text, *first, bytes - word_bytes + 1);
        if (!at || memcmp(at, word, word_bytes) == 0)
            return at;
        bytes -= (size_t)(at + 1 - text);
        text = at + 1;
    }
    return NULL;
}

bool utf8_is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
           code == 0x3000;
}

bool utf8_is_word(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        /* Joiners, and the symbols that Unicode counts as alphabetic: letters in circles and squares. */
        return code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
               (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
               (code >= 0x1f170 && code <= 0x1f189);
    }
}

static bool stands_for_itself(uint32_t code)
{
    return (code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xff && code != 0xad);
}

size_t utf8_from_byte(uint8_t byte, uint8_t out[2])
{
    uint32_t code = byte;
    if (!stands_for_itself(byte)) /* how many others are before it: 0–32, then 127–160, then 173 */
        code = 0x100u + (byte <= 0x20 ? byte : byte <= 0xa0 ? byte - 0x7fu + 33 : 67);
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    out[0] = (uint8_t)(0xc0 | code >> 6);
    out[1] = (uint8_t)(0x80 | (code & 0x3f));
    return 2;
}

bool utf8_to_bytes(const uint8_t *text, size_t bytes, uint8_t *out, size_t *count)
{
    size_t made = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        size_t length = utf8_read(text + at, bytes - at, &code);
        if (length == 0)
            return false;
        if (code >= 0x100 && code < 0x144) {
            uint32_t n = code - 0x100;
            out[made++] = (uint8_t)(n <= 0x20 ? n : n < 67 ? n - 33 + 0x7f : 0xad);
        } else if (stands_for_itself(code)) {
            out[made++] = (uint8_t)code;
        } else {
            return false;
        }
        at += length;
    }
    *count = made;
    return true;
}
