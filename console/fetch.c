#include "console/fetch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "console/draft.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/launch/nonce.h"
#include "ssh/launch/script.h"
#include "ssh/session/exec.h"

#define PIECE_BYTES ((size_t)1 << 20) /* of one file in one round */
#define ROUND_BYTES ((size_t)16 << 20)
#define FILES_MOST 64
#define NAME_BYTES 80

struct fetch_file {
    char name[NAME_BYTES];
    uint64_t bytes; /* so much of it is here */
};

struct fetch_host {
    struct fetch *fetch;
    struct reach_settings settings;
    char *folder;
    struct reach *reach;
    struct exec *exec;
    struct fetch_file files[FILES_MOST];
    int count;
    bool waiting, lost;
};

struct fetch {
    struct loop *loop;
    char run[64], home[RUNS_PATH]; /* home: the run's folder here, or "" */
    char *base, *scratch;          /* scratch: to be removed */
    struct fetch_host *hosts;
    int count;
};

static void lose(struct fetch_host *host, const char *reason)
{
    if (!host->lost)
        fprintf(stderr, "kedge: no logs of host %s: %s\n", host->settings.name, reason);
    host->lost = true;
    host->waiting = false;
}

static bool is_log_name(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && length < NAME_BYTES && name[0] != '.' && strspn(name, PROFILE_NAME_LETTERS "@") == length &&
           strcmp(name + length - 4, ".log") == 0;
}

static struct fetch_file *file_of(struct fetch_host *host, const char *name)
{
    for (int i = 0; i < host->count; i++)
        if (strcmp(host->files[i].name, name) == 0)
            return &host->files[i];
    if (host->count == FILES_MOST)
        return NULL;
    struct fetch_file *file = &host->files[host->count++];
    *file = (struct fetch_file){.bytes = 0};
    snprintf(file->name, sizeof file->name, "%s", name);
    return file;
}

/* From `from` on; from the file's beginning (it was rotated, or is new) the copy begins anew. */
static void write_piece(struct fetch_host *host, const char *name, uint64_t from, uint64_t size, const char *bytes, size_t count)
{
    struct fetch_file *file = file_of(host, name);
    if (!file)
        return;
    char *path = mem_format("%s/%s", host->folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (from == file->bytes && from ? 0 : O_TRUNC), 0600);
    while (fd >= 0 && count) {
        ssize_t put = write(fd, bytes, count);
        if (put <= 0)
            break;
        bytes += put;
        count -= (size_t)put;
    }
    if (fd >= 0)
        close(fd);
    file->bytes = size;
    mem_free(path);
}

/* "NAME FROM COUNT\n" and the bytes, again and again. False when it is not that. */
static bool take_output(struct fetch_host *host, const char *output, size_t bytes)
{
    const char *end = output + bytes;
    while (output < end) {
        char name[NAME_BYTES];
        uint64_t from, count;
        int used = 0;
        const char *line_end = memchr(output, '\n', (size_t)(end - output));
        if (!line_end || sscanf(output, "%79s %" SCNu64 " %" SCNu64 "%n", name, &from, &count, &used) != 3 || output[used] != '\n' ||
            !is_log_name(name) || count > (uint64_t)(end - line_end - 1))
            return false;
        if (count)
            write_piece(host, name, from, from + count, line_end + 1, (size_t)count);
        output = line_end + 1 + count;
    }
    return true;
}

static void on_exec(struct exec *exec, int err, const char *reason, void *arg)
{
    struct fetch_host *host = arg;
    size_t bytes = 0;
    const char *output = exec_output(exec, &bytes);
    if (err)
        lose(host, reason);
    else if (!take_output(host, output, bytes))
        lose(host, "it answers with something else");
    host->waiting = false;
}

static void on_down(struct reach *reach, int err, const char *reason, void *arg)
{
    (void)reach, (void)err;
    lose(arg, reason);
}

/* What is here already is not asked for again. */
static char *make_script(const struct fetch_host *host)
{
    struct buf script;
    char *guard = nonce_guard(host->fetch->home, host->settings.name);
    buf_init(&script, 32768);
    buf_format(&script, "%s", guard);
    mem_free(guard);
    buf_format(&script, "cd \"$R/log\" 2>/dev/null || exit 0; for f in *.log; do [ -f \"$f\" ] || continue; s=$(wc -c <\"$f\"); o=0; case \"$f\" in ");
    for (int i = 0; i < host->count; i++)
        buf_format(&script, "%s) o=%" PRIu64 ";; ", host->files[i].name, host->files[i].bytes);
    buf_format(&script, "esac; [ $s -ge $o ] || o=0; [ $o != 0 ] || [ $s -le %zu ] || o=$((s-%zu)); n=$((s-o)); [ $n -le %zu ] || n=%zu; "
                        "echo \"$f $o $n\"; tail -c +$((o+1)) \"$f\" | head -c $n; done", PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES);
    buf_put(&script, "", 1);
    char *whole = script_of_run(host->fetch->run, (const char *)buf_peek(&script));
    buf_clear(&script);
    return whole;
}

