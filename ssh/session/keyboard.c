#include "ssh/session/keyboard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"
#include "ssh/session/inner.h"

struct keyboard {
    LIBSSH2_SESSION *ssh;
    char *user;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t passed;
    bool threads_turn, given_up; /* with the mutex */
    enum keyboard_turn state;    /* of the last turn; whose turn it is may touch it and what follows */
    char said[KEYBOARD_TEXT];    /* by the server, not shown yet */
    char question[2 * KEYBOARD_TEXT + 8];
    bool hidden;
    char *answer;
    int asked, code;
};

/* ---- turns ---- */

static void wait_for_turn(struct keyboard *keyboard, bool threads)
{
    while (keyboard->threads_turn != threads)
        pthread_cond_wait(&keyboard->passed, &keyboard->mutex);
}

/* By the thread: to the loop, and back. False when nobody wants it to go on. */
static bool give_back(struct keyboard *keyboard, enum keyboard_turn state)
{
    pthread_mutex_lock(&keyboard->mutex);
    keyboard->state = state;
    keyboard->threads_turn = false;
    pthread_cond_broadcast(&keyboard->passed);
    if (state != KEYBOARD_OVER && !keyboard->given_up)
        wait_for_turn(keyboard, true);
    bool goes_on = !keyboard->given_up;
    pthread_mutex_unlock(&keyboard->mutex);
    return goes_on;
}

enum keyboard_turn keyboard_turn(struct keyboard *keyboard)
{
    pthread_mutex_lock(&keyboard->mutex);
    if (keyboard->state != KEYBOARD_OVER) {
        keyboard->threads_turn = true;
        pthread_cond_broadcast(&keyboard->passed);
        wait_for_turn(keyboard, false);
    }
    enum keyboard_turn state = keyboard->state;
    pthread_mutex_unlock(&keyboard->mutex);
    return state;
}

/* ---- the thread ---- */

/* "NAME: INSTRUCTION" of a round, shown in front of its first prompt, or of the next round's when it has none. */
static void hear(struct keyboard *keyboard, const char *text, int bytes)
{
    char harmless[KEYBOARD_TEXT];
    size_t used = strlen(keyboard->said);
    text_harmless(text ? text : "", text && bytes > 0 ? (size_t)bytes : 0, harmless, sizeof harmless);
    if (harmless[0])
        snprintf(keyboard->said + used, sizeof keyboard->said - used, "%s%s", used ? ": " : "", harmless);
}

static void answer_with(struct session *session, LIBSSH2_USERAUTH_KBDINT_RESPONSE *response, const char *text)
{
    size_t length = strlen(text);
    response->text = arena_get(&session->memory, length + 1); /* the library frees it */
    response->length = response->text ? (unsigned)length : 0;
    if (response->text)
        memcpy(response->text, text, length + 1);
}

static void on_prompts(const char *name, int name_bytes, const char *instruction, int instruction_bytes, int count,
                       const LIBSSH2_USERAUTH_KBDINT_PROMPT *prompts, LIBSSH2_USERAUTH_KBDINT_RESPONSE *responses, void **abstract)
{
    struct session *session = *abstract;
    struct keyboard *keyboard = session->keyboard;
    bool goes_on = true;
    hear(keyboard, name, name_bytes);
    hear(keyboard, instruction, instruction_bytes);
    for (int i = 0; i < count; i++) {
        char text[KEYBOARD_TEXT];
        if (goes_on && keyboard->asked < KEYBOARD_PROMPTS) {
            text_harmless((const char *)prompts[i].text, prompts[i].length, text, sizeof text);
            snprintf(keyboard->question, sizeof keyboard->question, "%s%s%s", keyboard->said, keyboard->said[0] ? ": " : "", text);
            keyboard->said[0] = '\0';
            keyboard->hidden = !prompts[i].echo;
            keyboard->asked++;
            goes_on = give_back(keyboard, KEYBOARD_ASKS);
        }
        answer_with(session, &responses[i], goes_on && keyboard->answer ? keyboard->answer : "");
        session_wipe(keyboard->answer);
        keyboard->answer = NULL;
    }
}

static void *run(void *arg)
{
    struct keyboard *keyboard = arg;
    bool goes_on;
    pthread_mutex_lock(&keyboard->mutex);
    wait_for_turn(keyboard, true);
    goes_on = !keyboard->given_up;
    pthread_mutex_unlock(&keyboard->mutex);
    while (goes_on) {
        keyboard->code = libssh2_userauth_keyboard_interactive_ex(keyboard->ssh, keyboard->user, (unsigned)strlen(keyboard->user), on_prompts);
        if (keyboard->code != LIBSSH2_ERROR_EAGAIN)
            break;
        goes_on = give_back(keyboard, KEYBOARD_WAITS);
    }
    give_back(keyboard, KEYBOARD_OVER);
    return NULL;
}

/* ---- life ---- */

struct keyboard *keyboard_new(LIBSSH2_SESSION *ssh, const char *user)
{
    struct keyboard *keyboard = mem_new(sizeof *keyboard);
    *keyboard = (struct keyboard){.ssh = ssh, .user = mem_text(user), .code = LIBSSH2_ERROR_EAGAIN};
    pthread_mutex_init(&keyboard->mutex, NULL);
    pthread_cond_init(&keyboard->passed, NULL);
    if (pthread_create(&keyboard->thread, NULL, run, keyboard) == 0)
        return keyboard;
    mem_free(keyboard->user);
    mem_free(keyboard);
    return NULL;
}

const char *keyboard_question(const struct keyboard *keyboard, bool *hidden)
{
    *hidden = keyboard->hidden;
    return keyboard->question;
}

void keyboard_answer(struct keyboard *keyboard, const char *answer)
{
    session_wipe(keyboard->answer);
    keyboard->answer = mem_text(answer);
}

int keyboard_code(const struct keyboard *keyboard)
{
    return keyboard->code;
}

int keyboard_asked(const struct keyboard *keyboard)
{
    return keyboard->asked;
}

void keyboard_free(struct keyboard *keyboard)
{
    if (!keyboard)
        return;
    pthread_mutex_lock(&keyboard->mutex);
    keyboard->given_up = true;
    pthread_mutex_unlock(&keyboard->mutex);
    keyboard_turn(keyboard);
    pthread_join(keyboard->thread, NULL);
    pthread_cond_destroy(&keyboard->passed);
    pthread_mutex_destroy(&keyboard->mutex);
    session_wipe(keyboard->answer);
    mem_free(keyboard->user);
    mem_free(keyboard);
}
