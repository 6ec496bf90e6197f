#include "gpu/model/text_block.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "gpu/model/document.h"
#include "gpu/model/utf8.h"
#include "ssh/base/mem.h"

#define BLOCK ((size_t)1 << 20)

struct text_reader {
    const struct source *source;
    int fd;
    size_t left;         /* of the file */
    char *carry;         /* what was read and belongs to the next block */
    size_t carried, carry_room;
    uint64_t line;
    bool began, ended;
    bool drops;          /* inside of a line that is too long */
};

int text_reader_open(const struct source *source, struct text_reader **reader, struct why *why)
{
    int fd = open(source->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return why_errno(why, "%s", source->path);
    *reader = mem_new(sizeof **reader);
    **reader = (struct text_reader){.source = source, .fd = fd, .left = source->bytes, .line = 1};
    return 0;
}

void text_reader_close(struct text_reader *reader)
{
    if (!reader)
        return;
    close(reader->fd);
    mem_free(reader->carry);
    mem_free(reader);
}

void text_block_clear(struct text_block *block)
{
    mem_free(block->text);
    *block = (struct text_block){0};
}

static void make_room(struct text_block *block, size_t room)
{
    if (block->room >= room)
        return;
    block->room = room;
    block->text = mem_grow(block->text, room, 1);
}

/* Reads until the block has `wanted` bytes or the file ends. */
static int fill(struct text_reader *reader, struct text_block *block, size_t wanted, struct why *why)
{
    make_room(block, wanted);
    while (block->bytes < wanted && reader->left) {
        size_t part = wanted - block->bytes < reader->left ? wanted - block->bytes : reader->left;
        ssize_t got = read(reader->fd, block->text + block->bytes, part);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return why_errno(why, "%s", reader->source->path);
        if (got == 0) /* it became shorter */
            reader->left = 0;
        block->bytes += (size_t)got;
        reader->left -= (size_t)got;
    }
    return 0;
}

static void take_carry(struct text_reader *reader, struct text_block *block)
{
    make_room(block, reader->carried);
    if (reader->carried)
        memcpy(block->text, reader->carry, reader->carried);
    block->bytes = reader->carried;
    reader->carried = 0;
}

static void cut(struct text_reader *reader, struct text_block *block, size_t at)
{
    size_t rest = block->bytes - at;
    if (rest > reader->carry_room) {
        reader->carry_room = rest;
        reader->carry = mem_grow(reader->carry, rest, 1);
    }
    if (rest)
        memcpy(reader->carry, block->text + at, rest);
    reader->carried = rest;
    block->bytes = at;
}

static bool is_space(char c)
{
    return strchr(" \t\r\n\v\f", c) != NULL; /* a NUL too: nothing to cut at */
}

/* Where a text may be cut: in front of a line, with no blank on either side of the line end; else at any line end; else
 * between two characters. */
static size_t place_to_cut(const char *text, size_t bytes)
{
    size_t least = bytes / 2, any = 0;
    for (size_t at = bytes - 1; at > least; at--) {
        if (text[at - 1] != '\n')
            continue;
        if (!is_space(text[at]) && (unsigned char)text[at] < 0x80 && !is_space(text[at - 2]))
            return at;
        any = any ? any : at;
    }
    if (any)
        return any;
    size_t before = utf8_before((const uint8_t *)text, bytes);
    return before + utf8_length((const uint8_t *)text + before, bytes - before) == bytes ? bytes : before;
}

static void count_lines(struct text_reader *reader, const struct text_block *block)
{
    const char *at = block->text, *end = block->text + block->bytes;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
        reader->line++;
        at++;
    }
}

/* The rest of a line that is too long is read and forgotten. */
static int drop_line(struct text_reader *reader, struct text_block *block, struct why *why)
{
    int err = 0;
    while (reader->drops && err == 0) {
        block->bytes = 0;
        err = fill(reader, block, BLOCK, why);
        const char *end = block->bytes ? memchr(block->text, '\n', block->bytes) : NULL;
        if (end)
            cut(reader, block, (size_t)(end - block->text) + 1);
        block->source_bytes += block->bytes;
        reader->drops = !end && block->bytes;
    }
    reader->line++;
    block->bytes = 0;
    return err;
}

static int next_lines(struct text_reader *reader, struct text_block *block, struct why *why)
{
    size_t wanted = BLOCK > block->bytes ? BLOCK : block->bytes + BLOCK;
    int err;
    for (;; wanted *= 2) {
        err = fill(reader, block, wanted, why);
        const char *end = block->bytes ? memrchr(block->text, '\n', block->bytes) : NULL;
        if (err || reader->left == 0)
            break;
        if (end) {
            cut(reader, block, (size_t)(end - block->text) + 1);
            break;
        }
        if (block->bytes > DOCUMENT_LINE_MAX) {
            block->overlong = reader->drops = true;
            block->source_bytes = block->bytes;
            return drop_line(reader, block, why);
        }
    }
    block->source_bytes = block->bytes;
    count_lines(reader, block);
    return err;
}

static int next_text(struct text_reader *reader, struct text_block *block, struct why *why)
{
    int err = fill(reader, block, BLOCK, why);
    if (err == 0 && reader->left)
        cut(reader, block, place_to_cut(block->text, block->bytes));
    block->source_bytes = block->bytes;
    return err;
}

int text_reader_next(struct text_reader *reader, struct text_block *block, bool *more, struct why *why)
{
    *more = false;
    if (reader->ended)
        return 0;
    take_carry(reader, block);
    block->path = reader->source->path;
    block->line = reader->line;
    block->lines = reader->source->kind == SOURCE_JSONL;
    block->first = !reader->began;
    block->overlong = false;
    int err = block->lines ? next_lines(reader, block, why) : next_text(reader, block, why);
    reader->began = true;
    reader->ended = reader->left == 0 && reader->carried == 0;
    block->last = reader->ended;
    *more = err == 0 && (block->bytes || block->overlong);
    return err;
}
