/*
 * Who are we: the keys that the profile names, those of the ssh-agent, the usual key files, and last a password if
 * somebody is
 * here to type it. What was offered is remembered, because "permission denied" alone helps nobody.
 *
 *   LISTING (what the server accepts) → AGENT (its keys) → per key: OFFERING [→ ASKING for a passphrase → OFFERING]
 *   → KEYBOARD (what the server asks, as often as it asks) → PASSWORD (asked, then tried) → known or refused
 *
 * A server that wants more than a key (AuthenticationMethods publickey,keyboard-interactive) does not say so when it has taken the key; the
 * library hides it. So when nothing else was offered at first, it is asked once more what it accepts (LISTING_AGAIN).
 *
 * RSA keys go last: until 1.11 the library signs with SHA-1 only, which servers since OpenSSH 8.8 refuse without saying so.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/log.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/session/agent.h"
#include "ssh/session/inner.h"
#include "ssh/session/key.h"
#include "ssh/session/keyboard.h"

#define KEYS_MOST (SESSION_IDENTITIES + AGENT_KEYS)
#define PASSPHRASES 3 /* tries */
#define PASSWORDS 3
#define LIBSSH2_WITH_RSA_SHA2 0x010b00

enum auth_state {
    AUTH_LISTING, AUTH_AGENT, AUTH_OFFERING, AUTH_ASKING, AUTH_LISTING_AGAIN, AUTH_KEYBOARD, AUTH_ASKING_KEYBOARD, AUTH_ASKING_PASSWORD,
    AUTH_PASSWORD,
};
enum signing { SIGN_NONE, SIGN_ASKED, SIGN_READY, SIGN_FAILED };

struct candidate {
    struct key key;
    const struct agent_key *agent_key; /* the agent has the private half */
    bool named;                        /* by the profile */
};

struct auth {
    struct session *session;
    enum auth_state state;
    struct agent *agent;
    bool agent_answered;
    enum signing signing;
    struct candidate *candidates;
    int count, at, tries;
    char *secret; /* passphrase or password, wiped */
    bool probing; /* the signature is held back: would the server take this key? */
    bool library_has_sha2;
    bool keys_allowed, password_allowed, keyboard_allowed;
    bool wants_more;    /* a key was taken, and does not suffice */
    struct keyboard *keyboard;
    char methods[200];
    int offered, offered_rsa;
    char offers[700], notes[500]; /* for the refusal */
};

static void __attribute__((format(printf, 3, 4))) append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    if (used + 1 < size)
        vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* ---- what can be offered ---- */

static bool is_listed(const struct auth *auth, const uint8_t *blob, size_t bytes)
{
    for (int i = 0; i < auth->count; i++)
        if (bytes && auth->candidates[i].key.bytes == bytes && memcmp(auth->candidates[i].key.blob, blob, bytes) == 0)
            return true;
    return false;
}

static const struct agent_key *find_in_agent(const struct auth *auth, const uint8_t *blob, size_t bytes)
{
    int count = 0;
    const struct agent_key *keys = auth->agent ? agent_keys(auth->agent, &count) : NULL;
    for (int i = 0; i < count && bytes; i++)
        if (keys[i].bytes == bytes && memcmp(keys[i].blob, blob, bytes) == 0)
            return &keys[i];
    return NULL;
}

static void list_files(struct auth *auth, bool optional)
{
    const struct session_settings *settings = &auth->session->settings;
    for (int i = 0; i < SESSION_IDENTITIES && auth->count < KEYS_MOST; i++) {
        struct candidate *one = &auth->candidates[auth->count];
        struct why why = {0};
        if (!settings->identities[i][0] || settings->optional[i] != optional)
            continue;
        int err = key_look(settings->identities[i], &one->key, &why);
        if (err && !(err == ERR_ABSENT && optional))
            append(auth->notes, sizeof auth->notes, "; %s", why.text);
        if (err || is_listed(auth, one->key.blob, one->key.bytes))
            continue;
        one->agent_key = find_in_agent(auth, one->key.blob, one->key.bytes);
        one->named = !optional;
        auth->count++;
    }
}

