#include "scheduler/kedged.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "profiles/timeouts.h"
#include "scheduler/folder.h"
#include "scheduler/journal.h"
#include "scheduler/lock.h"
#include "scheduler/money.h"
#include "scheduler/plan.h"
#include "scheduler/run.h"
#include "scheduler/viewers.h"
#include "ssh/base/clock.h"
#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/version.h"
#include "ssh/link/cert.h"
#include "ssh/link/link.h"
#include "ssh/link/loop.h"
#include "ssh/link/road.h"

#define PEERS_MAX 512          /* roads of processes and of strangers that have not said who they are */
#define CLOSE_NS CLOCK_SECOND  /* for last words */
#define VIEWER_QUEUE_BYTES (4 * 1024 * 1024)
#define PEER_QUEUE_BYTES (16 * 1024 * 1024)
#define PAYLOAD_BYTES 4096     /* the largest struct of a message that processes send to us */

struct peer { /* the handle of the run */
    struct kedged *kedged;
    struct peer *next;
    struct link *link;
    bool taken;       /* the run knows it */
    bool welcome_due; /* …and has yet to tell it what to do */
};

struct kedged {
    const char *folder;
    char lock_path[FOLDER_PATH];
    int lock;
    uint64_t run_id;
    struct profile profile;
    struct plan plan;
    struct timeouts timeouts;
    struct record *record;
    struct journal *journal;
    struct run *run;
    struct credentials *credentials; /* NULL = plain roads */
    struct loop *loop;
    struct loop_timer *tick;
    struct listener *control, *socket;
    struct viewers *viewers;
    struct peer *peers;
    size_t peer_count;
    struct link_settings settings;
    bool turn_due;          /* end_turn will be called */
    bool journal_failed;    /* and people know */
    uint64_t wrote_ns, end_ns;
    uint64_t lost_samples;  /* that people know of */
    bool fused;             /* the deadline has passed, and the run was told to stop */
};

/* ---- the journal ---- */

static void write_journal(struct kedged *kedged)
{
    struct why why = {0};
    kedged->wrote_ns = clock_now_ns();
    int err = journal_write(kedged->journal, kedged->record, &why);
    if (err == ERR_AGAIN)
        return;
    if (err < 0 && !kedged->journal_failed) {
        char text[WIRE_TEXT];
        record_text(text, sizeof text, "%s; training goes on, the journal is written when it can be", why.text);
        run_note(kedged->run, EVENT_ALERT, "journal", text);
    } else if (err == 0 && kedged->journal_failed) {
        char text[WIRE_TEXT];
        uint64_t lost = journal_lost_samples(kedged->journal) - kedged->lost_samples;
        kedged->lost_samples += lost;
        record_text(text, sizeof text, "the journal is written again; %llu samples were lost meanwhile",
                    (unsigned long long)lost);
        run_note(kedged->run, EVENT_INFO, "journal", text);
    }
    kedged->journal_failed = err < 0;
}

/* The end of a turn of the loop: welcome who was taken, write what must not be lost. */
static void end_turn(void *arg)
{
    struct kedged *kedged = arg;
    kedged->turn_due = false;
    for (struct peer *peer = kedged->peers; peer; peer = peer->next) {
        if (!peer->welcome_due)
            continue;
        peer->welcome_due = false;
        run_welcome(kedged->run, peer);
    }
    if (kedged->record->urgent && (!kedged->journal_failed || clock_now_ns() - kedged->wrote_ns >= CLOCK_SECOND))
        write_journal(kedged);
}

static void want_end_of_turn(struct kedged *kedged)
{
    if (!kedged->turn_due)
        loop_later(kedged->loop, end_turn, kedged);
    kedged->turn_due = true;
}

/* ---- the run's sink ---- */

static void sink_send(void *handle, enum wire_type type, const void *payload, void *arg)
{
    struct peer *peer = handle;
    (void)arg;
    if (link_send(peer->link, type, payload, 0, 0) == ERR_FULL)
        link_close(peer->link, ERR_FULL, "kedged cannot get rid of what it has to say", CLOSE_NS);
}

static void sink_close(void *handle, int err, const char *reason, void *arg)
{
    struct peer *peer = handle;
    (void)arg;
    peer->taken = peer->welcome_due = false;
    link_close(peer->link, err, reason, CLOSE_NS);
}

static uint64_t sink_heard_ns_ago(void *handle, void *arg)
{
    (void)arg;
    return link_heard_ns_ago(((struct peer *)handle)->link);
}

