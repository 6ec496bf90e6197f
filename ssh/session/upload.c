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

#define PIECE_BYTES ((uint64_t)4 << 20)
#define LIST_BYTES ((size_t)4 << 20) /* of FILE.part.list: more than 500,000 pieces */
#define TICK_NS (500 * CLOCK_MS)
#define RATE_TICKS 6 /* the rate is over so many ticks */

struct stream {
    struct upload *upload;
    struct road *road;
    bool standing, finished;
    uint8_t *bytes; /* a header line, a piece, an end line */
    size_t used, sent;
    char line[64]; /* of its answers */
    size_t line_used;
    unsigned unanswered; /* pieces */
};

struct upload {
    struct loop *loop;
    struct session *sessions[UPLOAD_SESSIONS];
    unsigned session_count;
    char *local, *remote, *quoted; /* quoted: F=… for the shell */
    struct upload_settings settings;
    struct upload_callbacks callbacks;
    void *arg;
    int fd;
    struct stat status;
    enum upload_phase phase;
    struct exec *exec;
    struct loop_timer *timer;
    struct digest *digest;
    uint64_t hashed_bytes;
    char hash[DIGEST_HEX], remote_hash[DIGEST_HEX];
    uint64_t pieces, next; /* next: the first that was not dealt with */
    uint8_t *arrived;      /* per piece */
    uint64_t arrived_bytes, resumed_bytes;
    struct stream streams[UPLOAD_STREAMS];
    uint64_t moved_ns;           /* something arrived, or was taken */
    uint64_t recent[RATE_TICKS]; /* arrived_bytes at the last ticks */
    unsigned ticks;
    bool restarted, over;
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

static uint64_t piece_bytes(const struct upload *upload, uint64_t piece)
{
    uint64_t begin = piece * PIECE_BYTES, left = size_of(upload) - begin;
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

/* What ties a part on the host to this very file. */
static void identity(const struct upload *upload, char out[80])
{
    uint64_t stamp[3] = {size_of(upload), (uint64_t)upload->status.st_mtim.tv_sec, (uint64_t)upload->status.st_mtim.tv_nsec};
    snprintf(out, 80, "kedge-part %" PRIu64 " %" PRIu64 " %016" PRIx64, size_of(upload), PIECE_BYTES,
             hash_bytes(stamp, sizeof stamp));
}

static void stop_streams(struct upload *upload)
{
    for (unsigned i = 0; i < UPLOAD_STREAMS; i++) {
        road_free(upload->streams[i].road);
        mem_free(upload->streams[i].bytes);
        memset(&upload->streams[i], 0, sizeof upload->streams[i]);
    }
}

static void finish(struct upload *upload, int err, bool sent, const char *format, ...) __attribute__((format(printf, 4, 5)));
static void finish(struct upload *upload, int err, bool sent, const char *format, ...)
{
    char reason[1500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    upload->over = true;
    upload->phase = UPLOAD_DONE;
    stop_streams(upload);
    loop_timer_unset(upload->timer);
    upload->callbacks.done(upload, err, sent, reason, upload->arg); /* may free it */
}

/* A command of ours failed: a full disk has its own kind, since no repetition helps. */
static void finish_by_host(struct upload *upload, int err, const char *reason)
{
    if (strstr(reason, "No space left") || strstr(reason, "quota exceeded"))
        finish(upload, ERR_FULL, false, "the disk is full: %s", reason);
    else
        finish(upload, err, false, "%s", reason);
}

static void run(struct upload *upload, const char *what, const char *script, size_t most, uint64_t deadline_ns, exec_cb *cb)
{
    /* openssl uses the processor's instructions for SHA-256; sha256sum of many distributions is four times slower. */
    char *command = mem_format("%s; export LC_ALL=C; S() { openssl dgst -sha256 -r <\"$1\" 2>/dev/null || sha256sum "
                               "<\"$1\"; }; %s", upload->quoted, script);
    exec_free(upload->exec);
    upload->exec = exec_run(upload->sessions[0], what, command, NULL, 0, most, deadline_ns, cb, upload);
    mem_free(command);
}

static void look(struct upload *upload);
static void begin_sending(struct upload *upload);

/* ---- the end: is it the same, and into its place ---- */

static void on_verified(struct exec *exec, int err, const char *reason, void *arg)
{
    struct upload *upload = arg;
    if (!err) {
        finish(upload, 0, true, "sent and verified");
    } else if (exec_status(exec) == 9 && !upload->restarted) {
        log_at(LOG_WARN, "upload", "%s arrived damaged, or was another file before: sending it again", upload->remote);
        upload->restarted = true;
        look(upload);
    } else if (exec_status(exec) == 9) {
        finish(upload, ERR_INVALID, false, "%s arrives damaged at every try; is the host's disk or memory in order? %s",
               upload->remote, reason);
    } else {
        finish_by_host(upload, err, reason);
    }
}

static uint64_t hash_deadline(const struct upload *upload)
{
    return upload->settings.stall_ns + (size_of(upload) >> 30) * upload->settings.verify_ns;
}

static void finish_hash(struct upload *upload)
{
    uint8_t sum[DIGEST_SHA256];
    digest_finish(upload->digest, sum);
    digest_hex(sum, upload->hash);
}

/* The hash is known. */
static void verify(struct upload *upload)
{
    upload->phase = UPLOAD_VERIFYING;
    stop_streams(upload);
    char *script = mem_format("H=$(S \"$F.part\" | cut -d' ' -f1) || exit 1; [ \"$H\" = %s ] || "
                              "{ rm -f \"$F.part\" \"$F.part.list\"; echo \"its SHA-256 is $H, ours %s\" >&2; exit 9; }; "
                              "chmod %o \"$F.part\" && mv -f \"$F.part\" \"$F\" && rm -f \"$F.part.list\"",
                              upload->hash, upload->hash, (unsigned)upload->settings.mode & 0777);
    run(upload, "verifying a file", script, 4096, hash_deadline(upload), on_verified);
    mem_free(script);
}

/* ---- sending ---- */

static int read_piece(struct upload *upload, uint64_t piece, uint8_t *out, struct why *why)
{
    size_t bytes = (size_t)piece_bytes(upload, piece), used = 0;
    while (used < bytes) {
        ssize_t got = pread(upload->fd, out + used, bytes - used, (off_t)(piece * PIECE_BYTES + used));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return why_errno(why, "cannot read %s", upload->local);
        if (got == 0)
            return why_set(why, ERR_INVALID, "%s has become shorter while it was sent", upload->local);
        used += (size_t)got;
    }
    digest_add(upload->digest, out, bytes);
    return 0;
}

/* Fill the stream's memory with the next piece: 0, or ERR_ABSENT when there is none. ERR_AGAIN: it is there already and
 * was read
 * for the hash only; come again, so that many of them do not stop the loop. */
static int take_piece(struct stream *stream, struct why *why)
{
    struct upload *upload = stream->upload;
    if (upload->next == upload->pieces)
        return ERR_ABSENT;
    uint64_t piece = upload->next++;
    int header = snprintf((char *)stream->bytes, 64, "%" PRIu64 " %" PRIu64 "\n", piece, piece_bytes(upload, piece));
    if (read_piece(upload, piece, stream->bytes + header, why) != 0)
        return why->err;
    upload->moved_ns = clock_now_ns();
    if (upload->arrived[piece])
        return ERR_AGAIN;
    stream->used = (size_t)header + (size_t)piece_bytes(upload, piece);
    memcpy(stream->bytes + stream->used, "end\n", 4);
    stream->used += 4;
    stream->sent = 0;
    stream->unanswered++;
    return 0;
}

/* "done PIECE". True when the upload was finished by it. */
static bool take_line(struct stream *stream)
{
    struct upload *upload = stream->upload;
    uint64_t piece;
    stream->line[stream->line_used] = '\0';
    stream->line_used = 0;
    if (strncmp(stream->line, "done ", 5) != 0 || text_to_u64(stream->line + 5, &piece) != 0 || piece >= upload->pieces ||
        upload->arrived[piece] || !stream->unanswered) {
        char shown[100];
        finish(upload, ERR_INVALID, false, "the host said '%s' while %s was sent",
               text_harmless(stream->line, strlen(stream->line), shown, sizeof shown), upload->local);
        return true;
    }
    stream->unanswered--;
    upload->arrived[piece] = 1;
    upload->arrived_bytes += piece_bytes(upload, piece);
    upload->moved_ns = clock_now_ns();
    if (upload->arrived_bytes < size_of(upload))
        return false;
    finish_hash(upload); /* all was read, in order */
    verify(upload);
    return true;
}

/* True when the upload was finished by it. */
static bool read_answers(struct stream *stream)
{
    uint8_t bytes[512];
    struct why why = {0};
    ssize_t got;
    while ((got = road_read(stream->road, bytes, sizeof bytes, &why)) > 0)
        for (ssize_t i = 0; i < got; i++) {
            if (bytes[i] == '\n') {
                if (take_line(stream))
                    return true;
            } else if (stream->line_used < sizeof stream->line - 1) {
                stream->line[stream->line_used++] = (char)bytes[i];
            }
        }
    if (got == ERR_AGAIN)
        return false;
    if (stream->finished && !stream->unanswered)
        return road_want(stream->road, false, false), false; /* there was nothing more for it */
    char errors[700], signal[32];
    int status = 0;
    const char *name = session_get_settings(stream->upload->sessions[0])->name;
    exec_errors(stream->road, errors, sizeof errors);
    char *reason = exec_exit(stream->road, &status, signal)
                       ? mem_format("%s stopped taking the file (status %d%s%s): %s", name, status,
                                    signal[0] ? ", signal " : "", signal, errors)
                       : mem_format("%s %s", name, why.text);
    finish_by_host(stream->upload, exec_exit(stream->road, &status, signal) ? ERR_INVALID : why.err, reason);
    mem_free(reason);
    return true;
}

static void write_pieces(struct stream *stream)
{
    struct upload *upload = stream->upload;
    struct why why = {0};
    while (!stream->finished && exec_room(stream->road)) {
        if (stream->sent == stream->used) {
            int err = take_piece(stream, &why);
            if (err == ERR_ABSENT) {
                stream->finished = true;
                road_finish(stream->road, &why);
                break;
            }
            if (err == ERR_AGAIN)
                break;
            if (err) {
                finish(upload, err, false, "%s", why.text);
                return;
            }
        }
        ssize_t sent = road_write(stream->road, stream->bytes + stream->sent, stream->used - stream->sent, &why);
        if (sent < 0)
            break; /* not now; an end shows when reading */
        stream->sent += (size_t)sent;
        upload->moved_ns = clock_now_ns();
    }
    road_want(stream->road, true, !stream->finished);
}

static void on_stream(void *arg)
{
    struct stream *stream = arg;
    struct why why = {0};
    int err = stream->standing ? 0 : road_start(stream->road, &why);
    if (err == ERR_AGAIN)
        return;
    if (err) {
        finish(stream->upload, err, false, "%s %s", session_get_settings(stream->upload->sessions[0])->name, why.text);
        return;
    }
    stream->standing = true;
    if (!read_answers(stream))
        write_pieces(stream);
}

static void start_stream(struct upload *upload, unsigned index)
{
    struct stream *stream = &upload->streams[index];
    /* dd takes exactly one piece from the pipe; the last one is shorter, and head takes it. A line behind each piece
     * proves that it
     * was whole: at the end of the connection dd is content with less. */
    char *command = mem_format("%s; export LC_ALL=C; while read -r k n; do if [ $n = %" PRIu64 " ]; then "
                               "dd of=\"$F.part\" bs=$n seek=$k count=1 iflag=fullblock conv=notrunc status=none; else "
                               "head -c $n | dd of=\"$F.part\" bs=%" PRIu64 " seek=$k conv=notrunc status=none; fi || exit "
                                                                            "5; "
                               "read -r e && [ \"$e\" = end ] || exit 6; echo $k >>\"$F.part.list\" || exit 5; echo done "
                               "$k; done", upload->quoted, PIECE_BYTES, PIECE_BYTES);
    *stream = (struct stream){.upload = upload, .bytes = mem_new(PIECE_BYTES + 128)};
    stream->road = exec_road(upload->sessions[index % upload->session_count], command, upload->settings.stall_ns);
    mem_free(command);
    road_on_ready(stream->road, on_stream, stream);
    road_want(stream->road, true, true);
}

static void begin_sending(struct upload *upload)
{
    upload->phase = UPLOAD_SENDING;
    upload->moved_ns = clock_now_ns();
    upload->next = 0;
    digest_free(upload->digest);
    upload->digest = digest_new();
    uint64_t missing = 0;
    for (uint64_t i = 0; i < upload->pieces; i++)
        missing += !upload->arrived[i];
    unsigned streams = upload->settings.streams ? upload->settings.streams : 4;
    for (unsigned i = 0; i < streams && i < UPLOAD_STREAMS && i < missing; i++)
        start_stream(upload, i);
    if (missing)
        return;
    /* All is there but was never verified. */
    upload->phase = UPLOAD_COMPARING;
    upload->remote_hash[0] = '\0';
    upload->hashed_bytes = 0;
    loop_timer_set(upload->timer, 0);
}

/* ---- what is there already ---- */

static void on_begun(struct exec *exec, int err, const char *reason, void *arg)
{
    (void)exec;
    if (err)
        finish_by_host(arg, err, reason);
    else
        begin_sending(arg);
}

/* Make FILE.part anew; pieces are written to their places in any order. */
static void begin_anew(struct upload *upload)
{
    char head[80];
    identity(upload, head);
    memset(upload->arrived, 0, (size_t)upload->pieces);
    upload->arrived_bytes = upload->resumed_bytes = 0;
    char *script =
        mem_format("umask 077; rm -f \"$F.part\" \"$F.part.list\"; : >\"$F.part\" && echo %s >\"$F.part.list\"", head);
    run(upload, "preparing to take a file", script, 4096, upload->settings.stall_ns, on_begun);
    mem_free(script);
}

/* Lines with the numbers of pieces, behind the identity. False when the part is of another file. */
static bool take_list(struct upload *upload, char *lines)
{
    char head[80], *rest = lines, *line = strsep(&rest, "\n");
    identity(upload, head);
    if (!line || strcmp(line, head) != 0)
        return false;
    while ((line = strsep(&rest, "\n"))) {
        uint64_t piece;
        if (text_to_u64(line, &piece) != 0 || piece >= upload->pieces || upload->arrived[piece])
            continue;
        upload->arrived[piece] = 1;
        upload->arrived_bytes += piece_bytes(upload, piece);
    }
    upload->resumed_bytes = upload->arrived_bytes;
    return true;
}

static void take_part(struct upload *upload, char *text)
{
    memset(upload->arrived, 0, (size_t)upload->pieces);
    upload->arrived_bytes = upload->resumed_bytes = 0;
    char *part = strstr(text, "\npart\n");
    if ((part && take_list(upload, part + 6)) || strcmp(text, "\nnew\n") == 0)
        begin_sending(upload);
    else
        begin_anew(upload);
}

/* The file here is hashed, and the host's is not the same, or not yet known to be. */
static void after_hash(struct upload *upload)
{
    if (!upload->remote_hash[0]) {
        verify(upload);
    } else if (strcmp(upload->hash, upload->remote_hash) == 0) {
        finish(upload, 0, false, "is there already");
    } else {
        char *copy = mem_text(exec_output(upload->exec, NULL));
        take_part(upload, copy);
        mem_free(copy);
    }
}

/* A piece a turn, so that a long file does not stop the loop. */
static void hash_some(struct upload *upload)
{
    uint8_t *bytes = mem_new(PIECE_BYTES);
    struct why why = {0};
    uint64_t piece = upload->hashed_bytes / PIECE_BYTES;
    int err = piece < upload->pieces ? read_piece(upload, piece, bytes, &why) : 0;
    mem_free(bytes);
    if (err) {
        finish(upload, err, false, "%s", why.text);
    } else if (piece + 1 < upload->pieces) {
        upload->hashed_bytes += PIECE_BYTES;
        loop_timer_set(upload->timer, 0);
    } else {
        loop_timer_set(upload->timer, TICK_NS);
        finish_hash(upload);
        after_hash(upload);
    }
}

static void on_look(struct exec *exec, int err, const char *reason, void *arg)
{
    struct upload *upload = arg;
    if (err) {
        finish_by_host(upload, err, reason);
        return;
    }
    const char *text = exec_output(exec, NULL);
    if (strncmp(text, "have ", 5) == 0) { /* the same size: the content decides */
        snprintf(upload->remote_hash, sizeof upload->remote_hash, "%.64s", text + 5);
        upload->phase = UPLOAD_COMPARING;
        upload->hashed_bytes = 0;
        loop_timer_set(upload->timer, 0);
        return;
    }
    char *copy = mem_text(text);
    take_part(upload, copy);
    mem_free(copy);
}

/* One command, since each costs two round trips: is it there, is a part of it there, and if neither, make room for one. */
static void look(struct upload *upload)
{
    char head[80];
    identity(upload, head);
    upload->phase = UPLOAD_LOOKING;
    char *script = mem_format("umask 077; mkdir -p \"$(dirname \"$F\")\" || exit 1; H=; P=; "
                              "if [ -f \"$F\" ] && [ \"$(wc -c <\"$F\")\" -eq %" PRIu64 " ]; then H=$(S \"$F\"); echo "
                                                                                        "\"have $H\"; fi; "
                              "[ -f \"$F.part\" ] && [ -f \"$F.part.list\" ] && P=$(head -n 1 \"$F.part.list\"); echo; "
                              "if [ \"$P\" = '%s' ]; then echo part; cat \"$F.part.list\"; elif [ -z \"$H\" ]; then "
                              "rm -f \"$F.part\" \"$F.part.list\"; : >\"$F.part\" && echo '%s' >\"$F.part.list\" && echo "
                              "new; fi", size_of(upload), head, head);
    run(upload, "looking for a file", script, LIST_BYTES, hash_deadline(upload), on_look);
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

static void on_tick(void *arg)
{
    struct upload *upload = arg;
    if (upload->phase == UPLOAD_COMPARING) {
        hash_some(upload);
        return;
    }
    uint64_t quiet = upload->phase == UPLOAD_SENDING ? clock_now_ns() - upload->moved_ns : 0;
    char waited[32];
    loop_timer_set(upload->timer, TICK_NS);
    upload->recent[upload->ticks++ % RATE_TICKS] = upload->arrived_bytes;
    if (quiet >= upload->settings.stall_ns)
        finish(upload, ERR_TIMEOUT, false,
               "%s stalled: %s took nothing for %s; what has arrived is kept, the next try goes on from there",
               upload->local, session_get_settings(upload->sessions[0])->name,
               text_from_duration(quiet, waited, sizeof waited));
    else if (upload->callbacks.progress)
        report(upload, quiet > 2 * TICK_NS ? quiet : 0);
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
    BUG_IF(session_count == 0 || session_count > UPLOAD_SESSIONS);
    *upload = (struct upload){
        .loop = loop, .session_count = session_count, .settings = *settings, .callbacks = *callbacks, .arg = arg};
    memcpy(upload->sessions, sessions, session_count * sizeof sessions[0]);
    upload->local = mem_text(settings->local);
    upload->remote = mem_text(settings->remote);
    buf_init(&quoted, 32768);
    buf_format(&quoted, "F=");
    exec_quote(&quoted, settings->remote);
    buf_put(&quoted, "", 1);
    upload->quoted = mem_text((const char *)buf_peek(&quoted));
    buf_clear(&quoted);
    upload->digest = digest_new();
    upload->timer = loop_timer_new(loop, on_tick, upload);
    if (open_local(upload, why) != 0) {
        upload_free(upload);
        return NULL;
    }
    upload->pieces = (size_of(upload) + PIECE_BYTES - 1) / PIECE_BYTES;
    upload->arrived = mem_new((size_t)upload->pieces + 1);
    upload->moved_ns = clock_now_ns();
    loop_timer_set(upload->timer, TICK_NS);
    look(upload);
    return upload;
}

void upload_free(struct upload *upload)
{
    if (!upload)
        return;
    stop_streams(upload);
    exec_free(upload->exec);
    loop_timer_free(upload->timer);
    digest_free(upload->digest);
    if (upload->fd >= 0)
        close(upload->fd);
    mem_free(upload->local);
    mem_free(upload->remote);
    mem_free(upload->quoted);
    mem_free(upload->arrived);
    mem_free(upload);
}
