#include "ssh/launch/push.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/session/exec.h"
#include "ssh/session/upload.h"

#define LOCK_WAIT_S 3600 /* somebody else may be sending gigabytes to this host */
#define SPARE_KIB 65536
#define VERIFY_NS (60 * CLOCK_SECOND)

enum push_state {
    PUSH_LOCKING,   /* the host's word that we are the one who sends */
    PUSH_SENDING,   /* files, one after the other */
    PUSH_UNPACKING, /* the archive, and the mark */
    PUSH_OVER,
};

struct push {
    struct loop *loop;
    struct session *session;
    const struct parcel *parcel;
    char *folder, *programs;
    uint64_t stall_ns;
    struct push_callbacks callbacks;
    void *arg;
    enum push_state state;
    struct road *lock;       /* a shell on the host that holds the lock while this road stands */
    struct loop_timer *timer; /* of locking: says that we wait */
    bool lock_stands, waited;
    char line[100];
    size_t line_used;
    struct upload *upload;
    size_t next;             /* file; parcel->count = the archive */
    char *remote;            /* of the file under way */
    uint64_t before_bytes;   /* of the files that are there */
    struct exec *exec;
};

static void finish(struct push *push, int err, bool sent, const char *format, ...) __attribute__((format(printf, 4, 5)));
static void finish(struct push *push, int err, bool sent, const char *format, ...)
{
    char reason[1500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    push->state = PUSH_OVER;
    loop_timer_unset(push->timer);
    if (push->lock)
        road_want(push->lock, false, false);
    push->callbacks.done(push, err, sent, reason, push->arg); /* may free us */
}

static const char *host_name(const struct push *push)
{
    return session_get_settings(push->session)->name;
}

/* "P='…'; " in front of a script. */
static char *with_folder(const struct push *push, const char *script)
{
    struct buf quoted;
    buf_init(&quoted, 16384);
    exec_quote(&quoted, push->folder);
    buf_put(&quoted, "", 1);
    char *whole = mem_format("export LC_ALL=C; P=%s; %s", (const char *)buf_peek(&quoted), script);
    buf_clear(&quoted);
    return whole;
}

/* ---- the end ---- */

static void on_unpacked(struct exec *exec, int err, const char *reason, void *arg)
{
    struct push *push = arg;
    (void)exec;
    if (err && strstr(reason, "No space left"))
        finish(push, ERR_FULL, false, "the disk is full: %s", reason);
    else
        finish(push, err, true, "%s", err ? reason : "sent");
}

static void unpack(struct push *push)
{
    char *command = with_folder(push, push->parcel->archive
                                          ? "cd \"$P\" && tar -xf .small.tar && rm -f .small.tar && : >.whole"
                                          : "cd \"$P\" && : >.whole");
    push->state = PUSH_UNPACKING;
    push->exec = exec_run(push->session, "unpacking what was sent", command, NULL, 0, 4096, push->stall_ns + VERIFY_NS,
                          on_unpacked, push);
    mem_free(command);
}

/* ---- files ---- */

static void send_next(struct push *push);

static void on_progress(struct upload *upload, const struct upload_progress *progress, void *arg)
{
    struct push *push = arg;
    char text[200], arrived[32], total[32], rate[32], left[32], packed[64] = "";
    uint64_t done = push->before_bytes + progress->arrived_bytes, all = push->parcel->bytes;
    (void)upload;
    if (done > all)
        done = all; /* the archive has headers */
    text_from_bytes(done, arrived, sizeof arrived);
    text_from_bytes(all, total, sizeof total);
    uint64_t fresh = progress->arrived_bytes - progress->resumed_bytes;
    if (progress->sent_bytes < fresh) /* the road shows another number than ours */
        snprintf(packed, sizeof packed, " (compressed to %s)",
                 text_from_rate(progress->rate * (double)progress->sent_bytes / (double)fresh, rate, sizeof rate));
    if (progress->stalled_ns)
        snprintf(text, sizeof text, "sending %s, %s of %s, stalled for %s", push->parcel->what, arrived, total,
                 text_from_duration(progress->stalled_ns, left, sizeof left));
    else if (progress->phase != UPLOAD_SENDING)
        snprintf(text, sizeof text, "%s %s", upload_phase_name(progress->phase), push->parcel->what);
    else if (progress->rate > 0)
        snprintf(text, sizeof text, "sending %s, %s of %s at %s%s, %s left", push->parcel->what, arrived, total,
                 text_from_rate(progress->rate, rate, sizeof rate), packed,
                 text_from_duration((uint64_t)((double)(all - done) / progress->rate * 1e9), left, sizeof left));
    else
        snprintf(text, sizeof text, "sending %s, %s of %s", push->parcel->what, arrived, total);
    push->callbacks.progress(push, text, push->arg);
}

static void on_uploaded(struct upload *upload, int err, bool sent, const char *reason, void *arg)
{
    struct push *push = arg;
    (void)sent;
    push->upload = NULL;
    upload_free(upload);
    if (err) {
        finish(push, err, false, "%s", reason);
        return;
    }
    push->before_bytes += push->next < push->parcel->count ? push->parcel->files[push->next].bytes : push->parcel->archive_bytes;
    push->next++;
    send_next(push);
}

static void send_file(struct push *push, const char *local, const char *name, mode_t mode)
{
    static const struct upload_callbacks callbacks = {on_progress, on_uploaded};
    struct why why = {0};
    mem_free(push->remote);
    push->remote = mem_format("%s/%s", push->folder, name);
    const struct upload_settings settings = {
        .local = local, .remote = push->remote, .programs = push->programs, .mode = mode, .stall_ns = push->stall_ns, .verify_ns = VERIFY_NS};
    push->upload = upload_new(push->loop, push->session, &settings, &callbacks, push, &why);
    if (!push->upload)
        finish(push, why.err, false, "%s", why.text);
}

static void send_next(struct push *push)
{
    const struct parcel *parcel = push->parcel;
    push->state = PUSH_SENDING;
    while (push->next < parcel->count && parcel->files[push->next].bytes < PARCEL_LARGE)
        push->next++;
    if (push->next < parcel->count)
        send_file(push, parcel->files[push->next].local, parcel->files[push->next].name, parcel->files[push->next].mode);
    else if (push->next == parcel->count && parcel->archive)
        send_file(push, parcel->archive, ".small.tar", 0600);
    else
        unpack(push);
}

/* ---- the lock: "whole", or "free KIB" ---- */

static void take_word(struct push *push)
{
    uint64_t free_kib, needed_kib = (push->parcel->bytes + push->parcel->archive_bytes) / 1024 + SPARE_KIB;
    char shown[200], has[32], needs[32];
    push->line[push->line_used] = '\0';
    if (strcmp(push->line, "whole") == 0) {
        finish(push, 0, false, "was there already");
    } else if (strncmp(push->line, "free ", 5) != 0 || text_to_u64(push->line + 5, &free_kib) != 0) {
        finish(push, ERR_INVALID, false, "%s said '%s' when asked for room on its disk", host_name(push),
               text_harmless(push->line, push->line_used, shown, sizeof shown));
    } else if (free_kib < needed_kib) {
        finish(push, ERR_FULL, false, "%s has no room for the %s: %s free below %s, %s are needed; delete something there, or "
               "let XDG_DATA_HOME point to a larger disk", host_name(push), push->parcel->what,
               text_from_bytes(free_kib * 1024, has, sizeof has), push->folder,
               text_from_bytes(needed_kib * 1024, needs, sizeof needs));
    } else {
        loop_timer_unset(push->timer);
        send_next(push);
    }
}

static void lock_ended(struct push *push, int err, const char *words)
{
    char errors[700], signal[32];
    int status;
    exec_errors(push->lock, errors, sizeof errors);
    bool ended = exec_exit(push->lock, &status, signal);
    if (strstr(errors, "No space left") || strstr(errors, "quota exceeded"))
        finish(push, ERR_FULL, false, "the disk of %s is full: %s", host_name(push), errors);
    else
        finish(push, ended ? ERR_INVALID : err, false, "%s %s%s%s", host_name(push),
               ended ? "cannot take files" : words, errors[0] ? ": " : "", errors);
}

static void on_lock(void *arg)
{
    struct push *push = arg;
    struct why why = {0};
    uint8_t byte;
    ssize_t got = push->lock_stands ? 0 : road_start(push->lock, &why);
    if (got == ERR_AGAIN)
        return;
    push->lock_stands = got == 0;
    while (got == 0 && push->state == PUSH_LOCKING) {
        got = road_read(push->lock, &byte, 1, &why);
        if (got == 1) {
            got = 0;
            if (byte == '\n') {
                take_word(push);
                return;
            }
            if (push->line_used < sizeof push->line - 1)
                push->line[push->line_used++] = (char)byte;
        }
    }
    if (got < 0 && got != ERR_AGAIN)
        lock_ended(push, (int)got, why.text);
    else
        road_want(push->lock, push->state == PUSH_LOCKING, false);
}

static void on_waiting(void *arg)
{
    struct push *push = arg;
    char text[200];
    loop_timer_set(push->timer, 5 * CLOCK_SECOND);
    snprintf(text, sizeof text, "waiting for another kedge that sends the same %s there", push->parcel->what);
    push->callbacks.progress(push, text, push->arg);
}

struct push *push_new(struct loop *loop, struct session *session, const struct parcel *parcel, const char *folder,
                      const char *programs, uint64_t stall_ns, const struct push_callbacks *callbacks, void *arg)
{
    struct push *push = mem_new(sizeof *push);
    *push = (struct push){.loop = loop, .session = session, .parcel = parcel, .stall_ns = stall_ns, .callbacks = *callbacks,
                          .arg = arg};
    push->folder = mem_text(folder);
    push->programs = programs ? mem_text(programs) : NULL;
    char *script = mem_format("umask 077; mkdir -p \"$P\" || exit 1; exec 9>>\"$P.lock\" || exit 1; flock -w %d 9 || exit 1; "
                              "if [ -e \"$P/.whole\" ]; then echo whole; else echo free $(df -Pk \"$P\" | tail -n 1 | "
                              "{ read -r a b c d e; echo $d; }); fi; cat >/dev/null", LOCK_WAIT_S);
    char *command = with_folder(push, script);
    push->lock = exec_road(session, command, stall_ns);
    push->timer = loop_timer_new(loop, on_waiting, push);
    loop_timer_set(push->timer, 2 * CLOCK_SECOND);
    road_on_ready(push->lock, on_lock, push);
    road_want(push->lock, true, true);
    mem_free(command);
    mem_free(script);
    return push;
}

void push_free(struct push *push)
{
    if (!push)
        return;
    upload_free(push->upload);
    exec_free(push->exec);
    road_free(push->lock);
    loop_timer_free(push->timer);
    mem_free(push->folder);
    mem_free(push->programs);
    mem_free(push->remote);
    mem_free(push);
}