static bool sink_clock(void *handle, int64_t *offset_ns, uint64_t *rtt_ns, void *arg)
{
    const struct link *link = ((struct peer *)handle)->link;
    (void)arg;
    *rtt_ns = link_rtt_ns(link);
    return link_clock_offset_ns(link, offset_ns);
}

static void sink_sample(const char *process, const struct wire_sample *sample, void *arg)
{
    journal_add_sample(((struct kedged *)arg)->journal, process, sample);
}

static void sink_road_sample(const char *process, const struct wire_road_sample *sample, void *arg)
{
    journal_add_road_sample(((struct kedged *)arg)->journal, process, sample);
}

static int sink_saved(const struct saving *saving, void *arg, struct why *why)
{
    const struct kedged *kedged = arg;
    const struct saving_run run = {kedged->run_id, &kedged->profile, run_profile(kedged->run), &kedged->plan, &kedged->record->state.row};
    return saving_write_manifest(kedged->folder, &run, saving, why);
}

static uint64_t sink_oldest_set(void *arg)
{
    return saving_oldest(((const struct kedged *)arg)->folder);
}

/* ---- roads of processes ---- */

static int peer_up(struct link *link, const struct wire_hello *hello, void *arg, struct why *why)
{
    struct peer *peer = arg;
    int err = run_hello(peer->kedged->run, peer, hello, link_peer_incarnation(link), why);
    if (err == 0)
        peer->taken = peer->welcome_due = true;
    want_end_of_turn(peer->kedged);
    return err;
}

static int peer_message(struct link *link, const struct frame_header *header, const uint8_t *bytes, size_t count, void *arg,
                        struct why *why)
{
    struct peer *peer = arg;
    _Alignas(max_align_t) uint8_t payload[PAYLOAD_BYTES];
    const struct wire_message *message = wire_find(header->type);
    (void)link;
    if (!message || message->struct_bytes > sizeof payload)
        return why_set(why, ERR_INVALID, "message type %u is not for kedged", header->type);
    int err = wire_decode(header->type, bytes, count, payload, why);
    if (err == 0)
        err = run_message(peer->kedged->run, peer, (enum wire_type)header->type, payload, why);
    want_end_of_turn(peer->kedged);
    return err;
}

static void peer_free(struct peer *peer)
{
    struct kedged *kedged = peer->kedged;
    struct peer **at = &kedged->peers;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    kedged->peer_count--;
    link_free(peer->link);
    mem_free(peer);
}

static void peer_down(struct link *link, int err, const char *reason, void *arg)
{
    struct peer *peer = arg;
    struct kedged *kedged = peer->kedged;
    (void)link;
    if (peer->taken)
        run_gone(kedged->run, peer, err, reason);
    peer_free(peer);
    want_end_of_turn(kedged);
}

static void accept_peer(struct road *road, const char *from, void *arg)
{
    static const struct link_callbacks callbacks = {.up = peer_up, .message = peer_message, .down = peer_down};
    struct kedged *kedged = arg;
    struct why why = {0};
    if (kedged->peer_count >= PEERS_MAX) {
        log_at(LOG_WARN, "road", "%s is not taken: there are %d roads already", from, PEERS_MAX);
        road_free(road);
        return;
    }
    if (kedged->credentials) {
        road = road_tls(kedged->loop, road, kedged->credentials, true, &why);
        if (!road) {
            log_at(LOG_ERROR, "road", "%s: %s", from, why.text);
            return;
        }
    }
    struct peer *peer = mem_new(sizeof *peer);
    peer->kedged = kedged;
    peer->next = kedged->peers;
    kedged->peers = peer;
    kedged->peer_count++;
    peer->link = link_new(kedged->loop, road, &kedged->settings, &callbacks, peer);
}

static void accept_viewer(struct road *road, const char *from, void *arg)
{
    (void)from;
    viewers_add(((struct kedged *)arg)->viewers, road);
}

static void take_order(const struct wire_order *order, struct wire_reply *reply, void *arg)
{
    struct kedged *kedged = arg;
    run_order(kedged->run, order, reply);
    want_end_of_turn(kedged);
}

/* ---- time and signals ---- */

/* Everything is over: last words to those who look, then the loop ends. */
static void come_to_end(struct kedged *kedged)
{
    if (kedged->end_ns == 0) {
        const struct wire_run_state *state = &kedged->record->state.row;
        char reason[WIRE_TEXT];
        record_text(reason, sizeof reason, "run %s is %s: %s", state->run, wire_phase_name(state->phase), state->reason);
        write_journal(kedged);
        log_at(LOG_INFO, "kedged", "%s", reason);
        kedged->end_ns = clock_now_ns() + 2 * CLOSE_NS;
        viewers_end(kedged->viewers, reason, CLOSE_NS);
    }
    viewers_tick(kedged->viewers);
    if (viewers_count(kedged->viewers) == 0 || clock_now_ns() >= kedged->end_ns)
        loop_stop(kedged->loop);
}

