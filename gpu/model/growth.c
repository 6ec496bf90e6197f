#include "gpu/model/growth.h"

#include <string.h>

#include "gpu/model/utf8.h"
#include "ssh/base/mem.h"

#define KEPT 4 /* tokens, of those whose text has been shown */
#define MOST 16

struct growth {
    const struct tokenizer *tokenizer;
    struct token_list ids; /* those kept, then those of which something waits */
    size_t shown;          /* bytes of their text that came out, or stood before them */
};

struct growth *growth_new(const struct tokenizer *tokenizer)
{
    struct growth *new = mem_new(sizeof *new);
    new->tokenizer = tokenizer;
    return new;
}

void growth_free(struct growth *growth)
{
    if (!growth)
        return;
    token_list_clear(&growth->ids);
    mem_free(growth);
}

/* Could these bytes, of which there are less than four, become a character with more of them? */
static bool is_beginning(const uint8_t *at, size_t bytes)
{
    uint8_t whole[4] = {0x80, 0x80, 0x80, 0x80};
    memcpy(whole, at, bytes);
    for (whole[bytes] = 0x80; whole[bytes] < 0xc0; whole[bytes]++) /* only some follow E0, ED, F0 and F4 */
        for (size_t length = bytes + 1; length <= sizeof whole; length++)
            if (utf8_length(whole, length) == length)
                return true;
    return false;
}

/* Bytes at the end of a text that are the beginning of a character. */
static size_t unfinished(const uint8_t *text, size_t bytes)
{
    for (size_t back = bytes < 3 ? bytes : 3; back > 0; back--)
        if (is_beginning(text + bytes - back, back))
            return back;
    return 0;
}

static int show(const uint8_t *text, size_t bytes, struct buf *out, struct why *why)
{
    int err = 0;
    while (bytes && !err) {
        bool valid;
        size_t run = utf8_run(text, bytes, &valid);
        if (valid)
            err = buf_put(out, text, run);
        for (size_t i = 0; i < run && !valid && !err; i++)
            err = buf_put(out, "\xef\xbf\xbd", 3);
        text += run;
        bytes -= run;
    }
    return err ? why_set(why, err, "the text is longer than %zu bytes", out->max) : 0;
}

/* The tokens whose text is all shown go, but for the last few. */
static int forget(struct growth *growth, struct why *why)
{
    struct buf text;
    struct token_list *ids = &growth->ids;
    memmove(ids->ids, ids->ids + ids->count - KEPT, KEPT * sizeof *ids->ids);
    ids->count = KEPT;
    buf_init(&text, TOKENIZER_TEXT_MAX);
    int err = tokenizer_decode(growth->tokenizer, ids->ids, ids->count, false, &text, why);
    growth->shown = buf_used(&text);
    buf_clear(&text);
    return err;
}

static int come_out(struct growth *growth, bool ends, struct buf *out, struct why *why)
{
    struct buf text;
    buf_init(&text, TOKENIZER_TEXT_MAX);
    int err = tokenizer_decode(growth->tokenizer, growth->ids.ids, growth->ids.count, false, &text, why);
    size_t bytes = buf_used(&text), waits = err || ends ? 0 : unfinished(buf_peek(&text), bytes);
    if (!err && bytes - waits > growth->shown) {
        err = show(buf_peek(&text) + growth->shown, bytes - waits - growth->shown, out, why);
        growth->shown = bytes - waits;
    }
    buf_clear(&text);
    return err || waits || growth->ids.count < MOST ? err : forget(growth, why);
}

int growth_add(struct growth *growth, uint32_t id, struct buf *out, struct why *why)
{
    token_list_add(&growth->ids, id);
    return come_out(growth, false, out, why);
}

int growth_end(struct growth *growth, struct buf *out, struct why *why)
{
    int err = come_out(growth, true, out, why);
    growth->ids.count = 0;
    growth->shown = 0;
    return err;
}
