#include "gpu/model/corpus.h"

#include <inttypes.h>
#include <stdarg.h>

#include "gpu/model/shards.h"
#include "gpu/model/tokenise.h"
#include "ssh/base/file.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"

#define TEXT_MAX ((uint64_t)4 << 30)
#define TOKENISED_MAX ((uint64_t)1 << 30) /* bytes of text that are tokenised into memory */

struct part { /* a token file */
    struct token_file *file;
    uint64_t first, count;
};

struct corpus {
    uint64_t count;
    size_t files;
    bool masked;
    uint32_t vocabulary;
    /* one of three */
    uint8_t *text;        /* bytes; the first `count` */
    uint32_t *ids;        /* with a mark for each */
    uint8_t *marks;
    size_t room;
    struct part *parts;
    size_t part_count;
    /* ends of documents, for text and ids, rising */
    uint64_t *ends;
    size_t end_count, end_room;
};

static void add_end(struct corpus *corpus, uint64_t end)
{
    if (corpus->end_count == corpus->end_room) {
        corpus->end_room = corpus->end_room ? 2 * corpus->end_room : 256;
        corpus->ends = mem_grow(corpus->ends, corpus->end_room, sizeof *corpus->ends);
    }
    corpus->ends[corpus->end_count++] = end;
}

/* ---- bytes of text ---- */

static int read_source(const struct source *source, struct corpus *corpus, struct why *why)
{
    uint8_t *text;
    size_t bytes;
    int err = file_read(source->path, (size_t)TEXT_MAX, &text, &bytes, why);
    if (err)
        return err;
    if (bytes > source->bytes) /* it grew since it was counted */
        bytes = source->bytes;
    memcpy(corpus->text + corpus->count, text, bytes);
    mem_free(text);
    corpus->count += bytes;
    add_end(corpus, corpus->count);
    return 0;
}

static int open_text(const struct sources *sources, struct corpus *corpus, struct why *why)
{
    if (sources->bytes > TEXT_MAX)
        return why_set(why, ERR_INVALID, "data.path: more than %" PRIu64 " bytes of text in %zu files; give fewer", TEXT_MAX,
                       sources->count);
    if (sources->bytes == 0)
        return why_set(why, ERR_INVALID, "data.path: the text of %zu files is empty", sources->count);
    corpus->text = mem_large((size_t)sources->bytes);
    if (!corpus->text)
        return why_set(why, ERR_MEMORY, "data.path: no memory for %" PRIu64 " bytes of text", sources->bytes);
    int err = 0;
    for (size_t i = 0; i < sources->count && err == 0; i++)
        err = read_source(&sources->rows[i], corpus, why);
    return err;
}

/* ---- text and JSON lines, tokenised into memory ---- */

struct taking {
    struct corpus *corpus;
    const struct data_settings *settings;
    uint64_t bad_lines;
};

static int take_tokens(const uint32_t *ids, const uint8_t *marks, size_t count, void *arg, struct why *why)
{
    struct corpus *corpus = ((struct taking *)arg)->corpus;
    size_t wanted = (size_t)corpus->count + count;
    if (wanted > corpus->room) {
        corpus->room = wanted + wanted / 2;
        corpus->ids = mem_grow(corpus->ids, corpus->room, sizeof *corpus->ids);
        corpus->marks = mem_grow(corpus->marks, corpus->room, 1);
    }
    for (size_t i = 0; i < count; i++) {
        if (corpus->vocabulary && ids[i] >= corpus->vocabulary)
            return why_set(why, ERR_INVALID, "data.tokenizer: it makes token %" PRIu32 ", but the model has %" PRIu32,
                           ids[i], corpus->vocabulary);
        if (marks[i] & TOKEN_BEGINS && corpus->count + i > 0)
            add_end(corpus, corpus->count + i);
        corpus->masked |= !(marks[i] & TOKEN_LEARNED);
    }
    memcpy(corpus->ids + corpus->count, ids, count * sizeof *ids);
    memcpy(corpus->marks + corpus->count, marks, count);
    corpus->count += count;
    return 0;
}