static void list_agent(struct auth *auth)
{
    int count = 0;
    const struct agent_key *keys = auth->agent ? agent_keys(auth->agent, &count) : NULL;
    for (int i = 0; i < count && auth->count < KEYS_MOST; i++) {
        struct candidate *one = &auth->candidates[auth->count];
        if (is_listed(auth, keys[i].blob, keys[i].bytes))
            continue;
        memset(one, 0, sizeof *one);
        one->agent_key = &keys[i];
        memcpy(one->key.blob, keys[i].blob, keys[i].bytes);
        one->key.bytes = keys[i].bytes;
        snprintf(one->key.type, sizeof one->key.type, "%s", keys[i].type);
        snprintf(one->key.path, sizeof one->key.path, "agent's '%s'", keys[i].comment);
        auth->count++;
    }
}

/* Named keys stay in front; RSA goes behind all others. */
static void put_rsa_last(struct auth *auth)
{
    struct candidate *sorted = mem_array(KEYS_MOST, sizeof *sorted);
    int used = 0;
    for (int rsa = 0; rsa < 2; rsa++)
        for (int i = 0; i < auth->count; i++)
            if (key_is_rsa(auth->candidates[i].key.type) == (rsa == 1))
                sorted[used++] = auth->candidates[i];
    mem_free(auth->candidates);
    auth->candidates = sorted;
}

static void list_candidates(struct auth *auth)
{
    list_files(auth, false);
    list_agent(auth);
    list_files(auth, true);
    put_rsa_last(auth);
    auth->state = AUTH_OFFERING;
}

/* ---- the agent ---- */

static void on_agent(int err, const char *reason, void *arg)
{
    struct auth *auth = arg;
    if (auth->state == AUTH_AGENT) {
        auth->agent_answered = true;
        if (err)
            append(auth->notes, sizeof auth->notes, "; %s", reason);
    } else {
        auth->signing = err ? SIGN_FAILED : SIGN_READY;
        if (err)
            append(auth->notes, sizeof auth->notes, "; %s", reason);
    }
    session_wake(auth->session);
}

static void ask_agent(struct auth *auth)
{
    const struct session_settings *settings = &auth->session->settings;
    struct why why = {0};
    auth->state = AUTH_AGENT;
    if (settings->agent_socket[0])
        auth->agent = agent_new(auth->session->loop, settings->agent_socket, settings->ask_ns, on_agent, auth, &why);
    else
        append(auth->notes, sizeof auth->notes, "; no ssh-agent is running here");
    if (auth->agent)
        agent_list(auth->agent);
    else if (why.err)
        append(auth->notes, sizeof auth->notes, "; the ssh-agent cannot be asked: %s", why.text);
    auth->agent_answered = !auth->agent;
}

/* The library wants a signature now, or to be called again. */
static int on_sign(LIBSSH2_SESSION *ssh, unsigned char **signature, size_t *signature_bytes, const unsigned char *data,
                   size_t bytes, void **abstract)
{
    struct auth *auth = *abstract;
    (void)ssh;
    if (auth->probing || auth->signing == SIGN_FAILED)
        return -1;
    if (auth->signing == SIGN_NONE) {
        const struct agent_key *key = auth->candidates[auth->at].agent_key;
        auth->signing = SIGN_ASKED;
        session_set_deadline(auth->session, auth->session->settings.ask_ns); /* the agent may ask its owner */
        agent_sign(auth->agent, key->blob, key->bytes, data, bytes);
    }
    if (auth->signing != SIGN_READY)
        return LIBSSH2_ERROR_EAGAIN;
    size_t count;
    const uint8_t *made = agent_signature(auth->agent, &count);
    *signature = arena_get(&auth->session->memory, count ? count : 1); /* the library frees it */
    if (!*signature)
        return -1;
    memcpy(*signature, made, count);
    *signature_bytes = count;
    return 0;
}

/* ---- offering keys ---- */

static void note_offer(struct auth *auth)
{
    const struct key *key = &auth->candidates[auth->at].key;
    char words[160] = "";
    if (key->bytes)
        hostkey_words(key->blob, key->bytes, words, sizeof words);
    append(auth->offers, sizeof auth->offers, "%s%s%s%s%s", auth->offers[0] ? ", " : "", key->path, words[0] ? " (" : "",
           words, words[0] ? ")" : "");
    auth->offered++;
    auth->offered_rsa += key_is_rsa(key->type);
}