/* The deadline or the budget; the hosts hold it, too, a little later, when nobody is here to do it in good order. */
static void check_fuse(struct kedged *kedged)
{
    uint64_t fuse_ms = profile_fuse_ns(&kedged->profile) / CLOCK_MS, since_ms = kedged->record->state.row.started_wall_ms;
    struct wire_order order = {.kind = ORDER_STOP, .who = "the run's deadline or budget"};
    struct wire_reply reply;
    bool due = fuse_ms && clock_wall_ms() >= since_ms + fuse_ms;
    if (kedged->fused || (!due && !money_is_up(&kedged->profile, kedged->record)))
        return;
    kedged->fused = true;
    run_note(kedged->run, EVENT_ALERT, "deadline", "the run's deadline or budget is used up: it is stopped");
    take_order(&order, &reply, kedged);
}

static void on_tick(void *arg)
{
    struct kedged *kedged = arg;
    check_fuse(kedged);
    loop_timer_set(kedged->tick, run_is_over(kedged->run) ? VIEWERS_TICK_NS / 10 : VIEWERS_TICK_NS);
    run_tick(kedged->run);
    if (run_is_over(kedged->run)) {
        come_to_end(kedged);
        return;
    }
    viewers_tick(kedged->viewers);
    if (clock_now_ns() - kedged->wrote_ns >= CLOCK_SECOND)
        write_journal(kedged);
    want_end_of_turn(kedged);
}

static void on_signal(int number, void *arg)
{
    struct kedged *kedged = arg;
    struct wire_order order = {.kind = ORDER_STOP};
    struct wire_reply reply;
    record_text(order.who, sizeof order.who, "signal %d (%s)", number, sigdescr_np(number));
    take_order(&order, &reply, kedged);
}

/* ---- start ---- */

static int read_folder(struct kedged *kedged, struct why *why)
{
    int err = folder_read_id(kedged->folder, &kedged->run_id, why);
    if (err == 0)
        err = folder_read_profile(kedged->folder, &kedged->profile, why);
    if (err == 0)
        err = plan_make(&kedged->profile, &kedged->plan, why);
    if (err < 0)
        return err;
    log_set_level((enum log_level)kedged->profile.log_level);
    kedged->timeouts = timeouts_derive(kedged->profile.timeout_ns);
    kedged->settings = (struct link_settings){
        .run_id = kedged->run_id,
        .incarnation = 1,
        .hello = {.version = WIRE_VERSION, .role = ROLE_SCHEDULER, .program = "kedged " KEDGE_VERSION, .name = "kedged",
                  .host = "kedged", .pid = (uint32_t)getpid(), .profile_hash = profile_hash(&kedged->profile)},
        .heartbeat_ns = kedged->timeouts.heartbeat_ns,
        .silent_ns = kedged->timeouts.silent_ns,
        .greet_ns = kedged->timeouts.greet_ns,
        .queue_max_bytes = PEER_QUEUE_BYTES,
    };
    return 0;
}

static int load_credentials(struct kedged *kedged, struct why *why)
{
    char folder[FOLDER_PATH];
    if (kedged->profile.security == SECURITY_PLAIN)
        return 0;
    snprintf(folder, sizeof folder, "%s/creds", kedged->folder);
    kedged->credentials = credentials_load_folder(folder, "kedged", why);
    return kedged->credentials ? 0 : why->err;
}

/* A former kedged of this run listened somewhere, and the processes know that address: listen there again. */
static void find_address(const struct kedged *kedged, char *out, size_t size)
{
    struct record *old = record_new();
    bool is_ours =
        journal_read(kedged->folder, old, NULL) == 0 && old->state.row.run_id == kedged->run_id && old->control[0];
    snprintf(out, size, "%s", is_ours ? old->control : kedged->profile.listen);
    record_free(old);
}

static int start_listening(struct kedged *kedged, struct why *why)
{
    char address[WIRE_ADDRESS], path[FOLDER_PATH];
    find_address(kedged, address, sizeof address);
    kedged->control = listener_tcp(kedged->loop, address, accept_peer, kedged, why);
    if (!kedged->control)
        return why->err;
    snprintf(path, sizeof path, "%s/kedged.sock", kedged->folder);
    kedged->socket = listener_unix(kedged->loop, path, accept_viewer, kedged, why);
    return kedged->socket ? 0 : why->err;
}

