/*
 * Keyboard-interactive: the server asks and a person answers, as often as the server likes (passwords, one-time codes, several rounds).
 *
 * The library asks through a callback that must come back with the answers, and in the loop nobody may wait for a person. So its call runs
 * on a thread of its own. The two never run at the same time: whoever calls keyboard_turn waits until the thread gives the turn back, which
 * it does when the library wants more bytes, when a question is due, and at its end. All of the session stays one thread's at a time.
 */
#ifndef KEDGE_SESSION_KEYBOARD_H
#define KEDGE_SESSION_KEYBOARD_H

#include <libssh2.h>
#include <stdbool.h>

#define KEYBOARD_TEXT 400
#define KEYBOARD_PROMPTS 16 /* in one login; who asks more is refused */

enum keyboard_turn {
    KEYBOARD_WAITS, /* for bytes: another turn when some came */
    KEYBOARD_ASKS,  /* keyboard_question; another turn when it is answered */
    KEYBOARD_OVER,  /* keyboard_code is the library's */
};

struct keyboard;

/* `ssh` is the thread's only during a turn. NULL when there can be no thread. */
struct keyboard *keyboard_new(LIBSSH2_SESSION *ssh, const char *user);
enum keyboard_turn keyboard_turn(struct keyboard *keyboard);
/* One line, what the server says in front of it included; `hidden`: what is typed must not be seen. */
const char *keyboard_question(const struct keyboard *keyboard, bool *hidden);
void keyboard_answer(struct keyboard *keyboard, const char *answer); /* copied, and wiped when it is sent */
int keyboard_code(const struct keyboard *keyboard);
int keyboard_asked(const struct keyboard *keyboard); /* prompts so far */
/* At any time; NULL is fine. A question that is not answered gets an empty answer, so the session must be deaf by then. */
void keyboard_free(struct keyboard *keyboard);

#endif
