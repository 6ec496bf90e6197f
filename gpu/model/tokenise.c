#include "gpu/model/tokenise.h"

#include <inttypes.h>
#include <pthread.h>

#include "gpu/model/text_block.h"
#include "gpu/model/token_file.h"
#include "ssh/base/mem.h"

#define REASONS_MAX 8 /* bad lines of one block that are told in words */

struct bad_line {
    uint64_t line;
    char reason[200];
};

/* A block on its way: filled by the caller's thread, encoded by one of the others, taken and used again by the caller's. */
struct work {
    struct text_block block;
    bool done;
    struct token_list ids;
    uint8_t *marks;
    size_t marks_room;
    struct tokenise_totals totals;
    struct bad_line bad[REASONS_MAX];
    int err;
    struct why why;
};

/* A row of counters that only grow: submitted ≥ taken by a thread ≥ delivered, at most `count` apart. */
struct crew {
    const struct tokenise *order;
    struct tokenise_totals *totals;
    struct work *works;
    size_t count;
    pthread_mutex_t lock;
    pthread_cond_t submitted_one, done_one;
    uint64_t submitted, taken, delivered;
    bool ends;
};

/* ---- one block, on a thread of its own ---- */

static void mark(struct work *work, size_t from, uint8_t marks)
{
    if (work->ids.count > work->marks_room) {
        work->marks_room = 2 * work->ids.count;
        work->marks = mem_grow(work->marks, work->marks_room, 1);
    }
    if (work->ids.count > from)
        memset(work->marks + from, marks, work->ids.count - from);
}

static int encode_run(struct encoder *encoder, struct work *work, const void *text, size_t bytes, unsigned flags,
                      bool learned, struct why *why)
{
    size_t from = work->ids.count;
    int err = encoder_encode(encoder, text, bytes, flags, &work->ids, why);
    if (err == 0)
        mark(work, from, learned ? TOKEN_LEARNED : 0);
    return err;
}

static void end_document(const struct tokenise *order, struct encoder *encoder, struct work *work, bool end_token,
                         bool learned)
{
    uint32_t end = tokenizer_end(order->tokenizer);
    size_t from = work->ids.count;
    encoder_encode(encoder, "", 0, ENCODE_AFTER, &work->ids, NULL);
    if (end_token && end != TOKENIZER_NONE && (work->ids.count == 0 || work->ids.ids[work->ids.count - 1] != end))
        token_list_add(&work->ids, end);
    mark(work, from, learned ? TOKEN_LEARNED : 0);
}

static void begin_document(struct encoder *encoder, struct work *work)
{
    encode_run(encoder, work, "", 0, ENCODE_BEFORE, false, NULL);
    work->totals.documents++;
}

static int encode_text(const struct tokenise *order, struct encoder *encoder, struct work *work)
{
    const struct text_block *block = &work->block;
    if (block->first)
        begin_document(encoder, work);
    int err = encode_run(encoder, work, block->text, block->bytes, block->first ? 0 : ENCODE_CONTINUE, true, &work->why);
    if (err == 0 && block->last)
        end_document(order, encoder, work, true, true);
    if (err == 0 && block->first && work->ids.count)
        work->marks[0] |= TOKEN_BEGINS;
    return err;
}

static int encode_document(const struct tokenise *order, struct encoder *encoder, struct work *work,
                           const struct document *document, struct why *why)
{
    size_t from = work->ids.count, at = 0;
    const char *text = (const char *)buf_peek(&document->text);
    int err = 0;
    begin_document(encoder, work);
    for (size_t i = 0; i < document->count && err == 0; i++) {
        const struct document_run *run = &document->runs[i];
        err = encode_run(encoder, work, text + at, run->end - at, i ? ENCODE_CONTINUE : 0, run->learned, why);
        at = run->end;
    }
    if (err == 0)
        end_document(order, encoder, work, document->end_token, document->runs[document->count - 1].learned);
    if (err == 0 && work->ids.count > from)
        work->marks[from] |= TOKEN_BEGINS;
    if (err) {
        work->ids.count = from;
        work->totals.documents--;
    }
    return err;
}

static int bad_line(const struct tokenise *order, struct work *work, uint64_t line, const char *reason)
{
    if (!order->skip_bad_lines)
        return why_set(&work->why, ERR_INVALID, "%s:%" PRIu64 ": %s", work->block.path, line, reason);
    if (work->totals.bad_lines < REASONS_MAX) {
        struct bad_line *bad = &work->bad[work->totals.bad_lines];
        bad->line = line;
        snprintf(bad->reason, sizeof bad->reason, "%s", reason);
    }
    work->totals.bad_lines++;
    return 0;
}

static bool is_blank(const char *line, size_t bytes)
{
    while (bytes && memchr(" \t\r", *line, 3)) {
        line++;
        bytes--;
    }
    return bytes == 0;
}

static int encode_lines(const struct tokenise *order, struct encoder *encoder, struct work *work, struct document *document)
{
    const struct text_block *block = &work->block;
    int err = 0;
    if (block->overlong)
        return bad_line(order, work, block->line, "the line is too long");
    uint64_t line = block->line;
    for (size_t at = 0; at < block->bytes && err == 0; line++) {
        const char *text = block->text + at, *end = memchr(text, '\n', block->bytes - at);
        size_t bytes = end ? (size_t)(end - text) : block->bytes - at;
        struct why why = {0};
        at += bytes + 1;
        if (is_blank(text, bytes))
            continue;
        err = document_read(text, bytes, order->template, document, &why);
        if (err == 0)
            err = encode_document(order, encoder, work, document, &why);
        if (err)
            err = bad_line(order, work, line, why.text);
    }
    return err;
}

