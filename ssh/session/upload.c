#include "ssh/session/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssh/base/clock.h"
#include "ssh/base/hash.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/link/digest.h"
#include "ssh/session/exec.h"
#include "ssh/session/shell.h"

#define UNIT_BYTES ((uint64_t)1 << 20)   /* what arrived is noted in these */
#define ORDER_UNITS 16                    /* most of one order */
#define HASH_BYTES ((size_t)1 << 20)      /* hashed in one turn of the loop */
#define SHORT_NS (400 * CLOCK_MS)         /* an order that took less is followed by a longer one */
#define LONG_NS (1600 * CLOCK_MS)
#define TICK_NS (500 * CLOCK_MS)
#define RATE_TICKS 6 /* the rate is over so many ticks */
#define CHECK_DIFFERS 9 /* status of CHECK: another content */

enum unit { UNIT_MISSING, UNIT_ORDERED, UNIT_THERE };

/* A shell on the host that takes orders. */
struct stream {
    struct upload *upload;
    struct shell *shell;
    uint64_t at, left;          /* of the order under way: what is still to be sent */
    uint64_t ordered_ns, units; /* units: the length of the next one */
    unsigned unanswered;        /* orders */
};

struct upload {
    struct loop *loop;
    struct session *sessions[UPLOAD_SESSIONS];
    unsigned session_count;
    char *local, *remote, *prelude; /* prelude: what each command on the host begins with */
    struct upload_settings settings;
    struct upload_callbacks callbacks;
    void *arg;
    int fd;
    struct stat status;
    enum upload_phase phase;
    struct loop_timer *timer, *hasher;
    struct digest *digest;
    uint64_t hashed_bytes;
    char hash[DIGEST_HEX], remote_hash[DIGEST_HEX];
    bool has_part;             /* the host has a part of this very file, be it empty */
    uint64_t units, next;      /* next: the first that was not dealt with */
    uint8_t *unit;
    uint64_t arrived_bytes, resumed_bytes;
    uint64_t checked_bytes;    /* the host was told to hash so many */
    struct stream streams[UPLOAD_STREAMS];
    struct shell *checker;       /* hashes on the host what has arrived */
    unsigned stream_count;
    uint64_t moved_ns;           /* something arrived, or a phase began */
    uint64_t recent[RATE_TICKS]; /* arrived_bytes at the last ticks */
    unsigned ticks;
    bool restarted;
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
    return (uint64_t)upload->status.st_size;
}

static uint64_t end_of_unit(const struct upload *upload, uint64_t unit)
{
    return unit + 1 < upload->units ? (unit + 1) * UNIT_BYTES : size_of(upload);
}

static const char *host_name(const struct upload *upload)
{
    return session_get_settings(upload->sessions[0])->name;
}

/* What ties a part on the host to this very file. */
static void identity(const struct upload *upload, char out[80])
{
    uint64_t stamp[3] = {size_of(upload), (uint64_t)upload->status.st_mtim.tv_sec, (uint64_t)upload->status.st_mtim.tv_nsec};
    snprintf(out, 80, "kedge-part %" PRIu64 " %" PRIu64 " %016" PRIx64, size_of(upload), UNIT_BYTES,
             hash_bytes(stamp, sizeof stamp));
}

