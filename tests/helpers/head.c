#include "tests/helpers/head.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/link/cert.h"

#define RUN_ID UINT64_C(0xfeedfacecafe1234)

/* ---- peers ---- */

struct head_peer *head_find(struct head *head, const char *name)
{
    for (int i = 0; i < head->peer_count; i++)
        if (strcmp(head->peers[i].name, name) == 0)
            return &head->peers[i];
    return NULL;
}

static struct head_peer *find_or_add(struct head *head, const char *name)
{
    struct head_peer *peer = head_find(head, name);
    if (peer)
        return peer;
    assert_true(head->peer_count < HEAD_PEERS);
    peer = &head->peers[head->peer_count++];
    *peer = (struct head_peer){.head = head};
    snprintf(peer->name, sizeof peer->name, "%s", name);
    for (int i = 0; i < HEAD_STEPS; i++)
        peer->loss[i] = peer->norm[i] = peer->validation[i] = (double)NAN;
    return peer;
}

static struct head_peer *peer_of(struct head *head, const struct link *link)
{
    for (int i = 0; i < head->peer_count; i++)
        if (head->peers[i].link == link)
            return &head->peers[i];
    return NULL;
}

/* ---- messages ---- */

static void take_sample(struct head_peer *peer, const struct wire_sample *sample)
{
    assert_true(sample->step < HEAD_STEPS);
    peer->samples++;
    if (sample->kind == STAMP_EVALUATE) {
        peer->validation[sample->step] = sample->loss;
        return;
    }
    peer->newest = *sample;
    peer->loss[sample->step] = sample->loss;
    peer->norm[sample->step] = sample->gradient_norm;
}

static void take_event(struct head_peer *peer, const struct wire_event *event)
{
    struct head *head = peer->head;
    if (head->event_count == HEAD_EVENTS)
        return;
    struct head_event *kept = &head->events[head->event_count++];
    *kept = (struct head_event){.at_ns = clock_now_ns(), .event = *event};
    snprintf(kept->from, sizeof kept->from, "%s", peer->name);
}

static int on_message(struct link *link, const struct frame_header *header, const uint8_t *payload, size_t bytes, void *arg,
                      struct why *why)
{
    struct head *head = arg;
    struct head_peer *peer = peer_of(head, link);
    union {
        struct wire_sample sample;
        struct wire_event event;
        struct wire_ready ready;
        struct wire_process process;
        struct wire_knob_used used;
        struct wire_road_sample road;
        struct wire_done done;
        struct wire_saved saved;
        struct wire_host host;
    } message;
    assert_non_null(peer);
    int err = wire_decode(header->type, payload, bytes, &message, why);
    assert_int_equal(err, 0);
    if (header->type == WIRE_SAMPLE)
        take_sample(peer, &message.sample);
    else if (header->type == WIRE_EVENT)
        take_event(peer, &message.event);
    else if (header->type == WIRE_DONE)
        peer->done = true;
    else if (header->type == WIRE_KNOB_USED)
        head->knob_used = message.used;
    else if (header->type == WIRE_HOST)
        head->host = message.host;
    if (header->type == WIRE_READY) {
        peer->ready = message.ready.state;
        peer->ready_message = message.ready;
    }
    if (header->type == WIRE_PROCESS && head->process_count < HEAD_EVENTS)
        head->processes[head->process_count++] = message.process;
    if (header->type == WIRE_ROAD_SAMPLE && message.road.lane == LANE_ACT) {
        peer->act_sent = message.road.sent_bytes - message.road.evaluation_bytes;
        peer->act_dense = message.road.dense_bytes;
    }
    return 0;
}

static void forget(struct head *head, const struct link *link)
{
    for (int i = 0; i < HEAD_PEERS; i++)
        if (head->greeting[i] == link)
            head->greeting[i] = NULL;
}

static int on_up(struct link *link, const struct wire_hello *hello, void *arg, struct why *why)
{
    struct head *head = arg;
    (void)why;
    struct head_peer *peer = find_or_add(head, hello->name);
    forget(head, link);
    if (peer->link)
        link_free(peer->link);
    peer->link = link;
    peer->hello = *hello;
    peer->hellos++;
    return 0;
}

static void on_down(struct link *link, int err, const char *reason, void *arg)
{
    struct head *head = arg;
    struct head_peer *peer = peer_of(head, link);
    (void)reason;
    forget(head, link);
    if (peer) {
        peer->said_bye = err == 0;
        peer->link = NULL;
    }
    link_free(link);
}

static void on_road(struct road *road, const char *from, void *arg)
{
    static const struct link_callbacks callbacks = {.up = on_up, .message = on_message, .down = on_down};
    struct head *head = arg;
    struct why why = {0};
    (void)from;
    if (head->deaf) {
        road_free(road);
        return;
    }
    if (head->credentials)
        road = road_tls(head->loop, road, head->credentials, true, &why);
    assert_non_null(road);
    struct link_settings settings = {.run_id = head->run_id,
                                     .incarnation = 1,
                                     .heartbeat_ns = head->timeouts.heartbeat_ns,
                                     .silent_ns = head->timeouts.silent_ns,
                                     .greet_ns = head->timeouts.greet_ns};
    settings.hello = (struct wire_hello){.version = WIRE_VERSION,
                                         .role = ROLE_SCHEDULER,
                                         .program = "head",
                                         .name = "kedged",
                                         .host = "kedged",
                                         .pid = (uint32_t)getpid()};
    int i = 0;
    while (i < HEAD_PEERS && head->greeting[i])
        i++;
    assert_true(i < HEAD_PEERS);
    head->greeting[i] = link_new(head->loop, road, &settings, &callbacks, head);
}