static void next_candidate(struct auth *auth)
{
    auth->at++;
    auth->tries = 0;
    auth->signing = SIGN_NONE;
    auth->probing = false;
    auth->state = AUTH_OFFERING;
    session_wipe(auth->secret);
    auth->secret = NULL;
    session_set_deadline(auth->session, auth->session->settings.greet_ns);
}

static int call_library(struct auth *auth, const struct candidate *one)
{
    const struct session *session = auth->session;
    const char *user = session->settings.user;
    void *self = auth;
    if (one->agent_key || auth->probing)
        return libssh2_userauth_publickey(session->ssh, user, one->key.blob, one->key.bytes, on_sign, &self);
    return libssh2_userauth_publickey_fromfile_ex(session->ssh, user, (unsigned)strlen(user), NULL, one->key.path,
                                                  auth->secret ? auth->secret : "");
}

static void ask_passphrase(struct auth *auth)
{
    const char *path = auth->candidates[auth->at].key.path;
    if (session_ask(auth->session, ASK_PASSPHRASE, true, "", "%spassphrase of the key %s",
                    auth->tries ? "that was not it; " : "", path)) {
        auth->state = AUTH_ASKING;
        return;
    }
    append(auth->notes, sizeof auth->notes, "; %s needs a passphrase and nobody is here to type it (ssh-add %s)", path,
           path);
    next_candidate(auth);
}

/* The key could not be opened: with a passphrase it was probably the wrong one. */
static void after_bad_file(struct auth *auth)
{
    const struct candidate *one = &auth->candidates[auth->at];
    session_wipe(auth->secret);
    auth->secret = NULL;
    if (one->key.encrypted && ++auth->tries < PASSPHRASES) {
        ask_passphrase(auth);
        return;
    }
    append(auth->notes, sizeof auth->notes,
           one->key.encrypted ? "; the passphrase of %s was not right" : "; %s cannot be read by the SSH library",
           one->key.path);
    next_candidate(auth);
}

static bool is_bad_file(int code)
{
    return code == LIBSSH2_ERROR_FILE || code == LIBSSH2_ERROR_KEYFILE_AUTH_FAILED || code == LIBSSH2_ERROR_METHOD_NONE;
}

/* When the connection ends meanwhile, the library says no as well. */
static bool is_no(const struct session *session, int code)
{
    return (code == LIBSSH2_ERROR_AUTHENTICATION_FAILED || code == LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED) &&
           !(session->road_over && buf_used(&session->in) == 0);
}

/* 0 = in, 1 = go on with what comes next, ERR_AGAIN, or an error of the session. */
static int step_offering(struct auth *auth)
{
    const struct candidate *one = &auth->candidates[auth->at];
    if (one->key.encrypted && !one->agent_key && !auth->secret) {
        if (!one->key.bytes) { /* its public half is not to be seen: the passphrase comes first */
            ask_passphrase(auth);
            return 1;
        }
        auth->probing = true;
    }
    int code = call_library(auth, one);
    if (code == LIBSSH2_ERROR_EAGAIN)
        return ERR_AGAIN;
    if (auth->probing && code == LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED) { /* it would be taken */
        auth->probing = false;
        ask_passphrase(auth);
        return 1;
    }
    if (code == 0)
        return 0;
    if (is_bad_file(code)) {
        after_bad_file(auth);
        return 1;
    }
    if (!is_no(auth->session, code))
        return ERR_GONE;
    note_offer(auth);
    next_candidate(auth);
    return 1;
}

/* ---- what is said when nothing helped ---- */

