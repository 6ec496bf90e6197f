/*
 * Change single values in an INI text and keep every other byte: comments, order, spacing, line ends, a missing last
 * newline.
 *
 * The text is walked with the reader's own ini_scan, so that writer and reader cannot disagree on what a line is. A change
 * is one replaced range of bytes; continuation lines of the old value go, their comments stay.
 */
#include "profiles/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "profiles/fields.h"
#include "profiles/ini.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define TEXT_BYTES (2u * INI_FILE)

/* ---- walking lines ---- */

struct cursor {
    const char *text;
    size_t bytes, start, end, next; /* of the line: text[start..end), then its line end up to `next` */
    struct ini_line parts;          /* offsets from start */
};

static bool step(struct cursor *cursor)
{
    if (cursor->next >= cursor->bytes)
        return false;
    cursor->start = cursor->next;
    const char *line = cursor->text + cursor->start, *newline = memchr(line, '\n', cursor->bytes - cursor->start);
    cursor->next = newline ? (size_t)(newline - cursor->text) + 1 : cursor->bytes;
    cursor->end = newline ? cursor->next - 1 : cursor->bytes;
    if (cursor->end > cursor->start && cursor->text[cursor->end - 1] == '\r')
        cursor->end--;
    if (cursor->start == 0 && cursor->end >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
        cursor->start = 3; /* a byte order mark is not part of the line */
    cursor->parts = ini_scan(cursor->text + cursor->start, cursor->end - cursor->start);
    return true;
}

static bool is_word(const struct cursor *cursor, const char *word)
{
    const struct ini_line *parts = &cursor->parts;
    size_t length = strlen(word);
    return parts->name_end - parts->name_start == length &&
           memcmp(cursor->text + cursor->start + parts->name_start, word, length) == 0;
}

/* [mask], or [host a] with any blanks between. */
static bool is_section(const struct cursor *cursor, const char *section)
{
    const char *name = strchr(section, ' ');
    if (!name)
        return is_word(cursor, section);
    const char *text = cursor->text + cursor->start + cursor->parts.name_start;
    size_t bytes = cursor->parts.name_end - cursor->parts.name_start, word = (size_t)(name - section),
           length = strlen(name + 1);
    size_t at = word;
    if (bytes <= word + length || memcmp(text, section, word) != 0)
        return false;
    while (at < bytes && (text[at] == ' ' || text[at] == '\t'))
        at++;
    return at > word && bytes - at == length && memcmp(text + at, name + 1, length) == 0;
}

/* ---- what to change ---- */

struct found {
    bool section, key;
    struct cursor place; /* the key's line; else the last line of the section that says something */
    size_t value_end;    /* behind the last line that continues the value; = place.next when none does */
};

static void find_value(const char *text, size_t bytes, const char *section, const char *key, struct found *found)
{
    struct cursor cursor = {.text = text, .bytes = bytes};
    bool inside = false, continues = false;
    memset(found, 0, sizeof *found);
    while (step(&cursor)) {
        if (cursor.parts.kind == INI_SECTION) {
            if (found->key)
                return;
            inside = is_section(&cursor, section);
        }
        if (found->key && cursor.parts.kind == INI_MORE && continues)
            found->value_end = cursor.next;
        if (cursor.parts.kind == INI_KEY || cursor.parts.kind == INI_BROKEN)
            continues = false;
        if (!inside || found->key || cursor.parts.kind == INI_BLANK || cursor.parts.kind == INI_COMMENT)
            continue;
        found->section = true;
        found->place = cursor;
        if (cursor.parts.kind == INI_KEY && is_word(&cursor, key)) {
            found->key = continues = true;
            found->value_end = cursor.next;
        }
    }
}

static const char *line_end(const char *text, size_t bytes)
{
    const char *newline = memchr(text, '\n', bytes);
    return newline && newline > text && newline[-1] == '\r' ? "\r\n" : "\n";
}

static int put_text(struct buf *out, const char *text)
{
    return buf_put(out, text, strlen(text));
}

/* The lines that continued the old value: only their comments stay. */
static int put_comments(struct buf *out, const char *text, const struct found *found)
{
    struct cursor cursor = {.text = text, .bytes = found->value_end, .next = found->place.next};
    int err = 0;
    while (err == 0 && step(&cursor)) {
        size_t from = cursor.start;
        if (cursor.parts.kind == INI_MORE) {
            from += cursor.parts.text_end;
            if (from == cursor.end || strspn(text + from, " \t") >= cursor.end - from)
                continue;
        }
        err = buf_put(out, text + from, cursor.next - from);
    }
    return err;
}

static int replace_value(struct buf *out, const char *text, size_t bytes, const struct found *found, const char *value)
{
    const struct cursor *line = &found->place;
    size_t start = line->start + line->parts.value_start, end = line->start + line->parts.value_end;
    int err = buf_put(out, text, start);
    if (err == 0 && start == end && *value && (text[start - 1] == '=' || text[start - 1] == ':'))
        err = put_text(out, " ");
    if (err == 0)
        err = put_text(out, value);
    if (err == 0)
        err = buf_put(out, text + end, line->next - end);
    if (err == 0)
        err = put_comments(out, text, found);
    return err ? err : buf_put(out, text + found->value_end, bytes - found->value_end);
}

static int insert_key(struct buf *out, const char *text, size_t bytes, const struct found *found, const char *key,
                      const char *value)
{
    const char *end = line_end(text, bytes);
    size_t at = found->place.next;
    bool open = text[at - 1] != '\n'; /* the file ends without a newline, and goes on doing so */
    int err = buf_put(out, text, at);
    if (err == 0)
        err = buf_format(out, "%s%s = %s%s", open ? end : "", key, value, open ? "" : end);
    return err ? err : buf_put(out, text + at, bytes - at);
}

static int append_section(struct buf *out, const char *text, size_t bytes, const char *section, const char *key,
                          const char *value)
{
    const char *end = line_end(text, bytes);
    bool open = bytes > 0 && text[bytes - 1] != '\n';
    int err = buf_put(out, text, bytes);
    return err ? err
               : buf_format(out, "%s%s[%s]%s%s = %s%s", open ? end : "", bytes ? end : "", section, end, key, value, end);
}

/* ---- one change ---- */

/* "mask.rate" → "mask" and "rate"; "host.a.listen" → "host a" and "listen". */
static void split_name(const char *name, char *section, size_t size, const char **key)
{
    const char *last = strrchr(name, '.');
    *key = last + 1;
    snprintf(section, size, "%.*s", (int)(last - name), name);
    if (strncmp(section, "host.", 5) == 0)
        section[4] = ' ';
}

/* By the table, as if it came over the wire; and such that the INI reader gets it back. */
static int check_value(const char *name, const char *value, struct why *why)
{
    struct profile *scratch = mem_new(sizeof *scratch);
    char *line = mem_format("%s=%s\n", name, value);
    int err = strpbrk(name, "=\n") ? why_set(why, ERR_INVALID, "a setting's name has no '=' in it")
                                   : profile_from_settings((const uint8_t *)line, strlen(line), scratch, why);
    mem_free(line);
    mem_free(scratch);
    bool comment = *value == '#' || *value == ';';
    for (const char *at = value; *at; at++)
        comment |= (*at == ' ' || *at == '\t') && (at[1] == '#' || at[1] == ';');
    if (err == 0 && comment)
        err = why_set(why, ERR_INVALID, "%s: '#' or ';' behind a blank would begin a comment", name);
    return err;
}

/* `text` in, the changed text in `out`. */
static int change_value(const char *text, size_t bytes, const char *name, const char *value, struct buf *out,
                        struct why *why)
{
    char section[INI_WORD + PROFILE_NAME + 16];
    const char *key;
    struct found found;
    int err = check_value(name, value, why);
    if (err)
        return err;
    value += strspn(value, " \t");
    split_name(name, section, sizeof section, &key);
    find_value(text, bytes, section, key, &found);
    if (found.key)
        err = replace_value(out, text, bytes, &found, value);
    else if (found.section)
        err = insert_key(out, text, bytes, &found, key, value);
    else
        err = append_section(out, text, bytes, section, key, value);
    return err ? why_set(why, err, "the profile would become larger than %u bytes", TEXT_BYTES) : 0;
}

int profile_write_value(const char *path, const char *name, const char *value, struct why *why)
{
    uint8_t *text;
    size_t bytes;
    struct stat status;
    struct buf out;
    char *real = realpath(path, NULL); /* a link stays a link: the file that it names is replaced */
    if (!real)
        return why_errno(why, "%s", path);
    buf_init(&out, TEXT_BYTES);
    int err = stat(real, &status) == 0 ? 0 : why_errno(why, "%s", path);
    if (err == 0)
        err = file_read(real, INI_FILE, &text, &bytes, why);
    if (err)
        goto release;
    err = change_value((const char *)text, bytes, name, value, &out, why);
    if (err == 0)
        err = file_write(real, buf_peek(&out), buf_used(&out), status.st_mode & 07777, why);
    mem_free(text);
release:
    buf_clear(&out);
    free(real);
    return err;
}

/* ---- a copy that says all that was decided ---- */

struct copying {
    char *text; /* owned */
    size_t bytes;
    const struct profile *profile;
};

static int copy_value(struct copying *copying, const char *name, const char *value, struct why *why)
{
    struct buf out;
    buf_init(&out, TEXT_BYTES);
    int err = change_value(copying->text, copying->bytes, name, value, &out, why);
    if (err == 0) {
        mem_free(copying->text);
        copying->bytes = buf_used(&out);
        copying->text = mem_copy(buf_peek(&out), copying->bytes);
    }
    buf_clear(&out);
    return err;
}

static int copy_row(struct copying *copying, const char *name, const struct field *row, const void *base, int line,
                    struct why *why)
{
    static const char *const decided[] = {"run.name", "data.path", "model.path", "lora.path"}; /* by profile_read */
    char value[PROFILE_PATHS + 64];
    bool differs = line == PROFILE_SET;
    field_format(row, base, value, sizeof value);
    for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
        differs |= strcmp(name, decided[i]) == 0 && *value;
    return differs ? copy_value(copying, name, value, why) : 0;
}

static int copy_rows(struct copying *copying, struct why *why)
{
    size_t count;
    char name[INI_WORD + PROFILE_NAME + 16];
    const struct field *rows = field_all(&count);
    const struct profile *profile = copying->profile;
    int err = 0;
    for (size_t i = 0; i < count && err == 0; i++) {
        if (!field_is_host(&rows[i]))
            err = copy_row(copying, field_name(&rows[i], name, sizeof name), &rows[i], profile, profile->lines[i], why);
        for (int64_t h = 0; h < profile->host_count && field_is_host(&rows[i]) && err == 0; h++) {
            snprintf(name, sizeof name, "host.%s.%s", profile->hosts[h].name, rows[i].key);
            err = copy_row(copying, name, &rows[i], &profile->hosts[h], profile->hosts[h].lines[field_host_index(&rows[i])],
                           why);
        }
    }
    return err;
}

int profile_copy(const char *from, const struct profile *profile, const char *to, struct why *why)
{
    struct copying copying = {.profile = profile};
    uint8_t *text;
    int err = file_read(from, INI_FILE, &text, &copying.bytes, why);
    if (err)
        return err;
    copying.text = (char *)text;
    err = copy_rows(&copying, why);
    if (err == 0)
        err = file_write(to, copying.text, copying.bytes, 0600, why);
    mem_free(copying.text);
    return err;
}
