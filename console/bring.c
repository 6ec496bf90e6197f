#include "console/bring.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "console/draft.h"
#include "console/place.h"
#include "ssh/base/child.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/errand.h"
#include "ssh/launch/nonce.h"
#include "ssh/launch/script.h"
#include "ssh/session/exec.h"

#define MANIFEST_BYTES ((size_t)1 << 20)
#define FILES_MOST 256
#define READ_BYTES ((size_t)1 << 18)

struct wanted {
    char name[80];
    uint64_t bytes;
    bool here;
};

struct bring;

struct source { /* a host, and what streams from it: "NAME BYTES\n" and the bytes, again and again, then "end\n" */
    struct bring *bring;
    const char *name;
    struct reach *reach;
    struct road *road;
    bool stands, over;
    char line[160];
    size_t used;
    struct wanted *file; /* under way */
    int fd;
    uint64_t left, moved_ns;
};

struct bring {
    struct loop *loop;
    struct place place;
    struct profile *profile;
    char *folder, *manifest; /* of the set, here; its manifest's text */
    uint64_t step;
    struct wanted files[FILES_MOST];
    int file_count;
    struct source sources[PROFILE_HOSTS];
    int source_count;
    struct why why;
};

static void end_source(struct source *source, int err, const char *reason)
{
    source->over = true;
    if (source->road)
        road_want(source->road, false, false);
    if (err)
        why_set(&source->bring->why, err, "host %s: %s", source->name, reason);
}

/* ---- the stream ---- */

static char *path_of(const struct bring *bring, const char *name, const char *ending)
{
    return mem_format("%s/%s%s", bring->folder, name, ending);
}

static void finish_file(struct source *source)
{
    char *from = path_of(source->bring, source->file->name, ".new"), *to = path_of(source->bring, source->file->name, "");
    if (fsync(source->fd) != 0 || rename(from, to) != 0) {
        why_errno(&source->bring->why, "cannot write %s", to);
        end_source(source, 0, "");
    } else {
        source->file->here = true;
    }
    close(source->fd);
    source->fd = -1;
    source->file = NULL;
    mem_free(from);
    mem_free(to);
}

static void take_line(struct source *source)
{
    char name[80];
    uint64_t bytes;
    source->line[source->used] = '\0';
    source->used = 0;
    if (strcmp(source->line, "end") == 0) {
        end_source(source, 0, "");
        return;
    }
    if (sscanf(source->line, "%79s %" SCNu64, name, &bytes) == 2)
        for (int i = 0; i < source->bring->file_count && !source->file; i++)
            if (strcmp(source->bring->files[i].name, name) == 0 && source->bring->files[i].bytes == bytes)
                source->file = &source->bring->files[i];
    if (!source->file) {
        end_source(source, ERR_INVALID, "it sends something else than the weights that were asked for");
        return;
    }
    char *path = path_of(source->bring, source->file->name, ".new"), size[32];
    fprintf(stderr, "%s: %s, %s\n", source->name, name, text_from_bytes(bytes, size, sizeof size));
    source->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    source->left = bytes;
    if (source->fd < 0) {
        why_errno(&source->bring->why, "cannot write %s", path);
        end_source(source, 0, "");
    }
    mem_free(path);
}

static void take_bytes(struct source *source, const uint8_t *bytes, size_t count)
{
    while (count && !source->over) {
        if (!source->file) {
            if (*bytes == '\n')
                take_line(source);
            else if (source->used < sizeof source->line - 1)
                source->line[source->used++] = (char)*bytes;
            bytes++;
            count--;
            continue;
        }
        size_t piece = source->left < count ? (size_t)source->left : count;
        ssize_t put = piece ? write(source->fd, bytes, piece) : 0;
        if (put < 0 || (size_t)put != piece) {
            why_errno(&source->bring->why, "cannot write into %s", source->bring->folder);
            end_source(source, 0, "");
            return;
        }
        bytes += piece;
        count -= piece;
        source->left -= piece;
        if (source->left == 0)
            finish_file(source);
    }
}

static void on_road(void *arg)
{
    struct source *source = arg;
    static uint8_t bytes[READ_BYTES];
    struct why why = {0};
    char errors[400];
    ssize_t got = source->stands ? 0 : road_start(source->road, &why);
    if (got == ERR_AGAIN)
        return;
    source->stands = got == 0;
    while (got >= 0 && !source->over && (got = road_read(source->road, bytes, sizeof bytes, &why)) > 0) {
        source->moved_ns = clock_now_ns();
        take_bytes(source, bytes, (size_t)got);
    }
    if (source->over)
        return;
    if (got == ERR_AGAIN) {
        road_want(source->road, true, false);
        return;
    }
    exec_errors(source->road, errors, sizeof errors);
    end_source(source, (int)got, errors[0] ? errors : why.text);
}

static void on_down(struct reach *reach, int err, const char *reason, void *arg)
{
    struct source *source = arg;
    (void)reach;
    if (!source->over)
        end_source(source, err ? err : ERR_GONE, reason);
}