/* ---- processes ---- */

const char *head_program(void)
{
    static char path[1100];
    char beside[1024];
    const char *folder = getenv("O");
    if (folder)
        snprintf(path, sizeof path, "%s/kedge-worker", folder);
    else if (file_program_folder(beside, sizeof beside, NULL) == 0)
        snprintf(path, sizeof path, "%s/../../kedge-worker", beside);
    if (access(path, X_OK) != 0) {
        printf("%s is not built\n", path);
        exit(77);
    }
    return path;
}

pid_t head_run_program(const char *program, const char *const *words, int out)
{
    const char *argv[40] = {program};
    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (out >= 0)
            dup2(out, STDOUT_FILENO);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

struct head_peer *head_start_stage(struct head *head, const char *name, const char *host)
{
    char timeout[32];
    snprintf(timeout, sizeof timeout, "%lums", (unsigned long)(head->timeout_ns / CLOCK_MS));
    struct head_peer *peer = find_or_add(head, name);
    const char *words[] = {"stage",
                           "--folder",
                           head->place.folder,
                           "--name",
                           name,
                           "--host",
                           host,
                           "--head",
                           listener_address(head->listener),
                           "--incarnation",
                           "1",
                           "--listen",
                           "127.0.0.1:0",
                           "--timeout",
                           timeout,
                           head->credentials ? NULL : "--plain",
                           NULL};
    peer->pid = head_run_program(head_program(), words, -1);
    return peer;
}

void head_say(struct head_peer *peer, enum wire_type type, const void *message)
{
    assert_non_null(peer->link);
    assert_int_equal(link_send(peer->link, type, message, 0, 0), 0);
}

void head_stop(struct head *head, uint32_t grace_ms)
{
    struct wire_stop stop = {.grace_ms = grace_ms, .reason = "the test is over"};
    for (int i = 0; i < head->peer_count; i++)
        if (head->peers[i].link)
            head_say(&head->peers[i], WIRE_STOP, &stop);
}

static void reap(struct head *head)
{
    for (int i = 0; i < head->peer_count; i++)
        if (head->peers[i].pid > 0 && waitpid(head->peers[i].pid, &head->peers[i].status, WNOHANG) == head->peers[i].pid)
            head->peers[i].pid = 0;
}

/* ---- time ---- */

void head_show_logs(struct head *head)
{
    char command[700];
    snprintf(command, sizeof command, "cat %s/log/*.log >&2", head->place.folder);
    if (system(command) != 0)
        fprintf(stderr, "no logs\n");
}

void head_until(struct head *head, bool (*when)(struct head *head, void *arg), void *arg, uint64_t limit_ns,
                const char *what)
{
    uint64_t until_ns = clock_now_ns() + limit_ns;
    for (;;) {
        reap(head);
        if (when(head, arg))
            return;
        if (clock_now_ns() >= until_ns)
            break;
        loop_run_once(head->loop, 20 * CLOCK_MS);
    }
    head_show_logs(head);
    fail_msg("not in time: %s", what);
}

void head_for(struct head *head, uint64_t ns)
{
    uint64_t until_ns = clock_now_ns() + ns;
    while (clock_now_ns() < until_ns)
        loop_run_once(head->loop, 20 * CLOCK_MS);
    reap(head);
}

const struct head_event *head_event(const struct head *head, const char *from, const char *code)
{
    for (int i = 0; i < head->event_count; i++)
        if (strcmp(head->events[i].from, from) == 0 && strcmp(head->events[i].event.code, code) == 0)
            return &head->events[i];
    return NULL;
}

/* ---- life ---- */

static void make_credentials(struct head *head)
{
    static const char *const hosts[] = {"kedged", "a", "b"};
    char folder[300];
    struct why why = {0};
    snprintf(folder, sizeof folder, "%s/creds", head->place.folder);
    int err = file_make_folders(folder, 0700, &why);
    if (!err)
        err = cert_make_authority(folder, head->run_id, &why);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts && !err; i++)
        err = cert_make_host(folder, hosts[i], &why);
    if (!err)
        head->credentials = credentials_load_folder(folder, "kedged", &why);
    if (!head->credentials)
        fail_msg("%s", why.text);
}

void head_begin(struct head *head, uint64_t timeout_ns, bool plain)
{
    static const char id[] = "feedfacecafe1234\n";
    struct why why = {0};
    *head = (struct head){.timeout_ns = timeout_ns, .timeouts = timeouts_derive(timeout_ns), .run_id = RUN_ID};
    assert_int_equal(place_init(&head->place), 0);
    assert_int_equal(file_write(place_file(&head->place, "run.id"), id, sizeof id - 1, 0600, NULL), 0);
    if (!plain)
        make_credentials(head);
    head->loop = loop_new(&why);
    assert_non_null(head->loop);
    head->listener = listener_tcp(head->loop, "127.0.0.1:0", on_road, head, &why);
    if (!head->listener)
        fail_msg("%s", why.text);
}

void head_end(struct head *head)
{
    for (int i = 0; i < head->peer_count; i++) {
        if (head->peers[i].pid > 0) {
            kill(head->peers[i].pid, SIGKILL);
            waitpid(head->peers[i].pid, &head->peers[i].status, 0);
        }
        link_free(head->peers[i].link);
    }
    for (int i = 0; i < HEAD_PEERS; i++)
        link_free(head->greeting[i]);
    listener_free(head->listener);
    loop_run_once(head->loop, 0);
    loop_free(head->loop);
    credentials_free(head->credentials);
    place_clear(&head->place);
}