static void stop_shells(struct upload *upload)
{
    for (unsigned i = 0; i < UPLOAD_STREAMS; i++)
        shell_free(upload->streams[i].shell);
    shell_free(upload->checker);
    memset(upload->streams, 0, sizeof upload->streams);
    upload->checker = NULL;
    upload->stream_count = 0;
    loop_timer_unset(upload->hasher);
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

static void look(struct upload *upload);
static void begin_sending(struct upload *upload);

/* ---- the hash of the file here: made while it is sent, never far behind ---- */

static bool read_at(struct upload *upload, uint64_t at, uint8_t *out, size_t bytes)
{
    ssize_t got;
    for (size_t used = 0; used < bytes; used += (size_t)got) {
        got = pread(upload->fd, out + used, bytes - used, (off_t)(at + used));
        if (got < 0 && errno == EINTR)
            got = 0;
        else if (got < 0)
            return finish(upload, ERR_SYSTEM, false, "cannot read %s: %s", upload->local, strerror(errno)), false;
        else if (got == 0)
            return finish(upload, ERR_INVALID, false, "%s has become shorter while it was sent", upload->local), false;
    }
    return true;
}

/* False when the upload was finished by it. */
static bool hash_some(struct upload *upload, size_t most)
{
    uint64_t left = size_of(upload) - upload->hashed_bytes;
    size_t bytes = left < most ? (size_t)left : most;
    uint8_t *piece = mem_new(bytes + 1);
    bool ok = read_at(upload, upload->hashed_bytes, piece, bytes);
    if (ok) {
        digest_add(upload->digest, piece, bytes);
        upload->hashed_bytes += bytes;
    }
    mem_free(piece);
    if (ok && upload->hashed_bytes == size_of(upload) && !upload->hash[0]) {
        uint8_t sum[DIGEST_SHA256];
        digest_finish(upload->digest, sum);
        digest_hex(sum, upload->hash);
    }
    return ok;
}

/* The file here is hashed, and the host has one of the same size. */
static void compare(struct upload *upload)
{
    if (strcmp(upload->hash, upload->remote_hash) == 0)
        finish(upload, 0, false, "is there already");
    else
        begin_sending(upload);
}

/* A piece a turn, so that a long file does not stop the loop. */
static void on_hasher(void *arg)
{
    struct upload *upload = arg;
    if (!hash_some(upload, HASH_BYTES))
        return;
    if (!upload->hash[0])
        loop_timer_set(upload->hasher, 0);
    else if (upload->phase == UPLOAD_COMPARING)
        compare(upload);
    else
        shell_poke(upload->checker);
}

/* ---- what the host says ---- */

static enum shell_next said_nonsense(struct upload *upload, const char *line)
{
    char shown[100];
    finish(upload, ERR_INVALID, false, "the host said '%s' while %s was sent", text_harmless(line, strlen(line), shown, sizeof shown),
           upload->local);
    return SHELL_GONE;
}

/* "BEGIN BYTES": whole units. False when it is not. */
static bool take_range(struct upload *upload, const char *text, uint64_t *first, uint64_t *count)
{
    char copy[64], *rest = copy;
    uint64_t begin, bytes;
    snprintf(copy, sizeof copy, "%s", text);
    const char *word = strsep(&rest, " ");
    if (!rest || text_to_u64(word, &begin) != 0 || text_to_u64(rest, &bytes) != 0 || begin % UNIT_BYTES || !bytes ||
        begin >= size_of(upload) || bytes > size_of(upload) - begin)
        return false;
    *first = begin / UNIT_BYTES;
    *count = (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
    return end_of_unit(upload, *first + *count - 1) == begin + bytes;
}

static void set_there(struct upload *upload, uint64_t unit)
{
    upload->unit[unit] = UNIT_THERE;
    upload->arrived_bytes += end_of_unit(upload, unit) - unit * UNIT_BYTES;
}

/* Lines of the look: "have HASH", "part" or "new", what has arrived of it, and a dot. */
static enum shell_next take_look(struct upload *upload, const char *line)
{
    uint64_t first, count;
    if (strncmp(line, "have ", 5) == 0) {
        snprintf(upload->remote_hash, sizeof upload->remote_hash, "%.64s", line + 5);
    } else if (strcmp(line, "part") == 0 || strcmp(line, "new") == 0) {
        upload->has_part = true;
    } else if (strcmp(line, ".") == 0) {
        upload->resumed_bytes = upload->arrived_bytes;
        move_to(upload, UPLOAD_COMPARING); /* of the same size: the content decides */
        if (upload->remote_hash[0])
            loop_timer_set(upload->hasher, 0);
        else
            begin_sending(upload);
    } else if (take_range(upload, line, &first, &count)) { /* else it was being written when the host died */
        for (uint64_t i = first; i < first + count; i++)
            if (upload->unit[i] == UNIT_MISSING)
                set_there(upload, i);
    }
    return SHELL_ON;
}

/* "done BEGIN BYTES": the next order is of a size that takes about a second. */
static enum shell_next take_done(struct stream *stream, const char *line)
{
    struct upload *upload = stream->upload;
    uint64_t first, count, now = clock_now_ns(), took = now - stream->ordered_ns;
    if (strcmp(line, "anew") == 0 && !upload->has_part) {
        upload->has_part = true;
        begin_sending(upload);
        return SHELL_ON;
    }
    if (strncmp(line, "done ", 5) != 0 || !take_range(upload, line + 5, &first, &count) || !stream->unanswered)
        return said_nonsense(upload, line);
    for (uint64_t i = first; i < first + count; i++) {
        if (upload->unit[i] != UNIT_ORDERED)
            return said_nonsense(upload, line);
        set_there(upload, i);
    }
    stream->unanswered--;
    if (took < SHORT_NS && stream->units < ORDER_UNITS)
        stream->units *= 2;
    else if (took > LONG_NS && stream->units > 1)
        stream->units /= 2;
    upload->moved_ns = now;
    if (upload->checker)
        shell_poke(upload->checker);
    return SHELL_ON;
}

static enum shell_next on_line(struct shell *shell, const char *line, void *arg)
{
    struct stream *stream = arg;
    (void)shell;
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

static void on_ended(struct shell *shell, int err, int status, const char *reason, void *arg)
{
    struct stream *stream = arg;
    (void)shell;
    if (status != 0 || stream->unanswered || stream->upload->phase == UPLOAD_LOOKING)
        shell_over(stream->upload, err, status, reason);
}

static void on_checker_ended(struct shell *shell, int err, int status, const char *reason, void *arg)
{
    struct upload *upload = arg;
    (void)shell;
    if (status != CHECK_DIFFERS) {
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

/* The next missing units in a row; towards the end of the file less, so that all streams end together. */
static bool take_order(struct stream *stream)
{
    struct upload *upload = stream->upload;
    while (upload->next < upload->units && upload->unit[upload->next] != UNIT_MISSING)
        upload->next++;
    uint64_t first = upload->next, count = 0, share = (upload->units - first) / (2 * upload->stream_count) + 1;
    while (first + count < upload->units && count < stream->units && count < share && upload->unit[first + count] == UNIT_MISSING)
        upload->unit[first + count++] = UNIT_ORDERED;
    if (!count)
        return false;
    upload->next += count;
    stream->at = first * UNIT_BYTES;
    stream->left = end_of_unit(upload, first + count - 1) - stream->at;
    stream->ordered_ns = clock_now_ns();
    stream->unanswered++;
    shell_put(stream->shell, "%" PRIu64 " %" PRIu64 "\n", stream->at, stream->left);
    return true;
}

/* The line of an order, its bytes, a line behind them. */
static enum shell_next on_more(struct shell *shell, void *arg)
{
    struct stream *stream = arg;
    struct upload *upload = stream->upload;
    if (upload->phase != UPLOAD_SENDING || !upload->has_part)
        return SHELL_WAIT;
    if (!stream->left && !take_order(stream)) {
        if (!upload->hash[0])
            loop_timer_set(upload->hasher, 0);
        return SHELL_LAST;
    }
    size_t bytes = stream->left < SHELL_BYTES ? (size_t)stream->left : SHELL_BYTES;
    if (!read_at(upload, stream->at, shell_reserve(shell, bytes), bytes) || !hash_some(upload, bytes))
        return SHELL_GONE;
    shell_commit(shell, bytes);
    stream->at += bytes;
    stream->left -= bytes;
    if (!stream->left)
        shell_put(shell, "end\n");
    return SHELL_ON;
}

/* What can be hashed there; and when all has arrived, and is hashed here, what it must have come to. */
static enum shell_next on_checker_more(struct shell *shell, void *arg)
{
    struct upload *upload = arg;
    uint64_t begin = upload->checked_bytes, whole = begin / UNIT_BYTES;
    if (upload->phase != UPLOAD_SENDING)
        return SHELL_WAIT;
    while (whole < upload->units && upload->unit[whole] == UNIT_THERE)
        upload->checked_bytes = end_of_unit(upload, whole++);
    if (upload->checked_bytes > begin) {
        shell_put(shell, "%" PRIu64 " %" PRIu64 "\n", begin, upload->checked_bytes - begin);
        return SHELL_ON;
    }
    if (upload->checked_bytes < size_of(upload) || !upload->hash[0])
        return SHELL_WAIT;
    shell_put(shell, "end\n%s %o\n", upload->hash, (unsigned)upload->settings.mode & 0777);
    move_to(upload, UPLOAD_VERIFYING);
    return SHELL_ON;
}

/* dd takes exactly what was ordered from the pipe, and a line behind it proves that it was whole: at the end of the connection
 * dd is content with less. */
#define TAKE_ORDERS                                                                                                             \
    "while read -r o n; do if [ \"$o\" = anew ]; then N || exit 5; echo anew; continue; fi; "                                    \
    "dd of=\"$F.part\" bs=131072 iflag=fullblock,count_bytes oflag=seek_bytes seek=$o count=$n conv=notrunc status=none || "    \
    "exit 5; read -r e && [ \"$e\" = end ] || exit 6; echo $o $n >>\"$F.part.list\" || exit 5; echo done $o $n; done"

/* It hashes what has arrived as far as there is no gap, so that little is left to do at the end; then all goes into its place. */
#define CHECK                                                                                                                   \
    "H=$(while read -r o n && [ \"$o\" != end ]; do dd if=\"$F.part\" bs=131072 iflag=skip_bytes,count_bytes skip=$o count=$n " \
    "status=none || exit 1; done | $S | cut -d' ' -f1); read -r h m || exit 6; [ \"$H\" = \"$h\" ] || { rm -f \"$F.part\" "      \
    "\"$F.part.list\"; echo \"its SHA-256 is $H, ours $h\" >&2; exit 9; }; chmod $m \"$F.part\" && "                             \
    "mv -f \"$F.part\" \"$F\" && rm -f \"$F.part.list\" && echo same"

static void start_shell(struct upload *upload, unsigned index, const char *script)
{
    static const struct shell_callbacks callbacks = {on_line, on_more, on_ended};
    struct stream *stream = &upload->streams[index];
    char *command = mem_format("%s%s", upload->prelude, script);
    *stream = (struct stream){.upload = upload, .units = 1};
    stream->shell = shell_new(upload->sessions[index % upload->session_count], command, upload->settings.stall_ns, &callbacks, stream);
    mem_free(command);
}

static void start_checker(struct upload *upload)
{
    static const struct shell_callbacks callbacks = {on_verdict, on_checker_more, on_checker_ended};
    char *command = mem_format("%s%s", upload->prelude, CHECK);
    upload->checker = shell_new(upload->sessions[upload->session_count - 1], command, upload->settings.stall_ns, &callbacks, upload);
    mem_free(command);
}

static void begin_sending(struct upload *upload)
{
    unsigned streams = upload->settings.streams ? upload->settings.streams : 4;
    uint64_t missing = (size_of(upload) - upload->arrived_bytes + UNIT_BYTES - 1) / UNIT_BYTES;
    move_to(upload, UPLOAD_SENDING);
    if (!upload->has_part) {
        shell_put(upload->streams[0].shell, "anew 0\n");
        return;
    }
    upload->stream_count = 1; /* that which looked */
    while (upload->stream_count < streams && upload->stream_count < UPLOAD_STREAMS && 2 * upload->stream_count < missing)
        start_shell(upload, upload->stream_count++, TAKE_ORDERS);
    start_checker(upload);
    shell_poke(upload->streams[0].shell);
}

/* One shell, since each costs two round trips: is it there, is a part of it there, and if neither, make room for one; then it takes
 * orders. Where it is, what it is, how it is hashed, and how a part is begun, is in front of every command. openssl uses the
 * processor's instructions for SHA-256; sha256sum of many distributions is four times slower. */
static void look(struct upload *upload)
{
    stop_shells(upload);
    memset(upload->unit, UNIT_MISSING, (size_t)upload->units);
    upload->next = upload->arrived_bytes = upload->resumed_bytes = upload->checked_bytes = upload->hashed_bytes = 0;
    upload->has_part = false;
    upload->hash[0] = upload->remote_hash[0] = '\0';
    digest_free(upload->digest);
    upload->digest = digest_new();
    move_to(upload, UPLOAD_LOOKING);
    char *script = mem_format(
        "mkdir -p \"$(dirname \"$F\")\" || exit 1; "
        "if [ -f \"$F\" ] && [ \"$(wc -c <\"$F\")\" -eq %" PRIu64 " ]; then echo \"have $($S <\"$F\")\"; h=1; fi; "
        "if [ -f \"$F.part\" ] && [ \"$(head -n 1 \"$F.part.list\" 2>/dev/null)\" = \"$I\" ]; then echo part; tail -n +2 \"$F.part.list\"; "
        "elif [ -z \"$h\" ]; then N || exit 5; echo new; fi; echo .; %s", size_of(upload), TAKE_ORDERS);
    start_shell(upload, 0, script);
    mem_free(script);
}

/* ---- progress ---- */

static void report(struct upload *upload, uint64_t stalled_ns)
{
    uint64_t oldest = upload->recent[(upload->ticks + 1) % RATE_TICKS];
    unsigned over = upload->ticks < RATE_TICKS ? upload->ticks : RATE_TICKS - 1;
    struct upload_progress progress = {.phase = upload->phase,
                                       .total_bytes = size_of(upload),
                                       .resumed_bytes = upload->resumed_bytes,
                                       .arrived_bytes = upload->arrived_bytes,
                                       .stalled_ns = stalled_ns};
    if (upload->ticks < RATE_TICKS)
        oldest = upload->resumed_bytes;
    if (over && upload->phase == UPLOAD_SENDING && upload->arrived_bytes > oldest)
        progress.rate = (double)(upload->arrived_bytes - oldest) / ((double)over * TICK_NS / 1e9);
    if (progress.rate > 0)
        progress.eta_ns = (uint64_t)((double)(size_of(upload) - upload->arrived_bytes) / progress.rate * 1e9);
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
        if (shell_moved_ns(upload->streams[i].shell) > moved_ns)
            moved_ns = shell_moved_ns(upload->streams[i].shell);
    return upload->phase == UPLOAD_COMPARING ? 0 : clock_now_ns() - moved_ns;
}

static void on_tick(void *arg)
{
    struct upload *upload = arg;
    bool sending = upload->phase == UPLOAD_SENDING;
    uint64_t quiet = quiet_for(upload);
    char waited[32];
    loop_timer_set(upload->timer, TICK_NS);
    upload->recent[upload->ticks++ % RATE_TICKS] = upload->arrived_bytes;
    if (!sending && quiet >= hash_deadline(upload))
        finish(upload, ERR_TIMEOUT, false, "%s stalled: %s has been %s it for %s and says nothing", upload->local, host_name(upload),
               upload_phase_name(upload->phase), text_from_duration(quiet, waited, sizeof waited));
    else if (sending && quiet >= upload->settings.stall_ns)
        finish(upload, ERR_TIMEOUT, false, "%s stalled: %s took nothing for %s; what has arrived is kept, the next try goes on from there",
               upload->local, host_name(upload), text_from_duration(quiet, waited, sizeof waited));
    else if (upload->callbacks.progress)
        report(upload, sending && quiet > 2 * TICK_NS ? quiet : 0);
}

/* ---- life ---- */

static int open_local(struct upload *upload, struct why *why)
{
    upload->fd = open(upload->local, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (upload->fd < 0)
        return why_errno(why, "cannot send %s", upload->local);
    if (fstat(upload->fd, &upload->status) != 0 || !S_ISREG(upload->status.st_mode))
        return why_set(why, ERR_INVALID, "cannot send %s: it is not a regular file", upload->local);
    return 0;
}

struct upload *upload_new(struct loop *loop, struct session *const *sessions, unsigned session_count,
                          const struct upload_settings *settings, const struct upload_callbacks *callbacks, void *arg,
                          struct why *why)
{
    struct upload *upload = mem_new(sizeof *upload);
    struct buf quoted;
    char head[80];
    BUG_IF(session_count == 0 || session_count > UPLOAD_SESSIONS);
    *upload = (struct upload){
        .loop = loop, .session_count = session_count, .settings = *settings, .callbacks = *callbacks, .arg = arg};
    memcpy(upload->sessions, sessions, session_count * sizeof sessions[0]);
    upload->local = mem_text(settings->local);
    upload->remote = mem_text(settings->remote);
    upload->timer = loop_timer_new(loop, on_tick, upload);
    upload->hasher = loop_timer_new(loop, on_hasher, upload);
    if (open_local(upload, why) != 0) {
        upload_free(upload);
        return NULL;
    }
    upload->units = (size_of(upload) + UNIT_BYTES - 1) / UNIT_BYTES;
    upload->unit = mem_new((size_t)upload->units + 1);
    identity(upload, head);
    buf_init(&quoted, 32768);
    exec_quote(&quoted, settings->remote);
    buf_put(&quoted, "", 1);
    upload->prelude = mem_format("export LC_ALL=C; umask 077; F=%s; I='%s'; S='openssl dgst -sha256 -r'; $S </dev/null >/dev/null 2>&1 || "
                                 "S=sha256sum; N() { rm -f \"$F.part\" \"$F.part.list\"; : >\"$F.part\" && echo \"$I\" >\"$F.part.list\"; "
                                 "}; ", (const char *)buf_peek(&quoted), head);
    buf_clear(&quoted);
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
    loop_timer_free(upload->hasher);
    digest_free(upload->digest);
    if (upload->fd >= 0)
        close(upload->fd);
    mem_free(upload->local);
    mem_free(upload->remote);
    mem_free(upload->prelude);
    mem_free(upload->unit);
    mem_free(upload);
}