static void encode(const struct tokenise *order, struct encoder *encoder, struct work *work, struct document *document)
{
    uint64_t lost = encoder_lost(encoder);
    work->ids.count = 0;
    work->totals = (struct tokenise_totals){.bytes = work->block.source_bytes};
    work->why = (struct why){0};
    work->err = work->block.lines ? encode_lines(order, encoder, work, document) : encode_text(order, encoder, work);
    work->totals.tokens = work->ids.count;
    for (size_t i = 0; i < work->ids.count; i++)
        work->totals.learned += work->marks[i] & TOKEN_LEARNED;
    work->totals.lost = encoder_lost(encoder) - lost;
}

static void *crew_main(void *arg)
{
    struct crew *crew = arg;
    struct encoder *encoder = encoder_new(crew->order->tokenizer);
    struct document document;
    document_init(&document);
    pthread_mutex_lock(&crew->lock);
    for (;;) {
        while (!crew->ends && crew->taken == crew->submitted)
            pthread_cond_wait(&crew->submitted_one, &crew->lock);
        if (crew->taken == crew->submitted)
            break;
        struct work *work = &crew->works[crew->taken++ % crew->count];
        pthread_mutex_unlock(&crew->lock);
        encode(crew->order, encoder, work, &document);
        pthread_mutex_lock(&crew->lock);
        work->done = true;
        pthread_cond_signal(&crew->done_one);
    }
    pthread_mutex_unlock(&crew->lock);
    document_clear(&document);
    encoder_free(encoder);
    return NULL;
}

/* ---- the caller's thread ---- */

static void add_totals(struct tokenise_totals *to, const struct tokenise_totals *from)
{
    to->bytes += from->bytes;
    to->tokens += from->tokens;
    to->learned += from->learned;
    to->documents += from->documents;
    to->bad_lines += from->bad_lines;
    to->lost += from->lost;
}

/* The oldest block that is under way. */
static int deliver(struct crew *crew, struct why *why)
{
    const struct tokenise *order = crew->order;
    struct work *work = &crew->works[crew->delivered % crew->count];
    pthread_mutex_lock(&crew->lock);
    while (!work->done)
        pthread_cond_wait(&crew->done_one, &crew->lock);
    work->done = false;
    crew->delivered++;
    pthread_mutex_unlock(&crew->lock);
    for (uint64_t i = 0; order->bad_line_cb && i < work->totals.bad_lines; i++)
        order->bad_line_cb(work->block.path, i < REASONS_MAX ? work->bad[i].line : 0,
                           i < REASONS_MAX ? work->bad[i].reason : "", order->arg);
    if (work->err)
        return why_set(why, work->err, "%s", work->why.text);
    add_totals(crew->totals, &work->totals);
    int err = work->ids.count ? order->take_cb(work->ids.ids, work->marks, work->ids.count, order->arg, why) : 0;
    if (err == 0 && order->progress_cb)
        order->progress_cb(crew->totals->bytes, order->arg);
    return err;
}

static void submit(struct crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    crew->submitted++;
    pthread_cond_signal(&crew->submitted_one);
    pthread_mutex_unlock(&crew->lock);
}

static int read_all(struct crew *crew, const struct sources *sources, struct why *why)
{
    int err = 0;
    for (size_t i = 0; i < sources->count && err == 0; i++) {
        struct text_reader *reader = NULL;
        err = text_reader_open(&sources->rows[i], &reader, why);
        bool more = err == 0;
        while (more && err == 0) {
            if (crew->submitted - crew->delivered == crew->count)
                err = deliver(crew, why);
            if (err == 0)
                err = text_reader_next(reader, &crew->works[crew->submitted % crew->count].block, &more, why);
            if (err == 0 && more)
                submit(crew);
        }
        text_reader_close(reader);
    }
    while (err == 0 && crew->delivered < crew->submitted)
        err = deliver(crew, why);
    return err;
}

int tokenise_sources(const struct tokenise *tokenise, const struct sources *sources, struct tokenise_totals *totals,
                     struct why *why)
{
    size_t threads = (size_t)tokenise->threads;
    struct crew crew = {.order = tokenise, .totals = totals, .count = 2 * threads + 1};
    BUG_IF(tokenise->threads < 1);
    *totals = (struct tokenise_totals){0};
    int err = document_check(tokenise->template, tokenise->tokenizer, why);
    if (err)
        return err;
    crew.works = mem_array(crew.count, sizeof *crew.works);
    pthread_t *ids = mem_array(threads, sizeof *ids);
    pthread_mutex_init(&crew.lock, NULL);
    pthread_cond_init(&crew.submitted_one, NULL);
    pthread_cond_init(&crew.done_one, NULL);
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, crew_main, &crew) != 0)
            BUG("no thread can be started");
    err = read_all(&crew, sources, why);
    pthread_mutex_lock(&crew.lock);
    crew.ends = true;
    pthread_cond_broadcast(&crew.submitted_one);
    pthread_mutex_unlock(&crew.lock);
    for (size_t i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    for (size_t i = 0; i < crew.count; i++) {
        text_block_clear(&crew.works[i].block);
        token_list_clear(&crew.works[i].ids);
        mem_free(crew.works[i].marks);
    }
    pthread_cond_destroy(&crew.done_one);
    pthread_cond_destroy(&crew.submitted_one);
    pthread_mutex_destroy(&crew.lock);
    mem_free(crew.works);
    mem_free(ids);
    return err;
}