static void begin_host(struct fetch_host *host)
{
    const struct reach_callbacks callbacks = {.down = on_down};
    struct why why = {0};
    if (!host->reach)
        host->reach = reach_new(host->fetch->loop, &host->settings, &callbacks, host, &why);
    if (!host->reach) {
        lose(host, why.text);
        return;
    }
    char *script = make_script(host);
    exec_free(host->exec);
    host->waiting = true;
    host->exec = exec_run(reach_session(host->reach), "fetching logs", script, NULL, 0, ROUND_BYTES, 4 * host->settings.greet_ns, on_exec,
                          host);
    mem_free(script);
}

void fetch_round(struct fetch *fetch)
{
    bool waiting = true;
    for (int i = 0; i < fetch->count; i++)
        if (!fetch->hosts[i].lost)
            begin_host(&fetch->hosts[i]);
    while (waiting) {
        waiting = false;
        for (int i = 0; i < fetch->count; i++)
            waiting |= fetch->hosts[i].waiting;
        if (waiting)
            loop_run_once(fetch->loop, CLOCK_SECOND);
    }
}

const char *fetch_folder(const struct fetch *fetch, int index)
{
    return index < fetch->count ? fetch->hosts[index].folder : NULL;
}

static void add_host(struct fetch *fetch, const struct reach_settings *settings)
{
    struct fetch_host *host = &fetch->hosts[fetch->count++];
    *host = (struct fetch_host){.fetch = fetch, .settings = *settings};
    runs_known_hosts(host->settings.save, sizeof host->settings.save);
    host->folder = mem_format("%s/%s", fetch->base, fetch->scratch ? "host" : settings->name);
    file_remove_tree(host->folder, NULL); /* copies: the logs themselves are on the host */
    file_make_folders(host->folder, 0700, NULL);
}

static void add_hosts(struct fetch *fetch, const struct place *place)
{
    struct profile *profile = mem_new(sizeof *profile);
    char *path = mem_format("%s/run.ini", place->folder);
    if (draft_read_quietly(path, profile, &(struct why){0}) == 0)
        for (int64_t i = 0; i < profile->host_count; i++) {
            struct reach_settings settings = {0};
            if (profile->hosts[i].kind != HOST_SSH)
                continue;
            reach_of_host(profile, &profile->hosts[i], &settings);
            add_host(fetch, &settings);
        }
    mem_free(path);
    mem_free(profile);
}

struct fetch *fetch_new(struct loop *loop, const struct place *place)
{
    struct fetch *fetch = mem_new(sizeof *fetch);
    const char *temporary = getenv("TMPDIR");
    *fetch = (struct fetch){.loop = loop};
    snprintf(fetch->run, sizeof fetch->run, "%s", place->run);
    memcpy(fetch->home, place->folder, sizeof fetch->home);
    fetch->hosts = mem_array(PROFILE_HOSTS, sizeof *fetch->hosts);
    if (place->folder[0]) {
        fetch->base = mem_format("%s/hosts", place->folder);
        add_hosts(fetch, place);
    } else {
        fetch->scratch = mem_format("%s/kedge.XXXXXX", temporary && *temporary ? temporary : "/tmp");
        fetch->base = mem_text(mkdtemp(fetch->scratch) ? fetch->scratch : "/nowhere");
        add_host(fetch, &place->reach);
    }
    if (fetch->count)
        return fetch;
    fetch_free(fetch);
    return NULL;
}

void fetch_free(struct fetch *fetch)
{
    if (!fetch)
        return;
    for (int i = 0; i < fetch->count; i++) {
        exec_free(fetch->hosts[i].exec);
        reach_free(fetch->hosts[i].reach);
        mem_free(fetch->hosts[i].folder);
    }
    if (fetch->scratch)
        file_remove_tree(fetch->scratch, NULL);
    mem_free(fetch->hosts);
    mem_free(fetch->scratch);
    mem_free(fetch->base);
    mem_free(fetch);
}
