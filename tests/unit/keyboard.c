/*
 * A conversation of prompts: the library asks through a callback that must come back with the answers, here played by our own function of its
 * name; they are asked for one by one, in order, shown or hidden, over several rounds, and a conversation may be given up at any time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/session/inner.h"
#include "ssh/session/keyboard.h"

/* What the server asks, round by round; a round without prompts only says something. */
static const struct round {
    const char *name, *instruction;
    int count;
    struct {
        const char *text;
        char echo;
        const char *wanted;
    } prompts[3];
} talk[] = {
    {"Vault", "two things first", 2, {{"Password: ", 0, "open sesame"}, {"Colour: ", 1, "mauve"}}},
    {"", "a code was sent\033[2J to you", 0, {{"", 0, ""}}},
    {"", "", 1, {{"Code: ", 0, "271828"}}},
};

static struct session session;
static int rounds, again;    /* of the present conversation; again: EAGAIN before each round */
static bool right, endless;

/* The library's: EAGAIN twice before each round, as a slow road does it. */
int libssh2_userauth_keyboard_interactive_ex(LIBSSH2_SESSION *ssh, const char *user, unsigned user_bytes,
                                             LIBSSH2_USERAUTH_KBDINT_RESPONSE_FUNC((*callback)))
{
    void *abstract = &session;
    assert_ptr_equal(ssh, &session);
    assert_int_equal(user_bytes, strlen("ada"));
    assert_memory_equal(user, "ada", user_bytes);
    while (rounds < (endless ? 100 : (int)(sizeof talk / sizeof *talk))) {
        const struct round *round = &talk[endless ? 0 : rounds];
        LIBSSH2_USERAUTH_KBDINT_PROMPT prompts[3];
        LIBSSH2_USERAUTH_KBDINT_RESPONSE responses[3];
        if (session.deaf)
            return LIBSSH2_ERROR_SOCKET_SEND;
        if (again++ < 2)
            return LIBSSH2_ERROR_EAGAIN;
        again = 0;
        rounds++;
        for (int i = 0; i < round->count; i++) { /* neither is closed by a NUL */
            prompts[i].text = (void *)(uintptr_t)round->prompts[i].text;
            prompts[i].length = (unsigned)strlen(round->prompts[i].text);
            prompts[i].echo = (unsigned char)round->prompts[i].echo;
        }
        callback(round->name, (int)strlen(round->name), round->instruction, (int)strlen(round->instruction), round->count, prompts, responses,
                 &abstract);
        for (int i = 0; i < round->count; i++) {
            right &= responses[i].length == strlen(round->prompts[i].wanted) &&
                     memcmp(responses[i].text, round->prompts[i].wanted, responses[i].length) == 0;
            arena_put(&session.memory, responses[i].text);
        }
    }
    return right ? 0 : LIBSSH2_ERROR_AUTHENTICATION_FAILED;
}

static int begin(void **unused)
{
    (void)unused;
    memset(&session, 0, sizeof session);
    arena_init(&session.memory, 1 << 20, false);
    rounds = again = 0;
    right = true;
    endless = false;
    session.keyboard = keyboard_new((LIBSSH2_SESSION *)&session, "ada");
    return session.keyboard ? 0 : -1;
}

static int end(void **unused)
{
    (void)unused;
    session.deaf = true;
    keyboard_free(session.keyboard);
    arena_clear(&session.memory);
    return 0;
}

/* Turns until something is asked, or the end. */
static enum keyboard_turn turn(int *waits)
{
    enum keyboard_turn state;
    while ((state = keyboard_turn(session.keyboard)) == KEYBOARD_WAITS)
        ++*waits;
    return state;
}

static void prompts_are_asked_in_order(void **unused)
{
    static const struct {
        const char *question, *answer;
        bool hidden;
    } expected[] = {
        {"Vault: two things first: Password: ", "open sesame", true},
        {"Colour: ", "mauve", false},
        {"a code was sent?[2J to you: Code: ", "271828", true},
    };
    int waits = 0;
    bool hidden;
    (void)unused;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(turn(&waits), KEYBOARD_ASKS);
        const char *question = keyboard_question(session.keyboard, &hidden);
        if (strncmp(question, "a code was sent", 15) == 0)
            assert_null(strchr(question, '\033')); /* what a server says does not drive a terminal */
        else
            assert_string_equal(question, expected[i].question);
        assert_int_equal(hidden, expected[i].hidden);
        assert_int_equal(keyboard_asked(session.keyboard), i + 1);
        keyboard_answer(session.keyboard, expected[i].answer);
    }
    assert_int_equal(turn(&waits), KEYBOARD_OVER);
    assert_int_equal(keyboard_code(session.keyboard), 0);
    assert_int_equal(waits, 6);
    assert_int_equal(keyboard_turn(session.keyboard), KEYBOARD_OVER);
}

static void a_wrong_answer_is_no_answer_to_another_prompt(void **unused)
{
    int waits = 0;
    (void)unused;
    assert_int_equal(turn(&waits), KEYBOARD_ASKS);
    keyboard_answer(session.keyboard, "open sesame");
    assert_int_equal(turn(&waits), KEYBOARD_ASKS); /* not answered: the one before is not said again */
    assert_int_equal(turn(&waits), KEYBOARD_ASKS);
    keyboard_answer(session.keyboard, "271828");
    assert_int_equal(turn(&waits), KEYBOARD_OVER);
    assert_int_equal(keyboard_code(session.keyboard), LIBSSH2_ERROR_AUTHENTICATION_FAILED);
}

static void who_asks_without_end_gets_nothing(void **unused)
{
    int waits = 0, asked = 0;
    (void)unused;
    endless = true;
    while (turn(&waits) == KEYBOARD_ASKS) {
        keyboard_answer(session.keyboard, "open sesame");
        asked++;
    }
    assert_int_equal(asked, KEYBOARD_PROMPTS);
    assert_int_equal(rounds, 100);
    assert_int_not_equal(keyboard_code(session.keyboard), 0);
}

static void given_up_at_any_time(void **unused)
{
    (void)unused;
    for (int turns = 0; turns < 10; turns++) {
        enum keyboard_turn state = KEYBOARD_WAITS;
        end(NULL);
        begin(NULL);
        for (int i = 0; i < turns && state != KEYBOARD_OVER; i++)
            state = keyboard_turn(session.keyboard);
    } /* the teardown gives up the last one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(prompts_are_asked_in_order, begin, end),
        cmocka_unit_test_setup_teardown(a_wrong_answer_is_no_answer_to_another_prompt, begin, end),
        cmocka_unit_test_setup_teardown(who_asks_without_end_gets_nothing, begin, end),
        cmocka_unit_test_setup_teardown(given_up_at_any_time, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