/* What the run goes on from, if it does. */
static int find_set(const struct kedged *kedged, struct saving_resumed *resumed, struct why *why)
{
    const struct saving_run run = {kedged->run_id, &kedged->profile, &kedged->profile, &kedged->plan, &kedged->record->state.row};
    return saving_resume(kedged->folder, &run, resumed, why);
}

static int start_run(struct kedged *kedged, struct why *why)
{
    static const struct run_sink sink = {sink_send, sink_close, sink_heard_ns_ago, sink_clock, sink_sample, sink_road_sample, sink_saved,
                                         sink_oldest_set};
    struct link_settings consoles = kedged->settings;
    bool adopted = false;
    consoles.queue_max_bytes = VIEWER_QUEUE_BYTES;
    int err = journal_open(kedged->folder, kedged->run_id, kedged->record, &adopted, &kedged->journal, why);
    if (err < 0)
        return err;
    if (adopted && kedged->record->profile_hash != profile_hash(&kedged->profile))
        return why_set(why, ERR_REFUSED,
                       "%s/run.ini was changed while the run is under way; put it back, or 'kedge stop %s'", kedged->folder,
                       kedged->profile.name);
    record_text(kedged->record->control, sizeof kedged->record->control, "%s", listener_address(kedged->control));
    struct saving_resumed *resumed = mem_new(sizeof *resumed);
    bool forming = !adopted || kedged->record->state.row.phase == PHASE_FORMING; /* later the set may have been removed */
    err = forming ? find_set(kedged, resumed, why) : 0;
    if (err == 0)
        kedged->run = run_new(&kedged->profile, &kedged->plan, kedged->run_id, kedged->record, resumed, &sink, kedged);
    mem_free(resumed);
    if (err < 0)
        return err;
    kedged->viewers = viewers_new(kedged->loop, kedged->record, &consoles, take_order, kedged);
    kedged->wrote_ns = clock_now_ns();
    return journal_write(kedged->journal, kedged->record, why);
}

static int start_loop(struct kedged *kedged, struct why *why)
{
    kedged->loop = loop_new(why);
    if (!kedged->loop)
        return why->err;
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file limit is a full disk, not a reason to die */
    int err = loop_signal(kedged->loop, SIGTERM, on_signal, kedged, why);
    if (err == 0)
        err = loop_signal(kedged->loop, SIGINT, on_signal, kedged, why);
    kedged->tick = loop_timer_new(kedged->loop, on_tick, kedged);
    return err;
}

static void clean_up(struct kedged *kedged)
{
    viewers_free(kedged->viewers);
    while (kedged->peers)
        peer_free(kedged->peers);
    run_free(kedged->run);
    listener_free(kedged->control);
    listener_free(kedged->socket);
    loop_timer_free(kedged->tick);
    if (kedged->loop) {
        loop_run_once(kedged->loop, 0); /* what was put off to the end of a turn */
        loop_free(kedged->loop);
    }
    credentials_free(kedged->credentials);
    journal_close(kedged->journal);
    record_free(kedged->record);
    if (kedged->lock >= 0)
        lock_remove(kedged->lock_path, kedged->lock); /* last: who sees no lock may start again */
    mem_free(kedged);
}

int kedged_run(const char *folder, void (*ready)(const char *address), struct why *why)
{
    char path[FOLDER_PATH];
    struct kedged *kedged = mem_new(sizeof *kedged);
    kedged->folder = folder;
    kedged->record = record_new();
    kedged->lock = -1;
    snprintf(kedged->lock_path, sizeof kedged->lock_path, "%s/kedged.lock", folder);
    snprintf(path, sizeof path, "%s/log/kedged.log", folder);
    int err = folder_read_id(folder, &kedged->run_id, why);
    if (err == 0)
        err = kedged->lock = lock_take(kedged->lock_path, kedged->run_id, why);
    if (err >= 0)
        err = log_open(path, "kedged", 0, why);
    if (err >= 0)
        err = read_folder(kedged, why);
    if (err >= 0)
        err = load_credentials(kedged, why);
    if (err >= 0)
        err = start_loop(kedged, why);
    if (err >= 0)
        err = start_listening(kedged, why);
    if (err >= 0)
        err = start_run(kedged, why);
    if (err >= 0) {
        ready(listener_address(kedged->control));
        loop_timer_set(kedged->tick, VIEWERS_TICK_NS);
        loop_run(kedged->loop);
        err = 0;
    } else {
        log_at(LOG_ERROR, "kedged", "cannot start: %s", why->text);
    }
    clean_up(kedged);
    log_close();
    return err;
}