/* What is missing here, if it is there. */
static char *make_script(const struct bring *bring, const char *host)
{
    struct buf script;
    char *guard = nonce_guard(bring->place.folder, host);
    buf_init(&script, 32768);
    buf_format(&script, "%scd \"$R/checkpoint/%" PRIu64 "\" 2>/dev/null || { echo end; exit 0; }; for f in", guard, bring->step);
    mem_free(guard);
    for (int i = 0; i < bring->file_count; i++)
        if (!bring->files[i].here)
            buf_format(&script, " %s", bring->files[i].name);
    buf_format(&script, "; do [ -f $f ] || continue; echo $f $(wc -c <$f); cat $f; done; echo end");
    buf_put(&script, "", 1);
    char *whole = script_of_run(bring->place.run, (const char *)buf_peek(&script));
    buf_clear(&script);
    return whole;
}

static void begin_source(struct bring *bring, const struct profile_host *host)
{
    static const struct reach_callbacks callbacks = {.down = on_down};
    struct reach_settings settings = {0};
    struct why why = {0};
    struct source *source = &bring->sources[bring->source_count++];
    *source = (struct source){.bring = bring, .name = host->name, .fd = -1, .moved_ns = clock_now_ns()};
    runs_known_hosts(settings.save, sizeof settings.save);
    reach_of_host(bring->profile, host, &settings);
    source->reach = reach_new(bring->loop, &settings, &callbacks, source, &why);
    if (!source->reach) {
        end_source(source, why.err, why.text);
        return;
    }
    char *script = make_script(bring, host->name);
    source->road = exec_road(reach_session(source->reach), script, settings.greet_ns);
    mem_free(script);
    road_on_ready(source->road, on_road, source);
    road_want(source->road, true, false);
}

static void await_sources(struct bring *bring)
{
    uint64_t stall_ns = 4 * bring->place.timeouts.greet_ns;
    for (bool waiting = true; waiting;) {
        waiting = false;
        for (int i = 0; i < bring->source_count; i++) {
            struct source *source = &bring->sources[i];
            if (!source->over && clock_now_ns() - source->moved_ns > stall_ns)
                end_source(source, ERR_TIMEOUT, "nothing came any more; say it again, what is here is kept");
            waiting |= !source->over;
        }
        if (waiting)
            loop_run_once(bring->loop, CLOCK_SECOND);
    }
}

/* ---- the manifest ---- */

static bool is_file_name(const char *name)
{
    return name[0] && name[0] != '.' && strlen(name) < 80 && strspn(name, PROFILE_NAME_LETTERS) == strlen(name);
}

/* Only what is needed to fetch: gpu/model/set.c checks the rest when it is read. */
static int read_manifest(struct bring *bring, struct why *why)
{
    json_t *json = json_loads(bring->manifest, 0, NULL), *files = json_object_get(json, "files"), *file;
    size_t index;
    int err = json_is_array(files) && json_array_size(files) <= FILES_MOST ? 0 : ERR_INVALID;
    json_array_foreach(files, index, file) {
        const char *name = json_string_value(json_object_get(file, "file"));
        json_int_t bytes = json_integer_value(json_object_get(file, "bytes"));
        if (err || !name || !is_file_name(name) || bytes < 0) {
            err = ERR_INVALID;
            break;
        }
        const json_t *first = json_array_get(files, 0); /* a set of all replicas has the same weights several times */
        if (json_integer_value(json_object_get(file, "replica")) != json_integer_value(json_object_get(first, "replica")))
            continue;
        struct wanted *wanted = &bring->files[bring->file_count++];
        *wanted = (struct wanted){.bytes = (uint64_t)bytes};
        snprintf(wanted->name, sizeof wanted->name, "%s", name);
    }
    json_decref(json);
    return err ? why_set(why, err, "the manifest of step %" PRIu64 " cannot be read", bring->step) : 0;
}

/* "STEP\n" and the text of the newest manifest in the folder `checkpoint` under R. */
static const char newest[] = "cd \"$R/checkpoint\" 2>/dev/null || exit 0; s=$(for d in [0-9]*; do [ ! -e \"$d/manifest.json\" ] || echo $d; done | sort -n | "
                             "tail -n 1); [ -z \"$s\" ] || { echo $s; cat $s/manifest.json; }";

struct answer {
    bool done;
    struct why why;
    char *text;
};

static void on_answer(struct errand *errand, int err, const char *reason, const char *output, size_t bytes, void *arg)
{
    struct answer *answer = arg;
    (void)errand, (void)bytes;
    answer->done = true;
    answer->text = mem_text(output);
    if (err)
        why_set(&answer->why, err, "%s", reason);
}

