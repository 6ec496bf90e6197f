#include "profiles/ini.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <ini.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

/* ---- one line ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static size_t skip_blanks(const char *line, size_t from, size_t end)
{
    while (from < end && is_blank(line[from]))
        from++;
    return from;
}

static size_t trim_blanks(const char *line, size_t from, size_t end)
{
    while (end > from && is_blank(line[end - 1]))
        end--;
    return end;
}

/* Where the text ends: before an inline comment (a blank, then # or ;) and the blanks around it. */
static size_t find_text_end(const char *line, size_t from, size_t bytes)
{
    size_t end = from;
    while (end < bytes && !((line[end] == '#' || line[end] == ';') && end > 0 && is_blank(line[end - 1])))
        end++;
    return trim_blanks(line, from, end);
}

/* A word as keys are, then '=' or ':'. Tells "  rate = 0.9", an indented key, from the continuation of a value. */
static bool looks_like_key(const char *line, size_t from, size_t end)
{
    size_t at = from;
    while (at < end && (line[at] == '_' || line[at] == '.' || (line[at] >= '0' && line[at] <= '9') ||
                        (line[at] >= 'a' && line[at] <= 'z') || (line[at] >= 'A' && line[at] <= 'Z')))
        at++;
    if (at == from)
        return false;
    at = skip_blanks(line, at, end);
    return at < end && (line[at] == '=' || line[at] == ':');
}

static void scan_key(const char *line, struct ini_line *out)
{
    size_t at = out->indent;
    while (at < out->text_end && line[at] != '=' && line[at] != ':')
        at++;
    out->name_start = out->indent;
    out->name_end = trim_blanks(line, out->indent, at);
    if (at == out->text_end || out->name_end == out->name_start)
        return; /* stays broken */
    out->kind = INI_KEY;
    out->value_start = skip_blanks(line, at + 1, out->text_end);
    out->value_end = out->text_end;
}

struct ini_line ini_scan(const char *line, size_t bytes)
{
    struct ini_line out = {.kind = INI_BROKEN};
    out.indent = skip_blanks(line, 0, bytes);
    if (out.indent == bytes) {
        out.kind = INI_BLANK;
        return out;
    }
    if (line[out.indent] == '#' || line[out.indent] == ';') {
        out.kind = INI_COMMENT;
        return out;
    }
    out.text_end = find_text_end(line, out.indent, bytes);
    if (line[out.indent] == '[' && line[out.text_end - 1] == ']') {
        out.kind = INI_SECTION;
        out.name_start = skip_blanks(line, out.indent + 1, out.text_end - 1);
        out.name_end = trim_blanks(line, out.name_start, out.text_end - 1);
    } else if (out.indent > 0 && !looks_like_key(line, out.indent, out.text_end)) {
        out.kind = INI_MORE;
        out.value_start = out.indent;
        out.value_end = out.text_end;
    } else if (line[out.indent] != '[') {
        scan_key(line, &out);
    }
    return out;
}

/* ---- all lines, through inih ---- */

enum piece { PIECE_KEY, PIECE_MORE, PIECE_JOINED }; /* how the line that inih has in hand goes on from the one before */

struct state {
    const struct ini_reader *reader;
    const char *at, *end;     /* unread bytes */
    int line;                 /* number of the line in hand */
    const char *rest;         /* of a long line: what inih has not got yet */
    size_t rest_bytes;
    enum piece piece;
    bool may_continue;        /* there is a value above in this section */
    bool pending, overlong;   /* a value is being collected */
    int pending_line;
    char heading[INI_WORD + 4]; /* a section as inih gets it: without blanks */
    char section[INI_WORD + 2], key[INI_WORD + 2];
    char value[INI_LINE + 1];
    size_t value_bytes;
};

static void report(struct state *state, const char *fault)
{
    state->reader->fault_cb(fault, state->line, state->reader->arg);
}

static void flush_value(struct state *state)
{
    if (state->pending && !state->overlong)
        state->reader->value_cb(state->section, state->key, state->value, state->pending_line, state->reader->arg);
    state->pending = false;
}

static void append_value(struct state *state, const char *text, bool blank_between)
{
    size_t count = strlen(text), blank = blank_between && state->value_bytes > 0;
    if (state->overlong || !state->pending)
        return;
    if (state->value_bytes + blank + count > INI_LINE) {
        state->overlong = true;
        report(state, "the value is longer than 4096 bytes with the lines that continue it");
        return;
    }
    if (blank)
        state->value[state->value_bytes++] = ' ';
    memcpy(state->value + state->value_bytes, text, count + 1);
    state->value_bytes += count;
}

/* inih's word: a repeated name is the continuation that we handed it. (The packaged library passes a line number that its
 * header does not declare; ours is right and is used.) */
static int take_value(void *arg, const char *section, const char *key, const char *value)
{
    struct state *state = arg;
    if (state->piece == PIECE_KEY) {
        flush_value(state);
        snprintf(state->section, sizeof state->section, "%s", section);
        snprintf(state->key, sizeof state->key, "%s", key);
        state->pending = true;
        state->overlong = false;
        state->pending_line = state->line;
        state->value_bytes = 0;
        state->value[0] = '\0';
    }
    append_value(state, value ? value : "", state->piece == PIECE_MORE);
    return 1;
}

