/*
 * Pre-tokenizing: a text is cut into the pieces that BPE never merges across. A step finds matches of a pattern in every
 * piece that the step before left, and makes new pieces of matches and gaps.
 *
 * Patterns are Oniguruma's in the reference and PCRE2's here (tokenizer_pattern.c sees to it that they mean the same). A
 * run of bytes that is not UTF-8 is matched by nothing and is a gap of its own; a match sees the run of characters around
 * it and nothing else.
 */
#include "gpu/model/tokenizer_pattern.h"

#include <inttypes.h>

#include "gpu/model/tokenizer_inside.h"
#include "gpu/model/utf8.h"
#include "ssh/base/mem.h"

#define SUPPORTED "ByteLevel, Split, Digits, Metaspace, Sequence"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

enum behavior { ISOLATED, REMOVED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };

struct split {
    struct pattern *pattern; /* NULL: do not cut */
    enum behavior behavior;
    bool invert;
    char *space;             /* Metaspace: what stands for a space; NULL: spaces stay */
    char *prefix;            /* put in front of a piece that does not begin with it; NULL: nothing */
    bool prefix_first_only;
};

struct splits {
    struct split rows[TOKENIZER_STEPS];
    size_t count;
    bool byte_level;
};

struct split_scratch {
    struct pattern_scratch *pattern;
    struct pieces pieces[2], matches; /* in matches, `first` says that it is a match and no gap */
    struct buf buffers[2];
};

/* ---- reading ---- */

static int add_split(const struct tokenizer_place *at, const json_t *value, struct split *split, struct why *why)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const json_t *pattern = json_object_get(value, "pattern"), *regex = json_object_get(pattern, "Regex");
    const char *behavior = json_string_value(json_object_get(value, "behavior")), *text;
    size_t i = 0;
    int err = tokenizer_bool(at, value, "invert", 0, &split->invert, why);
    if (err)
        return err;
    if (!behavior)
        return why_set(why, ERR_INVALID, "%s: %s: Split without a behavior", at->label, at->part);
    while (i < sizeof names / sizeof *names && strcmp(names[i], behavior) != 0)
        i++;
    if (i == sizeof names / sizeof *names)
        return tokenizer_refuse(at, "Split with behavior", behavior,
                                "Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous", why);
    split->behavior = (enum behavior)i;
    if (json_is_string(regex))
        return pattern_new_regex(at, json_string_value(regex), json_string_length(regex), &split->pattern, why);
    err = tokenizer_text(at, pattern, "String", NULL, &text, why);
    if (err == 0 && !*text)
        err = why_set(why, ERR_INVALID, "%s: %s: Split at an empty text", at->label, at->part);
    return err ? err : pattern_new_text(text, &split->pattern);
}

static int add_byte_level(const struct tokenizer_place *at, const json_t *value, struct split *split, struct why *why)
{
    bool space, regex;
    int err = tokenizer_bool(at, value, "add_prefix_space", 1, &space, why);
    if (err == 0)
        err = tokenizer_bool(at, value, "use_regex", 1, &regex, why);
    if (err == 0 && regex)
        err = pattern_new_regex(at, GPT2, strlen(GPT2), &split->pattern, why);
    if (err == 0 && space)
        split->prefix = mem_text(" ");
    return err;
}

static int add_digits(const struct tokenizer_place *at, const json_t *value, struct split *split, struct why *why)
{
    bool single;
    int err = tokenizer_bool(at, value, "individual_digits", 0, &single, why);
    const char *digits = single ? "\\p{N}" : "\\p{N}+";
    return err ? err : pattern_new_regex(at, digits, strlen(digits), &split->pattern, why);
}

static int add_metaspace(const struct tokenizer_place *at, const json_t *value, struct split *split, struct why *why)
{
    const char *mark, *scheme;
    bool cut, prefix;
    int err = tokenizer_text(at, value, "replacement", NULL, &mark, why);
    if (err == 0 && (!*mark || utf8_length((const uint8_t *)mark, strlen(mark)) != strlen(mark)))
        err = why_set(why, ERR_INVALID, "%s: %s: Metaspace: replacement is not one character", at->label, at->part);
    if (err == 0)
        err = tokenizer_bool(at, value, "split", 1, &cut, why);
    if (err == 0) /* older files have this instead of a scheme */
        err = tokenizer_bool(at, value, "add_prefix_space", 1, &prefix, why);
    if (err == 0)
        err = tokenizer_text(at, value, "prepend_scheme", prefix ? "always" : "never", &scheme, why);
    if (err)
        return err;
    split->space = mem_text(mark);
    if (strcmp(scheme, "always") == 0 || strcmp(scheme, "first") == 0) {
        split->prefix = mem_text(mark);
        split->prefix_first_only = *scheme == 'f';
    } else if (strcmp(scheme, "never") != 0) {
        return tokenizer_refuse(at, "Metaspace with prepend_scheme", scheme, "always, first, never", why);
    }
    split->behavior = MERGED_WITH_NEXT;
    return cut ? pattern_new_text(mark, &split->pattern) : 0;
}

