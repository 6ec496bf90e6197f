#include "ssh/session/upload.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/hash.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/session/compress.h"
#include "ssh/session/orders.h"
#include "ssh/session/sender.h"
#include "ssh/session/shell.h"
#include "ssh/session/source.h"
#include "ssh/session/sum.h"
#include "ssh/session/throughput.h"
#include "ssh/session/twin.h"
#include "ssh/session/units.h"

#define ORDER_UNITS 16                    /* most of one order */
#define SAMPLE_BYTES ((size_t)64 << 10)   /* says whether compressing an order pays */
#define CHECK_UNITS 16                    /* least that the host is told to hash: each time costs it a process or two */
#define NEAR_NS (20 * CLOCK_MS)           /* to a host that is nearer one stream is enough: more would wait there for the file */
#define SHORT_NS (400 * CLOCK_MS)         /* an order that took less is followed by a longer one */
#define LONG_NS (1600 * CLOCK_MS)
#define TICK_NS (500 * CLOCK_MS)
#define TWIN_BYTES ((uint64_t)32 << 20)   /* with less to go a second login is not worth it */
#define RATE_TICKS 6 /* the rate is over so many ticks */

/* A shell on the host that takes orders, in our session or in its twin. */
struct stream {
    struct upload *upload;
    struct sender *sender;
    struct twin *twin;
    uint64_t ordered_ns, units; /* units: the length of the next one */
    unsigned unanswered;        /* orders */
};

struct upload {
    struct loop *loop;
    struct session *session;
    char *remote, *prelude; /* prelude: what each command on the host begins with */
    struct upload_settings settings;
    struct upload_callbacks callbacks;
    void *arg;
    struct source source;
    enum upload_phase phase;
    struct loop_timer *timer;
    struct sum *sum; /* NULL until the look has said which one the host makes */
    enum digest_kind kind;
    char hash[DIGEST_HEX]; /* "" until it is known */
    char remote_hash[DIGEST_HEX];
    struct compress *compress; /* what the host can undo; NULL = nothing */
    bool has_part;             /* the host has a part of this very file, be it empty */
    struct units units;        /* of them, those that are there have arrived */
    uint64_t resumed_bytes;
    uint64_t sent_bytes;       /* that the road took for what arrived */
    struct throughput wire;    /* of the road */
    uint64_t checked_bytes;    /* the host was told to hash so many */
    struct stream streams[UPLOAD_STREAMS + 1]; /* and a twin */
    struct shell *checker;       /* hashes on the host what has arrived */
    unsigned stream_count;
    uint64_t moved_ns;           /* something arrived, or a phase began */
    uint64_t recent[RATE_TICKS]; /* what had arrived at the last ticks */
    unsigned ticks;
    bool restarted;
    bool twinned;                /* a twin was thought of */
};

const char *upload_phase_name(enum upload_phase phase)
{
    static const char *const names[] = {[UPLOAD_LOOKING] = "looking",
                                        [UPLOAD_COMPARING] = "comparing",
                                        [UPLOAD_SENDING] = "sending",
                                        [UPLOAD_VERIFYING] = "verifying",
                                        [UPLOAD_DONE] = "done"};
    return names[phase];
}

static uint64_t size_of(const struct upload *upload)
{
    return upload->source.bytes;
}

static const char *host_name(const struct upload *upload)
{
    return session_get_settings(upload->session)->name;
}

/* What ties a part on the host to this very file. */
static void identity(const struct upload *upload, char out[80])
{
    uint64_t stamp[3] = {size_of(upload), (uint64_t)upload->source.changed.tv_sec, (uint64_t)upload->source.changed.tv_nsec};
    snprintf(out, 80, "kedge-part %" PRIu64 " %" PRIu64 " %016" PRIx64, size_of(upload), UNITS_BYTES,
             hash_bytes(stamp, sizeof stamp));
}

static void stop_shells(struct upload *upload)
{
    for (unsigned i = 0; i < sizeof upload->streams / sizeof *upload->streams; i++) {
        sender_free(upload->streams[i].sender);
        twin_free(upload->streams[i].twin);
    }
    shell_free(upload->checker);
    memset(upload->streams, 0, sizeof upload->streams);
    upload->checker = NULL;
    upload->stream_count = 0;
}