/* What is wrong with the raw bytes of a line, or NULL. */
static const char *find_fault(const char *line, size_t bytes)
{
    if (bytes > INI_LINE)
        return "the line is longer than 4096 bytes";
    if (memchr(line, '\0', bytes))
        return "the line has a NUL byte: this is not a text file";
    for (size_t at = 0, step; at < bytes; at += step) {
        step = line[at] == '\t' ? 1 : text_character(line + at, bytes - at);
        if (step == 0 && ((unsigned char)line[at] < 0x20 || line[at] == 0x7f))
            return "the line has a control character";
        if (step == 0)
            return "the line is not plain UTF-8 text";
    }
    return NULL;
}

static const char *find_broken(const char *line, const struct ini_line *parts)
{
    size_t name = parts->name_end - parts->name_start;
    if (parts->kind == INI_BROKEN)
        return line[parts->indent] == '[' ? "a section must be alone on its line, as in [mask]"
               : name == 0                ? "there is no name before the '='"
                                          : "there is no '=' in this line; a setting is written as key = value";
    if (name > INI_WORD)
        return parts->kind == INI_SECTION ? "the section's name is longer than 48 bytes" : "the key is longer than 48 bytes";
    if (parts->kind == INI_SECTION && memchr(line + parts->name_start, ']', name))
        return "a section must be alone on its line, as in [mask]";
    return NULL;
}

/* The next line as inih may have it: whole, or nothing when it is a comment or has a fault. */
static void begin_line(struct state *state)
{
    const char *line = state->at;
    const char *newline = memchr(line, '\n', (size_t)(state->end - line));
    size_t bytes = newline ? (size_t)(newline - line) : (size_t)(state->end - line);
    state->at = newline ? newline + 1 : state->end;
    state->line++;
    state->rest = line;
    state->rest_bytes = 0;
    if (state->line == 1 && bytes >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
        bytes -= 3;
    }
    if (bytes > 0 && line[bytes - 1] == '\r')
        bytes--;

    const char *fault = find_fault(line, bytes);
    struct ini_line parts = {.kind = INI_BLANK};
    if (!fault) {
        parts = ini_scan(line, bytes);
        fault = find_broken(line, &parts);
        if (!fault && parts.kind == INI_MORE && !state->may_continue)
            fault = "the line is indented as if to continue a value, and there is none above it";
    }
    if (fault) {
        flush_value(state); /* complaints come in the order of lines */
        report(state, fault);
        return;
    }
    if (parts.kind == INI_BLANK || parts.kind == INI_COMMENT)
        return;
    size_t from = parts.kind == INI_MORE ? parts.indent - 1 : parts.indent; /* inih continues what is indented */
    state->rest = line + from;
    state->rest_bytes = parts.text_end - from;
    state->piece = parts.kind == INI_MORE ? PIECE_MORE : PIECE_KEY;
    state->may_continue = parts.kind != INI_SECTION;
    if (parts.kind == INI_SECTION) {
        char name[INI_WORD + 1];
        snprintf(name, sizeof name, "%.*s", (int)(parts.name_end - parts.name_start), line + parts.name_start);
        state->rest = state->heading;
        state->rest_bytes = (size_t)snprintf(state->heading, sizeof state->heading, "[%s]", name);
        flush_value(state);
        state->reader->section_cb(name, state->line, state->reader->arg);
    }
}

/* Neither piece of a cut may begin or end with what inih trims or takes for a comment, nor tear a character. */
static size_t choose_cut(const char *text, size_t most)
{
    size_t cut = most;
    while (cut > most / 2 && (is_blank(text[cut - 1]) || is_blank(text[cut]) || text[cut] == ';' || text[cut] == '#' ||
                              ((unsigned char)text[cut] & 0xc0) == 0x80))
        cut--;
    return cut > most / 2 ? cut : 0;
}

static char *read_line(char *out, int size, void *arg)
{
    struct state *state = arg;
    bool begun = state->rest_bytes == 0;
    if (begun) {
        if (state->at == state->end)
            return NULL;
        begin_line(state);
    } else {
        state->piece = PIECE_JOINED;
        *out++ = ' ';
        size--;
    }
    BUG_IF(size < 2 * INI_WORD);
    size_t room = (size_t)size - 2, count = state->rest_bytes; /* '\n' and NUL */
    if (count > room)
        count = choose_cut(state->rest, room);
    if (count == 0 && state->rest_bytes > 0) {
        report(state, "the line has too many blanks in a row");
        state->rest_bytes = 0;
        state->overlong |= state->piece != PIECE_KEY;
    }
    memcpy(out, state->rest, count);
    out[count] = '\n';
    out[count + 1] = '\0';
    state->rest += count;
    state->rest_bytes -= count;
    return begun ? out : out - 1;
}

void ini_read_bytes(const uint8_t *bytes, size_t count, const struct ini_reader *reader)
{
    struct state *state = mem_new(sizeof *state);
    state->reader = reader;
    state->at = (const char *)bytes;
    state->end = state->at + count;
    if (ini_parse_stream(read_line, state, take_value, state) != 0) /* read_line lets nothing through that could fail */
        report(state, "the line cannot be understood");
    flush_value(state);
    mem_free(state);
}

int ini_read_file(const char *path, const struct ini_reader *reader, struct why *why)
{
    uint8_t *bytes;
    size_t count;
    int err = file_read(path, INI_FILE, &bytes, &count, why);
    if (err)
        return err;
    ini_read_bytes(bytes, count, reader);
    mem_free(bytes);
    return 0;
}
