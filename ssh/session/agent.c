#include "ssh/session/agent.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/buf.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/link/road.h"
#include "ssh/session/blob.h"

#define MESSAGE_BYTES ((size_t)256 << 10) /* what OpenSSH's agent allows */

enum { AGENT_LIST = 11, AGENT_LIST_ANSWER = 12, AGENT_SIGN = 13, AGENT_SIGN_ANSWER = 14 };
enum { AGENT_RSA_SHA256 = 2, AGENT_RSA_SHA512 = 4 };

struct agent {
    struct road *road;
    struct loop_timer *timer;
    uint64_t deadline_ns;
    agent_cb *cb;
    void *arg;
    uint8_t asked; /* the request under way; 0 = none */
    struct buf out, in;
    struct agent_key *keys;
    int count;
    uint8_t signature[KNOWN_KEY];
    size_t signature_bytes;
};

static void answer(struct agent *agent, int err, const char *reason)
{
    agent->asked = 0;
    loop_timer_unset(agent->timer);
    road_want(agent->road, false, false);
    agent->cb(err, reason, agent->arg); /* may free `agent` */
}

static bool read_keys(struct agent *agent, struct blob body)
{
    uint32_t count;
    if (!blob_u32(&body, &count))
        return false;
    agent->count = 0;
    for (uint32_t i = 0; i < count && agent->count < AGENT_KEYS; i++) {
        struct agent_key *key = &agent->keys[agent->count];
        struct blob public, comment, view, type;
        if (!blob_string(&body, &public) || !blob_string(&body, &comment))
            return false;
        view = public;
        if (public.left > sizeof key->blob || !blob_string(&view, &type) || type.left >= sizeof key->type)
            continue;
        memcpy(key->blob, public.at, public.left);
        key->bytes = public.left;
        text_harmless((const char *)type.at, type.left, key->type, sizeof key->type);
        text_harmless((const char *)comment.at, comment.left, key->comment, sizeof key->comment);
        agent->count++;
    }
    return true;
}

/* A string that holds the algorithm and the bare signature. */
static bool read_signature(struct agent *agent, struct blob body)
{
    struct blob both, algorithm, signature;
    if (!blob_string(&body, &both) || !blob_string(&both, &algorithm) || !blob_string(&both, &signature) ||
        signature.left > sizeof agent->signature)
        return false;
    memcpy(agent->signature, signature.at, signature.left);
    agent->signature_bytes = signature.left;
    return true;
}

static void take_message(struct agent *agent, struct blob message)
{
    uint8_t asked = agent->asked, type = message.left ? message.at[0] : 0;
    if (!blob_skip(&message, 1))
        answer(agent, ERR_INVALID, "the ssh-agent sent an empty answer");
    else if (asked == AGENT_LIST && type == AGENT_LIST_ANSWER && read_keys(agent, message))
        answer(agent, 0, "");
    else if (asked == AGENT_SIGN && type == AGENT_SIGN_ANSWER && read_signature(agent, message))
        answer(agent, 0, "");
    else
        answer(agent, ERR_REFUSED,
               asked == AGENT_SIGN ? "the ssh-agent refuses to sign with this key"
                                   : "the ssh-agent refuses to list its keys");
}

/* True when the agent was answered (and may be gone). */
static bool take_what_came(struct agent *agent)
{
    uint8_t bytes[4096];
    struct why why = {0};
    ssize_t got = road_read(agent->road, bytes, sizeof bytes, &why);
    if (got == ERR_AGAIN)
        return false;
    if (got < 0) {
        char reason[200];
        snprintf(reason, sizeof reason, "the ssh-agent %.150s", why.text);
        answer(agent, ERR_GONE, reason);
        return true;
    }
    struct blob blob;
    uint32_t length;
    bool fits = buf_put(&agent->in, bytes, (size_t)got) == 0;
    blob = (struct blob){buf_peek(&agent->in), buf_used(&agent->in)};
    if (!fits || (blob_u32(&blob, &length) && length > MESSAGE_BYTES)) {
        answer(agent, ERR_INVALID, "the ssh-agent's answer is too long");
        return true;
    }
    blob = (struct blob){buf_peek(&agent->in), buf_used(&agent->in)};
    struct blob message;
    if (!blob_string(&blob, &message))
        return false;
    take_message(agent, message);
    return true;
}