static void finish(struct upload *upload, int err, bool sent, const char *format, ...) __attribute__((format(printf, 4, 5)));
static void finish(struct upload *upload, int err, bool sent, const char *format, ...)
{
    char reason[1500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    upload->phase = UPLOAD_DONE;
    stop_shells(upload);
    loop_timer_unset(upload->timer);
    upload->callbacks.done(upload, err, sent, reason, upload->arg); /* may free it */
}

static void move_to(struct upload *upload, enum upload_phase phase)
{
    upload->phase = phase;
    upload->moved_ns = clock_now_ns();
}

static void report(struct upload *upload, uint64_t stalled_ns);
static void look(struct upload *upload);
static void begin_sending(struct upload *upload);
static void start_twin(struct upload *upload);
static void start_streams(struct upload *upload);

/* ---- the file here, hashed while it is sent ---- */

/* The file here is hashed, and the host has one of the same size. */
static enum shell_next compare(struct upload *upload)
{
    if (strcmp(upload->hash, upload->remote_hash) == 0) {
        finish(upload, 0, false, "is there already");
        return SHELL_GONE;
    }
    begin_sending(upload);
    return SHELL_ON;
}

static void on_sum(void *arg)
{
    struct upload *upload = arg;
    struct why why = {0};
    int err = sum_get(upload->sum, upload->hash, &why);
    if (upload->phase == UPLOAD_DONE)
        return;
    if (err)
        finish(upload, err, false, "%s", why.text);
    else if (upload->phase == UPLOAD_COMPARING)
        compare(upload);
    else if (upload->checker)
        shell_poke(upload->checker);
}

/* ---- what the host says ---- */

static enum shell_next said_nonsense(struct upload *upload, const char *line)
{
    char shown[100];
    finish(upload, ERR_INVALID, false, "the host said '%s' while %s was sent", text_harmless(line, strlen(line), shown, sizeof shown),
           upload->source.path);
    return SHELL_GONE;
}

/* Lines of the look: "undoes PROGRAM", "have SUM", "part" or "new", what has arrived of it, and a dot. */
static enum shell_next take_look(struct upload *upload, const char *line)
{
    uint64_t first, count;
    if (strncmp(line, "have ", 5) == 0) {
        snprintf(upload->remote_hash, sizeof upload->remote_hash, "%.64s", line + 5);
    } else if (strncmp(line, "undoes ", 7) == 0) {
        if (!upload->restarted)
            upload->compress = compress_new(line + 7);
        upload->kind = strcmp(line + 7, ORDERS_WORKER) == 0 ? DIGEST_XXH3 : DIGEST_SHA2;
    } else if (strcmp(line, "part") == 0 || strcmp(line, "new") == 0) {
        upload->has_part = true;
    } else if (strcmp(line, ".") == 0) {
        upload->resumed_bytes = upload->units.there_bytes;
        upload->sum = sum_new(upload->loop, &upload->source, upload->kind, on_sum, upload);
        move_to(upload, UPLOAD_COMPARING); /* of the same size: the content decides */
        if (!upload->remote_hash[0])
            begin_sending(upload);
        else
            sum_until(upload->sum, size_of(upload));
    } else if (units_read(&upload->units, line, &first, &count)) { /* else it was being written when the host died */
        for (uint64_t i = first; i < first + count; i++)
            units_set_there(&upload->units, i, 1, UNIT_MISSING);
    }
    return SHELL_ON;
}

/* "BYTES BEGIN BYTES": what the road took for it, in front. */
static bool take_answer(struct upload *upload, const char *text, uint64_t *first, uint64_t *count)
{
    char copy[64], *rest = copy;
    uint64_t sent;
    snprintf(copy, sizeof copy, "%s", text);
    const char *word = strsep(&rest, " ");
    if (!rest || text_to_u64(word, &sent) != 0 || !units_read(&upload->units, rest, first, count) || sent > 2 * *count * UNITS_BYTES)
        return false;
    upload->sent_bytes += sent;
    throughput_add(&upload->wire, sent, clock_now_ns());
    return true;
}

/* "done BYTES BEGIN BYTES": the next order is of a size that takes about a second. */
static enum shell_next take_done(struct stream *stream, const char *line)
{
    struct upload *upload = stream->upload;
    uint64_t first, count, now = clock_now_ns(), took = now - stream->ordered_ns;
    if (strcmp(line, "anew") == 0 && !upload->has_part) {
        upload->has_part = true;
        begin_sending(upload);
        return SHELL_ON;
    }
    if (strncmp(line, "done ", 5) != 0 || !stream->unanswered || !take_answer(upload, line + 5, &first, &count) ||
        !units_set_there(&upload->units, first, count, UNIT_ORDERED))
        return said_nonsense(upload, line);
    stream->unanswered--;
    if (stream->sender && sender_least_ns(stream->sender) > NEAR_NS)
        start_streams(upload);
    if (!upload->twinned && size_of(upload) - upload->units.there_bytes >= TWIN_BYTES &&
        throughput_get(&upload->wire, now) >= upload->settings.twin_rate)
        start_twin(upload);
    if (took < SHORT_NS && stream->units < ORDER_UNITS)
        stream->units *= 2;
    else if (took > LONG_NS && stream->units > 1)
        stream->units /= 2;
    upload->moved_ns = now;
    if (upload->checker)
        shell_poke(upload->checker);
    return SHELL_ON;
}

static enum shell_next on_line(const char *line, void *arg)
{
    struct stream *stream = arg;
    return stream->upload->phase == UPLOAD_LOOKING   ? take_look(stream->upload, line)
           : stream->upload->phase == UPLOAD_SENDING ? take_done(stream, line)
                                                     : said_nonsense(stream->upload, line);
}

static enum shell_next on_verdict(struct shell *shell, const char *line, void *arg)
{
    struct upload *upload = arg;
    (void)shell;
    if (upload->phase != UPLOAD_VERIFYING || strcmp(line, "same") != 0)
        return said_nonsense(upload, line);
    if (upload->callbacks.progress)
        report(upload, 0); /* the whole account */
    finish(upload, 0, true, "sent and verified");
    return SHELL_GONE;
}

/* A shell has ended, or its road. A full disk has its own kind, since no repetition helps. */
static void shell_over(struct upload *upload, int err, int status, const char *reason)
{
    bool full = strstr(reason, "No space left") || strstr(reason, "quota exceeded");
    if (status < 0)
        finish(upload, err, false, "%s", reason);
    else
        finish(upload, full ? ERR_FULL : err, false, "%s%s stopped taking the file %s", full ? "the disk is full: " : "",
               host_name(upload), reason);
}

static void on_ended(int err, int status, const char *reason, void *arg)
{
    struct stream *stream = arg;
    if (status == 0 && !stream->unanswered && stream->upload->phase != UPLOAD_LOOKING)
        return; /* there was no more to order */
    if (stream->twin && !stream->unanswered)
        log_at(LOG_INFO, "upload", "%s goes on without a second session: %s", stream->upload->remote, reason);
    else
        shell_over(stream->upload, err, status, reason);
}

static void on_checker_ended(struct shell *shell, int err, int status, const char *reason, void *arg)
{
    struct upload *upload = arg;
    (void)shell;
    if (status != ORDERS_DIFFERS) {
        shell_over(upload, err, status, reason);
    } else if (!upload->restarted) {
        log_at(LOG_WARN, "upload", "%s arrived damaged, or was another file before: sending it again", upload->remote);
        upload->restarted = true;
        look(upload);
    } else {
        finish(upload, ERR_INVALID, false, "%s arrives damaged at every try; is the host's disk or memory in order? %s",
               upload->remote, reason);
    }
}

/* ---- what the host is told ---- */

/* Does compressing an order pay? A piece from its middle says so. */
static bool sample_pays(struct upload *upload, uint64_t first, uint64_t count, struct why *why)
{
    uint64_t begin = first * UNITS_BYTES, bytes = units_end(&upload->units, first + count - 1) - begin;
    size_t plain = bytes < SAMPLE_BYTES ? (size_t)bytes : SAMPLE_BYTES;
    uint8_t *piece = mem_new(plain), *packed = mem_new(compress_bound(upload->compress, plain));
    bool pays = false;
    if (source_read(&upload->source, begin + (bytes - plain) / 2, piece, plain, why) == 0) {
        uint64_t began_ns = clock_now_ns();
        size_t used = compress_frame(upload->compress, piece, plain, packed);
        uint64_t took_ns = clock_now_ns() - began_ns;
        throughput_away(&upload->wire, took_ns);
        pays = compress_pays(plain, used, took_ns, throughput_get(&upload->wire, clock_now_ns()));
    }
    mem_free(piece);
    mem_free(packed);
    return pays;
}

static void give(struct stream *stream, const struct order *order)
{
    if (stream->twin)
        twin_order(stream->twin, order);
    else
        sender_order(stream->sender, order);
}

/* The next missing units in a row; towards the end of the file less, so that all streams end together. */
static bool on_wants(void *arg)
{
    struct stream *stream = arg;
    struct upload *upload = stream->upload;
    struct why why = {0};
    uint64_t first;
    if (upload->phase != UPLOAD_SENDING || !upload->has_part)
        return true;
    uint64_t share = (upload->units.count - upload->units.next) / (2 * upload->stream_count) + 1;
    uint64_t count = units_next(&upload->units, stream->units < share ? stream->units : share, &first);
    sum_until(upload->sum, count ? units_end(&upload->units, first + count - 1) : size_of(upload));
    if (!count) {
        give(stream, NULL);
        return true;
    }
    bool packs = upload->compress && sample_pays(upload, first, count, &why);
    if (why.err) {
        finish(upload, why.err, false, "%s", why.text);
        return false;
    }
    if (packs && count > SENDER_PACKED_UNITS)
        count = SENDER_PACKED_UNITS;
    units_order(&upload->units, first, count);
    stream->ordered_ns = clock_now_ns();
    stream->unanswered++;
    const uint64_t begin = first * UNITS_BYTES;
    give(stream, &(struct order){.begin = begin,
                                 .bytes = units_end(&upload->units, first + count - 1) - begin,
                                 .compress = packs ? upload->compress : NULL});
    return true;
}

static void on_packed(uint64_t took_ns, void *arg)
{
    struct stream *stream = arg;
    throughput_away(&stream->upload->wire, took_ns);
}

/* What can be hashed there; and when all has arrived, and is hashed here, what it must have come to. */
static enum shell_next on_checker_more(struct shell *shell, void *arg)
{
    struct upload *upload = arg;
    uint64_t begin = upload->checked_bytes;
    if (upload->phase != UPLOAD_SENDING)
        return SHELL_WAIT;
    uint64_t whole = units_whole(&upload->units, begin);
    if (whole - begin >= CHECK_UNITS * UNITS_BYTES || (whole > begin && whole == size_of(upload))) {
        upload->checked_bytes = whole;
        shell_put(shell, "%" PRIu64 " %" PRIu64 "\n", begin, upload->checked_bytes - begin);
        return SHELL_ON;
    }
    if (upload->checked_bytes < size_of(upload) || !upload->hash[0])
        return SHELL_WAIT;
    shell_put(shell, "end\n%s %o\n", upload->hash, (unsigned)upload->settings.mode & 0777);
    move_to(upload, UPLOAD_VERIFYING);
    return SHELL_ON;
}

static const struct sender_callbacks of_stream = {on_wants, on_line, on_packed, on_ended};

static struct stream *add_stream(struct upload *upload)
{
    struct stream *stream = &upload->streams[upload->stream_count++];
    *stream = (struct stream){.upload = upload, .units = 1};
    return stream;
}

/* It takes `command`, which it frees. */
static void start_sender(struct upload *upload, char *command)
{
    struct stream *stream = add_stream(upload);
    stream->sender = sender_new(upload->session, command, upload->settings.stall_ns, &upload->source, &of_stream, stream);
    mem_free(command);
}

static void start_twin(struct upload *upload)
{
    struct stream *stream = add_stream(upload);
    char *command = orders_take(upload->prelude);
    upload->twinned = true;
    stream->twin = twin_new(upload->loop, upload->session, command, upload->settings.stall_ns, &upload->source, &of_stream,
                            stream);
    if (!stream->twin)
        upload->stream_count--;
    mem_free(command);
}

static void start_checker(struct upload *upload)
{
    static const struct shell_callbacks callbacks = {on_verdict, on_checker_more, on_checker_ended};
    char *command = orders_check(upload->prelude);
    upload->checker = shell_new(upload->session, command, upload->settings.stall_ns, &callbacks, upload);
    mem_free(command);
}

/* As many as have something to send. */
static void start_streams(struct upload *upload)
{
    uint64_t missing = (size_of(upload) - upload->units.there_bytes + UNITS_BYTES - 1) / UNITS_BYTES;
    while (upload->stream_count < UPLOAD_STREAMS && 2 * upload->stream_count < missing)
        start_sender(upload, orders_take(upload->prelude));
}

static void begin_sending(struct upload *upload)
{
    move_to(upload, UPLOAD_SENDING);
    throughput_begin(&upload->wire, clock_now_ns());
    if (!upload->has_part) {
        sender_put(upload->streams[0].sender, "anew 0");
        return;
    }
    start_checker(upload);
    for (unsigned i = 0; i < upload->stream_count; i++)
        sender_poke(upload->streams[i].sender);
}

/* One shell does it, and takes the first orders: each costs two round trips. */
static void look(struct upload *upload)
{
    stop_shells(upload);
    units_forget(&upload->units);
    upload->resumed_bytes = upload->checked_bytes = upload->sent_bytes = 0;
    upload->has_part = upload->twinned = false;
    upload->remote_hash[0] = '\0';
    sum_free(upload->sum);
    upload->sum = NULL;
    upload->kind = DIGEST_SHA2;
    upload->hash[0] = '\0';
    compress_free(upload->compress);
    upload->compress = NULL;
    move_to(upload, UPLOAD_LOOKING);
    start_sender(upload, orders_look(upload->prelude, size_of(upload)));
}

/* ---- progress ---- */

static void report(struct upload *upload, uint64_t stalled_ns)
{
    uint64_t oldest = upload->recent[(upload->ticks + 1) % RATE_TICKS];
    unsigned over = upload->ticks < RATE_TICKS ? upload->ticks : RATE_TICKS - 1;
    struct upload_progress progress = {.phase = upload->phase,
                                       .total_bytes = size_of(upload),
                                       .resumed_bytes = upload->resumed_bytes,
                                       .arrived_bytes = upload->units.there_bytes,
                                       .sent_bytes = upload->sent_bytes,
                                       .stalled_ns = stalled_ns};
    if (upload->ticks < RATE_TICKS)
        oldest = upload->resumed_bytes;
    if (over && upload->phase == UPLOAD_SENDING && upload->units.there_bytes > oldest)
        progress.rate = (double)(upload->units.there_bytes - oldest) / ((double)over * TICK_NS / 1e9);
    if (progress.rate > 0)
        progress.eta_ns = (uint64_t)((double)(size_of(upload) - upload->units.there_bytes) / progress.rate * 1e9);
    upload->callbacks.progress(upload, &progress, upload->arg);
}

static uint64_t hash_deadline(const struct upload *upload)
{
    return upload->settings.stall_ns + (size_of(upload) >> 30) * upload->settings.verify_ns;
}

static uint64_t quiet_for(const struct upload *upload)
{
    uint64_t moved_ns = upload->moved_ns;
    for (unsigned i = 0; i < upload->stream_count; i++)
        if (upload->streams[i].sender && sender_moved_ns(upload->streams[i].sender) > moved_ns)
            moved_ns = sender_moved_ns(upload->streams[i].sender);
    bool hashing = upload->phase == UPLOAD_COMPARING || (upload->units.there_bytes == size_of(upload) && !upload->hash[0]);
    return hashing ? 0 : clock_now_ns() - moved_ns; /* it is we who are slow */
}

static void on_tick(void *arg)
{
    struct upload *upload = arg;
    bool sending = upload->phase == UPLOAD_SENDING;
    uint64_t quiet = quiet_for(upload);
    char waited[32];
    loop_timer_set(upload->timer, TICK_NS);
    upload->recent[upload->ticks++ % RATE_TICKS] = upload->units.there_bytes;
    if (!sending && quiet >= hash_deadline(upload))
        finish(upload, ERR_TIMEOUT, false, "%s stalled: %s has been %s it for %s and says nothing", upload->source.path, host_name(upload),
               upload_phase_name(upload->phase), text_from_duration(quiet, waited, sizeof waited));
    else if (sending && quiet >= upload->settings.stall_ns)
        finish(upload, ERR_TIMEOUT, false, "%s stalled: %s took nothing for %s; what has arrived is kept, the next try goes on from there",
               upload->source.path, host_name(upload), text_from_duration(quiet, waited, sizeof waited));
    else if (upload->callbacks.progress)
        report(upload, sending && quiet > 2 * TICK_NS ? quiet : 0);
}

/* ---- life ---- */

struct upload *upload_new(struct loop *loop, struct session *session, const struct upload_settings *settings,
                          const struct upload_callbacks *callbacks, void *arg, struct why *why)
{
    struct upload *upload = mem_new(sizeof *upload);
    char head[80];
    *upload = (struct upload){.loop = loop, .session = session, .settings = *settings, .callbacks = *callbacks, .arg = arg};
    if (upload->settings.twin_rate <= 0)
        upload->settings.twin_rate = UPLOAD_TWIN_RATE;
    upload->remote = mem_text(settings->remote);
    upload->timer = loop_timer_new(loop, on_tick, upload);
    if (source_open(&upload->source, settings->local, why) != 0) {
        upload_free(upload);
        return NULL;
    }
    units_init(&upload->units, size_of(upload));
    identity(upload, head);
    upload->prelude = orders_prelude(settings->remote, head, settings->programs);
    loop_timer_set(upload->timer, TICK_NS);
    look(upload);
    return upload;
}

void upload_free(struct upload *upload)
{
    if (!upload)
        return;
    stop_shells(upload);
    loop_timer_free(upload->timer);
    sum_free(upload->sum);
    source_close(&upload->source);
    compress_free(upload->compress);
    mem_free(upload->remote);
    mem_free(upload->prelude);
    units_clear(&upload->units);
    mem_free(upload);
}