static int ask_head(struct bring *bring, char **text, struct why *why)
{
    const struct errand_callbacks callbacks = {.done = on_answer};
    struct answer answer = {0};
    char *guard = nonce_guard(bring->place.folder, bring->place.reach.name), *words = mem_format("%s%s", guard, newest);
    char *script = script_of_run(bring->place.run, words);
    const struct errand_settings settings = {.reach = bring->place.reach, .what = "looking for weights", .script = script,
                                             .most_bytes = MANIFEST_BYTES, .deadline_ns = 4 * bring->place.reach.greet_ns};
    struct errand *errand = errand_new(bring->loop, &settings, &callbacks, &answer);
    while (!answer.done)
        loop_run_once(bring->loop, CLOCK_SECOND);
    errand_free(errand);
    mem_free(script);
    mem_free(words);
    mem_free(guard);
    *text = answer.text;
    return answer.why.err ? why_set(why, nonce_err(answer.why.err, answer.why.text), "%s", answer.why.text) : 0;
}

static int ask_here(struct bring *bring, char **text, struct why *why)
{
    char *script = mem_format("R=\"$1\"; %s", newest);
    const char *const argv[] = {"/bin/sh", "-c", script, "sh", bring->place.folder, NULL};
    int status = 0;
    *text = mem_new(MANIFEST_BYTES);
    int err = child_output(argv, false, *text, MANIFEST_BYTES, 10 * CLOCK_SECOND, &status, why);
    mem_free(script);
    return err;
}

/* 1 = there is no set at all, which export says better. */
static int find_set(struct bring *bring, struct why *why)
{
    char *text = NULL;
    int err = bring->place.far ? ask_head(bring, &text, why) : ask_here(bring, &text, why);
    char *end = text ? strchr(text, '\n') : NULL;
    if (!err && (!end || (bring->step = strtoull(text, NULL, 10)) == 0))
        err = 1;
    if (!err) {
        bring->manifest = mem_text(end + 1);
        bring->folder = mem_format("%s/checkpoint/%" PRIu64, bring->place.folder, bring->step);
        err = read_manifest(bring, why);
    }
    mem_free(text);
    return err;
}

static bool mark_here(struct bring *bring)
{
    bool all = true;
    for (int i = 0; i < bring->file_count; i++) {
        char *path = path_of(bring, bring->files[i].name, "");
        struct stat status;
        bring->files[i].here = stat(path, &status) == 0 && (uint64_t)status.st_size == bring->files[i].bytes;
        all &= bring->files[i].here;
        mem_free(path);
    }
    return all;
}

static int fetch_files(struct bring *bring, struct why *why)
{
    int err = file_make_folders(bring->folder, 0700, why);
    if (err || mark_here(bring))
        return err;
    for (int64_t i = 0; i < bring->profile->host_count; i++)
        if (bring->profile->hosts[i].kind == HOST_SSH)
            begin_source(bring, &bring->profile->hosts[i]);
    await_sources(bring);
    for (int i = 0; i < bring->file_count; i++)
        if (!bring->files[i].here)
            return bring->why.err ? why_set(why, bring->why.err, "%s", bring->why.text)
                                  : why_set(why, ERR_ABSENT, "%s of the weights after step %" PRIu64 " is on no host any more",
                                            bring->files[i].name, bring->step);
    return 0;
}

static void clear(struct bring *bring)
{
    for (int i = 0; i < bring->source_count; i++) {
        road_free(bring->sources[i].road);
        reach_free(bring->sources[i].reach);
        if (bring->sources[i].fd >= 0)
            close(bring->sources[i].fd);
    }
    if (bring->loop)
        loop_free(bring->loop);
    mem_free(bring->profile);
    mem_free(bring->folder);
    mem_free(bring->manifest);
    mem_free(bring);
}

static bool has_hosts(const struct bring *bring)
{
    for (int64_t i = 0; i < bring->profile->host_count; i++)
        if (bring->profile->hosts[i].kind == HOST_SSH)
            return true;
    return false;
}

static int bring(const char *run, bool files, struct why *why)
{
    struct bring *bring = mem_new(sizeof *bring);
    char *path = NULL;
    bring->profile = mem_new(sizeof *bring->profile);
    bring->loop = loop_new(why);
    int err = bring->loop ? place_find(bring->loop, run, &bring->place, why) : why->err;
    if (!err) {
        path = mem_format("%s/run.ini", bring->place.folder);
        err = draft_read_quietly(path, bring->profile, why);
    }
    if (!err && has_hosts(bring) && (files || bring->place.far)) {
        err = find_set(bring, why);
        if (!err)
            err = files ? fetch_files(bring, why) : file_make_folders(bring->folder, 0700, why);
        if (!err) {
            mem_free(path);
            path = path_of(bring, "manifest.json", "");
            err = file_write(path, bring->manifest, strlen(bring->manifest), 0600, why);
        }
    }
    mem_free(path);
    clear(bring);
    return err < 0 ? err : 0;
}

int bring_set(const char *run, struct why *why)
{
    return bring(run, true, why);
}

int bring_manifest(const char *run, struct why *why)
{
    return bring(run, false, why);
}