static int add_step(const struct tokenizer_place *at, const char *type, const json_t *value, void *arg, struct why *why)
{
    static const struct {
        const char *type;
        int (*add)(const struct tokenizer_place *at, const json_t *value, struct split *split, struct why *why);
    } kinds[] = {{"Split", add_split}, {"ByteLevel", add_byte_level}, {"Digits", add_digits}, {"Metaspace", add_metaspace}};
    struct splits *splits = arg;
    if (splits->byte_level) /* it writes bytes in another alphabet, which later steps would see */
        return tokenizer_refuse(at, "a step behind ByteLevel", type, "ByteLevel as the last one", why);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].type, type) != 0)
            continue;
        splits->byte_level = kinds[i].add == add_byte_level;
        return kinds[i].add(at, value, &splits->rows[splits->count++], why);
    }
    return tokenizer_refuse(at, "type", type, SUPPORTED, why);
}

int split_load(const char *label, const json_t *json, struct splits **splits, struct why *why)
{
    struct tokenizer_place at = {label, "pre_tokenizer"};
    struct splits *new = mem_new(sizeof *new);
    int err = tokenizer_each(&at, json_object_get(json, at.part), "pretokenizers", add_step, new, why);
    if (err)
        split_free(new);
    else
        *splits = new;
    return err;
}

void split_free(struct splits *splits)
{
    for (size_t i = 0; splits && i < splits->count; i++) {
        pattern_free(splits->rows[i].pattern);
        mem_free(splits->rows[i].space);
        mem_free(splits->rows[i].prefix);
    }
    mem_free(splits);
}

bool split_byte_level(const struct splits *splits)
{
    return splits->byte_level;
}

/* ---- pieces ---- */

struct split_scratch *split_scratch_new(void)
{
    struct split_scratch *scratch = mem_new(sizeof *scratch);
    scratch->pattern = pattern_scratch_new();
    for (int i = 0; i < 2; i++)
        buf_init(&scratch->buffers[i], TOKENIZER_TEXT_MAX);
    return scratch;
}

void split_scratch_free(struct split_scratch *scratch)
{
    if (!scratch)
        return;
    pattern_scratch_free(scratch->pattern);
    for (int i = 0; i < 2; i++) {
        buf_clear(&scratch->buffers[i]);
        mem_free(scratch->pieces[i].rows);
    }
    mem_free(scratch->matches.rows);
    mem_free(scratch);
}

static void add_piece(struct pieces *pieces, size_t start, size_t end, bool first)
{
    if (pieces->count == pieces->capacity) {
        pieces->capacity = pieces->capacity ? 2 * pieces->capacity : 256;
        pieces->rows = mem_grow(pieces->rows, pieces->capacity, sizeof *pieces->rows);
    }
    pieces->rows[pieces->count++] = (struct piece){(uint32_t)start, (uint32_t)end, first};
}

/* Metaspace and prefixes: the text is written anew, the pieces move with it. */
static int rewrite(const struct split *split, bool goes_on, const uint8_t *text, const struct pieces *from, struct buf *out,
                   struct pieces *to, struct why *why)
{
    size_t prefix = split->prefix ? strlen(split->prefix) : 0, space = split->space ? strlen(split->space) : 0;
    int err = 0;
    buf_consume(out, buf_used(out));
    for (size_t i = 0; i < from->count && err == 0; i++) {
        const struct piece *piece = &from->rows[i];
        const uint8_t *at = text + piece->start;
        size_t bytes = piece->end - piece->start, start = buf_used(out);
        bool there = (space && *at == ' ') || (bytes >= prefix && memcmp(at, split->prefix, prefix) == 0);
        if (prefix && !there && (!split->prefix_first_only || piece->first) && !(goes_on && i == 0))
            err = buf_put(out, split->prefix, prefix);
        while (bytes && err == 0) {
            const uint8_t *found = space ? memchr(at, ' ', bytes) : NULL;
            size_t plain = found ? (size_t)(found - at) : bytes;
            err = buf_put(out, at, plain);
            if (err == 0 && found)
                err = buf_put(out, split->space, space);
            at += plain + (found != NULL);
            bytes -= plain + (found != NULL);
        }
        add_piece(to, start, buf_used(out), piece->first);
    }
    return err ? why_set(why, err, "pre_tokenizer: the text grows beyond %zu bytes", out->max) : 0;
}