static void tell(const struct data_settings *settings, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void tell(const struct data_settings *settings, const char *format, ...)
{
    char text[700];
    va_list arguments;
    if (!settings->tell_cb)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    settings->tell_cb(text, settings->arg);
}

static void take_bad_line(const char *path, uint64_t line, const char *reason, void *arg)
{
    struct taking *taking = arg;
    if (line && taking->bad_lines++ < 10)
        tell(taking->settings, "%s:%" PRIu64 ": skipped: %s", path, line, reason);
}

static int open_tokenised(const struct data_settings *settings, const struct sources *sources, struct corpus *corpus,
                          struct why *why)
{
    struct tokenizer *bytes = settings->tokenizer ? NULL : tokenizer_new_bytes();
    struct taking taking = {.corpus = corpus, .settings = settings};
    struct tokenise order = {
        .tokenizer = bytes ? bytes : settings->tokenizer,
        .template = settings->template,
        .skip_bad_lines = settings->skip_bad_lines,
        .threads = settings->threads > 0 ? settings->threads : 1,
        .take_cb = take_tokens,
        .bad_line_cb = take_bad_line,
        .arg = &taking,
    };
    struct tokenise_totals totals;
    int err = sources->bytes > TOKENISED_MAX
                  ? why_set(why, ERR_INVALID,
                            "data.path: %" PRIu64 " bytes to tokenise; more than %" PRIu64 " must be prepared first: "
                            "kedge-worker data prepare", sources->bytes, TOKENISED_MAX)
                  : tokenise_sources(&order, sources, &totals, why);
    tokenizer_close(bytes);
    if (err)
        return err;
    add_end(corpus, corpus->count);
    if (totals.bad_lines)
        tell(settings, "data.path: %" PRIu64 " bad lines were skipped", totals.bad_lines);
    if (totals.lost)
        tell(settings, "data.path: %" PRIu64 " bytes are not in the tokenizer's vocabulary and were left out", totals.lost);
    if (totals.learned == 0)
        return why_set(why, ERR_INVALID, "data.path: %zu files have nothing to learn", sources->count);
    return 0;
}

/* ---- token files ---- */

struct adding {
    struct corpus *corpus;
    const struct data_settings *settings;
};

static int add_file(const char *path, void *arg, struct why *why)
{
    const struct adding *adding = arg;
    struct corpus *corpus = adding->corpus;
    struct token_file *file;
    int err = token_file_open(path, &file, why);
    if (err)
        return err;
    uint64_t made_with = token_file_tokenizer(file);
    uint64_t ours = adding->settings->tokenizer ? tokenizer_hash(adding->settings->tokenizer) : hash_bytes("bytes", 5);
    if (made_with && made_with != ours) {
        token_file_close(file);
        return why_set(why, ERR_INVALID, "%s was prepared with another tokenizer than data.tokenizer says; prepare it again",
                       path);
    }
    corpus->parts = mem_grow(corpus->parts, corpus->part_count + 1, sizeof *corpus->parts);
    corpus->parts[corpus->part_count++] = (struct part){file, corpus->count, token_file_count(file)};
    corpus->count += token_file_count(file);
    corpus->masked |= token_file_masked(file);
    return 0;
}

static int open_files(const struct data_settings *settings, const struct sources *sources, struct corpus *corpus,
                      struct why *why)
{
    struct adding adding = {corpus, settings};
    int err = 0;
    for (size_t i = 0; i < sources->count && err == 0; i++)
        err = sources->rows[i].kind == SOURCE_PREPARED ? shards_list(sources->rows[i].path, add_file, &adding, why)
                                                       : add_file(sources->rows[i].path, &adding, why);
    if (err == 0 && corpus->count == 0)
        err = why_set(why, ERR_INVALID, "data.path: there is no token in %zu files", sources->count);
    return err;
}

/* ---- all of them ---- */

static int open_kind(const struct data_settings *settings, const struct sources *sources, struct corpus *corpus,
                     struct why *why)
{
    size_t texts = 0, ready = 0;
    for (size_t i = 0; i < sources->count; i++) {
        texts += sources->rows[i].kind == SOURCE_TEXT;
        ready += sources->rows[i].kind == SOURCE_TOKENS || sources->rows[i].kind == SOURCE_PREPARED;
    }
    if (ready && ready < sources->count)
        return why_set(why, ERR_INVALID, "data.path: token files and text cannot be mixed; prepare the text");
    if (ready)
        return open_files(settings, sources, corpus, why);
    return texts == sources->count && !settings->tokenizer ? open_text(sources, corpus, why)
                                                           : open_tokenised(settings, sources, corpus, why);
}

int corpus_open(const struct data_settings *settings, struct corpus **corpus, struct why *why)
{
    struct sources sources = {0};
    struct corpus *new = mem_new(sizeof *new);
    new->vocabulary = settings->vocabulary;
    int err = sources_find(settings->paths, &sources, why);
    if (err == 0) {
        new->files = sources.count;
        err = open_kind(settings, &sources, new, why);
    }
    sources_clear(&sources);
    if (err)
        corpus_close(new);
    else
        *corpus = new;
    return err;
}

void corpus_close(struct corpus *corpus)
{
    if (!corpus)
        return;
    for (size_t i = 0; i < corpus->part_count; i++)
        token_file_close(corpus->parts[i].file);
    mem_free(corpus->parts);
    mem_large_free(corpus->text);
    mem_free(corpus->ids);
    mem_free(corpus->marks);
    mem_free(corpus->ends);
    mem_free(corpus);
}

uint64_t corpus_count(const struct corpus *corpus)
{
    return corpus->count;
}

size_t corpus_files(const struct corpus *corpus)
{
    return corpus->files;
}

bool corpus_masked(const struct corpus *corpus)
{
    return corpus->masked;
}

/* ---- reading ---- */

static int read_parts(const struct corpus *corpus, uint64_t first, size_t count, uint32_t *ids, uint8_t *marks,
                      struct why *why)
{
    size_t low = 0, high = corpus->part_count;
    while (low + 1 < high) { /* the last part that begins at or before `first` */
        size_t middle = low + (high - low) / 2;
        if (corpus->parts[middle].first <= first)
            low = middle;
        else
            high = middle;
    }
    int err = 0;
    for (size_t done = 0; done < count && err == 0; low++) {
        const struct part *part = &corpus->parts[low];
        uint64_t from = first + done - part->first, left = part->count - from;
        size_t take = count - done < left ? count - done : (size_t)left;
        err = token_file_read(part->file, from, take, corpus->vocabulary ? corpus->vocabulary : UINT32_MAX, ids + done,
                              marks + done, why);
        if (err == 0 && take && from == 0)
            marks[done] |= TOKEN_BEGINS;
        done += take;
    }
    return err;
}

/* The index of the first end behind a place. */
static size_t end_behind(const struct corpus *corpus, uint64_t place)
{
    size_t low = 0, high = corpus->end_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (corpus->ends[middle] <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void read_text(const struct corpus *corpus, uint64_t first, size_t count, uint32_t *ids, uint8_t *marks)
{
    for (size_t i = 0; i < count; i++)
        ids[i] = corpus->text[first + i];
    memset(marks, TOKEN_LEARNED, count);
    if (first == 0)
        marks[0] |= TOKEN_BEGINS;
    for (size_t end = first ? end_behind(corpus, first - 1) : 0;
         end < corpus->end_count && corpus->ends[end] < first + count; end++)
        marks[corpus->ends[end] - first] |= TOKEN_BEGINS;
}

int corpus_read(const struct corpus *corpus, uint64_t first, size_t count, uint32_t *ids, uint8_t *marks, struct why *why)
{
    BUG_IF(first > corpus->count || count > corpus->count - first || count == 0);
    if (corpus->parts)
        return read_parts(corpus, first, count, ids, marks, why);
    if (corpus->text) {
        read_text(corpus, first, count, ids, marks);
    } else {
        memcpy(ids, corpus->ids + first, count * sizeof *ids);
        memcpy(marks, corpus->marks + first, count);
    }
    return 0;
}

static void nearer(const struct corpus *corpus, uint64_t place, uint64_t end, uint64_t *reach, uint64_t *nearest)
{
    uint64_t distance = place < end ? end - place : place - end;
    if (end > 0 && end < corpus->count && distance <= *reach) {
        *reach = distance;
        *nearest = end;
    }
}

int corpus_nearest_end(const struct corpus *corpus, uint64_t place, uint64_t reach, uint64_t *end, struct why *why)
{
    uint64_t least = place > reach ? place - reach : 0;
    *end = place;
    for (size_t i = least ? end_behind(corpus, least - 1) : 0; i < corpus->end_count && corpus->ends[i] <= place + reach;
         i++)
        nearer(corpus, place, corpus->ends[i], &reach, end);
    int err = 0;
    for (size_t i = 0; i < corpus->part_count && err == 0; i++) {
        const struct part *part = &corpus->parts[i];
        uint64_t here = place > part->first ? place - part->first : 0, before, behind;
        nearer(corpus, place, part->first, &reach, end);
        err = token_file_documents_around(part->file, here < part->count ? here : part->count, &before, &behind, why);
        if (err == 0) {
            nearer(corpus, place, part->first + before, &reach, end);
            nearer(corpus, place, part->first + behind, &reach, end);
        }
    }
    return err;
}