static int refuse(struct auth *auth, struct why *why)
{
    const struct session_settings *settings = &auth->session->settings;
    const char *user = settings->user, *notes = auth->notes;
    if (!auth->keys_allowed)
        return why_set(why, ERR_REFUSED, "lets %s in only by %s, not by key%s", user, auth->methods, notes);
    if (auth->wants_more)
        return why_set(why, ERR_REFUSED, "takes a key of %s, and then wants more: %s%s", user, auth->methods, notes);
    if (auth->offered && auth->offered == auth->offered_rsa && !auth->library_has_sha2)
        return why_set(why, ERR_REFUSED,
                       "did not accept %s for %s. This is an RSA key, and libssh2 %s can only sign with SHA-1 for it, "
                       "which servers since OpenSSH 8.8 refuse: make another key (ssh-keygen -t ed25519), put its .pub into "
                       "~/.ssh/authorized_keys there, and name it with identity =%s",
                       auth->offers, user, LIBSSH2_VERSION, notes);
    if (auth->offered)
        return why_set(why, ERR_REFUSED,
                       "accepts none of our keys for %s: offered were %s%s. Put one's .pub into ~/.ssh/authorized_keys "
                       "there, "
                       "or name the right one with identity =", user, auth->offers, notes);
    return why_set(why, ERR_REFUSED,
                   "wants a key of %s and there is none to offer%s: ssh-keygen -t ed25519 makes one, its .pub goes into "
                   "~/.ssh/authorized_keys there", user, notes);
}

/* ---- passwords ---- */

static void ask_password(struct auth *auth)
{
    const struct session_settings *settings = &auth->session->settings;
    auth->state = AUTH_ASKING_PASSWORD;
    if (!auth->password_allowed || auth->tries >= PASSWORDS ||
        !session_ask(auth->session, ASK_PASSWORD, true, "", "%spassword of %s@%s", auth->tries ? "that was not it; " : "",
                     settings->user, settings->host))
        auth->tries = PASSWORDS; /* no more */
}

static void begin_typing(struct auth *auth)
{
    auth->tries = 0;
    if (auth->keyboard_allowed && auth->session->callbacks.ask)
        auth->state = AUTH_KEYBOARD;
    else
        ask_password(auth);
}

/* A conversation that led nowhere begins anew, if it was one; then a password may still do. */
static void after_conversation(struct auth *auth)
{
    int asked = keyboard_asked(auth->session->keyboard);
    bool again = asked > 0 && asked < KEYBOARD_PROMPTS && ++auth->tries < PASSWORDS;
    if (asked == KEYBOARD_PROMPTS)
        append(auth->notes, sizeof auth->notes, "; it asked %d times and more", KEYBOARD_PROMPTS);
    else if (asked)
        append(auth->notes, sizeof auth->notes, "; the answers were not accepted");
    keyboard_free(auth->session->keyboard);
    auth->session->keyboard = NULL;
    if (again)
        return;
    auth->tries = 0;
    ask_password(auth);
}

static int step_keyboard(struct auth *auth, struct why *why)
{
    struct session *session = auth->session;
    const char *question;
    bool hidden;
    if (!session->keyboard)
        session->keyboard = keyboard_new(session->ssh, session->settings.user);
    if (!session->keyboard)
        return why_set(why, ERR_SYSTEM, "asks questions, and no thread can be made to answer them");
    switch (keyboard_turn(session->keyboard)) {
    case KEYBOARD_WAITS:
        return ERR_AGAIN;
    case KEYBOARD_ASKS:
        question = keyboard_question(session->keyboard, &hidden);
        session_ask(session, ASK_PASSWORD, hidden, "", "%s%s asks: %s", auth->tries ? "that was not it; " : "", session->settings.name,
                    question);
        auth->state = AUTH_ASKING_KEYBOARD;
        return 1;
    case KEYBOARD_OVER:
        break;
    }
    int code = keyboard_code(session->keyboard);
    if (code == 0)
        return 0;
    if (!is_no(session, code))
        return ERR_GONE;
    after_conversation(auth);
    return 1;
}

/* 1 = it was answered. */
static int take_typed(struct auth *auth, struct why *why)
{
    char *answer = session_take_answer(auth->session);
    auth->state = AUTH_KEYBOARD;
    if (!answer)
        return refuse(auth, why);
    keyboard_answer(auth->session->keyboard, answer);
    session_wipe(answer);
    return 1;
}

static int step_password(struct auth *auth)
{
    struct session *session = auth->session;
    const char *user = session->settings.user;
    int code = libssh2_userauth_password_ex(session->ssh, user, (unsigned)strlen(user), auth->secret, (unsigned)strlen(auth->secret), NULL);
    if (code == LIBSSH2_ERROR_EAGAIN)
        return ERR_AGAIN;
    if (code == 0)
        return 0;
    if (!is_no(session, code) && code != LIBSSH2_ERROR_PASSWORD_EXPIRED)
        return ERR_GONE;
    session_wipe(auth->secret);
    auth->secret = NULL;
    auth->tries++;
    append(auth->notes, sizeof auth->notes, "; the password was not accepted");
    ask_password(auth);
    return 1;
}