/* Matches and the gaps between them, in order; empty ones too, which only matter to what is merged with them. */
static int find_matches(const struct split *split, struct split_scratch *scratch, const uint8_t *text,
                        const struct piece *piece, struct why *why)
{
    size_t at = piece->start;
    scratch->matches.count = 0;
    while (at < piece->end) {
        bool valid, any = false;
        size_t run = utf8_run(text + at, piece->end - at, &valid), done = 0, start, end, from = 0;
        while (valid && from <= run) {
            int err = pattern_find(split->pattern, scratch->pattern, text + at, run, &from, &start, &end, why);
            if (err < 0)
                return err;
            if (err == 0)
                break;
            if (start == end && any && start == done) /* an empty one does not count right behind another */
                continue;
            any = true;
            if (start > done)
                add_piece(&scratch->matches, at + done, at + start, split->invert);
            add_piece(&scratch->matches, at + start, at + end, !split->invert);
            done = end;
        }
        if (run > done) /* what is no character is never removed */
            add_piece(&scratch->matches, at + done, at + run, valid && split->invert);
        at += run;
    }
    return 0;
}

static void keep_forward(enum behavior behavior, const struct pieces *matches, struct pieces *to)
{
    bool before = false;
    size_t own = to->count;
    for (size_t i = 0; i < matches->count; i++) {
        const struct piece *match = &matches->rows[i];
        bool joins =
            behavior == CONTIGUOUS ? match->first == before : behavior == MERGED_WITH_PREVIOUS && match->first && !before;
        if (behavior == REMOVED && match->first)
            continue;
        if (joins && to->count > own)
            to->rows[to->count - 1].end = match->end;
        else
            add_piece(to, match->start, match->end, false);
        before = match->first;
    }
}

static void keep_merged_with_next(const struct pieces *matches, struct pieces *to)
{
    size_t own = to->count;
    bool after = false;
    for (size_t i = matches->count; i-- > 0;) {
        const struct piece *match = &matches->rows[i];
        if (match->first && !after && to->count > own)
            to->rows[to->count - 1].start = match->start;
        else
            add_piece(to, match->start, match->end, false);
        after = match->first;
    }
    for (size_t low = own, high = to->count; low + 1 < high; low++) {
        struct piece swap = to->rows[--high];
        to->rows[high] = to->rows[low];
        to->rows[low] = swap;
    }
}

static int cut(const struct split *split, struct split_scratch *scratch, const uint8_t *text, const struct pieces *from,
               struct pieces *to, struct why *why)
{
    for (size_t i = 0; i < from->count; i++) {
        const struct piece *piece = &from->rows[i];
        size_t own = to->count, kept = own;
        int err = find_matches(split, scratch, text, piece, why);
        if (err)
            return err;
        if (split->behavior == MERGED_WITH_NEXT)
            keep_merged_with_next(&scratch->matches, to);
        else
            keep_forward(split->behavior, &scratch->matches, to);
        for (size_t k = own; k < to->count; k++) { /* without the empty ones */
            struct piece new = to->rows[k];
            new.first = piece->first && new.start == piece->start;
            if (new.end > new.start)
                to->rows[kept++] = new;
        }
        to->count = kept;
    }
    return 0;
}

int split_apply(const struct splits *splits, struct split_scratch *scratch, bool first, bool goes_on, const uint8_t **text,
                size_t bytes, const struct pieces **pieces, struct why *why)
{
    struct pieces *from = &scratch->pieces[0], *to = &scratch->pieces[1], *swap;
    int err = 0, rewrites = 0;
    from->count = 0;
    add_piece(from, 0, bytes, first);
    for (size_t i = 0; i < splits->count && err == 0; i++) {
        const struct split *split = &splits->rows[i];
        if (split->prefix || split->space) {
            to->count = 0;
            struct buf *out = &scratch->buffers[rewrites++ % 2];
            err = rewrite(split, goes_on, *text, from, out, to, why);
            *text = buf_peek(out);
            swap = from, from = to, to = swap;
        }
        if (split->pattern && err == 0) {
            to->count = 0;
            err = cut(split, scratch, *text, from, to, why);
            swap = from, from = to, to = swap;
        }
    }
    *pieces = from;
    return err;
}