static void on_ready(void *arg)
{
    struct agent *agent = arg;
    struct why why = {0};
    if (!agent->asked || take_what_came(agent))
        return;
    while (buf_used(&agent->out)) {
        ssize_t sent = road_write(agent->road, buf_peek(&agent->out), buf_used(&agent->out), &why);
        if (sent < 0)
            break; /* not now; a failure shows when reading */
        buf_consume(&agent->out, (size_t)sent);
    }
    road_want(agent->road, true, buf_used(&agent->out) > 0);
}

static void on_deadline(void *arg)
{
    answer(arg, ERR_TIMEOUT, "the ssh-agent does not answer");
}

struct agent *agent_new(struct loop *loop, const char *socket_path, uint64_t deadline_ns, agent_cb *cb, void *arg,
                        struct why *why)
{
    struct road *road = road_unix_dial(loop, socket_path, why);
    if (!road)
        return NULL;
    struct agent *agent = mem_new(sizeof *agent);
    *agent = (struct agent){.road = road, .deadline_ns = deadline_ns, .cb = cb, .arg = arg};
    agent->keys = mem_array(AGENT_KEYS, sizeof *agent->keys);
    agent->timer = loop_timer_new(loop, on_deadline, agent);
    buf_init(&agent->out, MESSAGE_BYTES + 4);
    buf_init(&agent->in, MESSAGE_BYTES + 8192);
    road_on_ready(road, on_ready, agent);
    return agent;
}

void agent_free(struct agent *agent)
{
    if (!agent)
        return;
    road_free(agent->road);
    loop_timer_free(agent->timer);
    buf_clear(&agent->out);
    buf_clear(&agent->in);
    mem_free(agent->keys);
    mem_free(agent);
}

static void ask(struct agent *agent, uint8_t type, const struct buf *body)
{
    BUG_IF(agent->asked);
    agent->asked = type;
    buf_consume(&agent->in, buf_used(&agent->in));
    buf_consume(&agent->out, buf_used(&agent->out));
    blob_put_u32(&agent->out, (uint32_t)(1 + (body ? buf_used(body) : 0)));
    buf_put(&agent->out, &type, 1);
    if (body)
        buf_put(&agent->out, buf_peek(body), buf_used(body));
    loop_timer_set(agent->timer, agent->deadline_ns);
    road_want(agent->road, true, true);
}

void agent_list(struct agent *agent)
{
    ask(agent, AGENT_LIST, NULL);
}

const struct agent_key *agent_keys(const struct agent *agent, int *count)
{
    *count = agent->count;
    return agent->keys;
}

/* string session, byte, string user, string service, string "publickey", byte, string algorithm, … (RFC 4252 §7) */
static uint32_t flags_for(const uint8_t *data, size_t bytes)
{
    struct blob blob = {data, bytes}, word;
    bool whole = blob_string(&blob, &word) && blob_skip(&blob, 1);
    for (int i = 0; i < 3 && whole; i++)
        whole = blob_string(&blob, &word);
    if (!whole || !blob_skip(&blob, 1) || !blob_string(&blob, &word))
        return 0;
    return blob_is(word, "rsa-sha2-512") ? AGENT_RSA_SHA512 : blob_is(word, "rsa-sha2-256") ? AGENT_RSA_SHA256 : 0;
}

void agent_sign(struct agent *agent, const uint8_t *blob, size_t blob_bytes, const uint8_t *data, size_t bytes)
{
    struct buf body;
    buf_init(&body, MESSAGE_BYTES);
    blob_put_string(&body, blob, blob_bytes);
    blob_put_string(&body, data, bytes);
    blob_put_u32(&body, flags_for(data, bytes));
    ask(agent, AGENT_SIGN, &body);
    buf_clear(&body);
}

const uint8_t *agent_signature(const struct agent *agent, size_t *bytes)
{
    *bytes = agent->signature_bytes;
    return agent->signature;
}