/* ---- the whole ---- */

static int step_listing(struct auth *auth)
{
    struct session *session = auth->session;
    const char *user = session->settings.user;
    const char *methods = libssh2_userauth_list(session->ssh, user, (unsigned)strlen(user));
    if (!methods && libssh2_userauth_authenticated(session->ssh))
        return 0;
    if (!methods)
        return libssh2_session_last_errno(session->ssh) == LIBSSH2_ERROR_EAGAIN ? ERR_AGAIN : ERR_GONE;
    bool again = auth->state == AUTH_LISTING_AGAIN;
    text_harmless(methods, strlen(methods), auth->methods, sizeof auth->methods);
    auth->keys_allowed = again || strstr(methods, "publickey");
    auth->password_allowed = strstr(methods, "password");
    auth->keyboard_allowed = strstr(methods, "keyboard-interactive");
    auth->wants_more = again && (auth->password_allowed || auth->keyboard_allowed);
    if (auth->keys_allowed && !again)
        ask_agent(auth);
    else
        begin_typing(auth);
    return 1;
}

static int step_once(struct auth *auth, struct why *why)
{
    switch (auth->state) {
    case AUTH_LISTING:
    case AUTH_LISTING_AGAIN:
        return step_listing(auth);
    case AUTH_KEYBOARD:
        return step_keyboard(auth, why);
    case AUTH_ASKING_KEYBOARD:
        return auth->session->answered ? take_typed(auth, why) : ERR_AGAIN;
    case AUTH_AGENT:
        if (!auth->agent_answered)
            return ERR_AGAIN;
        list_candidates(auth);
        return 1;
    case AUTH_OFFERING:
        if (auth->at < auth->count)
            return step_offering(auth);
        if (auth->offered && !auth->password_allowed && !auth->keyboard_allowed)
            auth->state = AUTH_LISTING_AGAIN;
        else
            begin_typing(auth);
        return 1;
    case AUTH_ASKING:
    case AUTH_ASKING_PASSWORD:
        if (auth->state == AUTH_ASKING_PASSWORD && auth->tries >= PASSWORDS)
            return refuse(auth, why);
        if (!auth->session->answered)
            return ERR_AGAIN;
        auth->secret = session_take_answer(auth->session);
        if (auth->state == AUTH_ASKING) {
            auth->state = AUTH_OFFERING;
            if (!auth->secret) {
                append(auth->notes, sizeof auth->notes, "; the passphrase of %s was not given",
                       auth->candidates[auth->at].key.path);
                next_candidate(auth);
            }
        } else if (!auth->secret) {
            return refuse(auth, why);
        } else {
            auth->state = AUTH_PASSWORD;
        }
        return 1;
    case AUTH_PASSWORD:
        return step_password(auth);
    }
    return ERR_AGAIN;
}

int auth_step(struct auth *auth, struct why *why)
{
    int result;
    do
        result = session_has_room(auth->session) ? step_once(auth, why) : ERR_AGAIN;
    while (result == 1);
    /* A server that has seen too many keys hangs up; what was offered is the news, not the end of the connection. */
    if (result == ERR_GONE && auth->session->goodbye[0] && auth->offered)
        return why_set(why, ERR_REFUSED,
                       "ended the login: %s. Offered were %s; name the right key with identity =", auth->session->goodbye,
                       auth->offers);
    return result;
}

struct auth *auth_new(struct session *session)
{
    struct auth *auth = mem_new(sizeof *auth);
    auth->session = session;
    auth->candidates = mem_array(KEYS_MOST, sizeof *auth->candidates);
    auth->library_has_sha2 = libssh2_version(LIBSSH2_WITH_RSA_SHA2) != NULL;
    return auth;
}

void auth_free(struct auth *auth)
{
    if (!auth)
        return;
    keyboard_free(auth->session->keyboard);
    auth->session->keyboard = NULL;
    agent_free(auth->agent);
    session_wipe(auth->secret);
    mem_free(auth->candidates);
    mem_free(auth);
}
