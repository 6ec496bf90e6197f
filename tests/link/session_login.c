/* Logging in at a real sshd: who is trusted, who is let in, and what is said when not. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/ends.h"
#include "tests/helpers/server.h"

static void says(const struct caller *caller, const char *words)
{
    if (!strstr(caller->reason, words)) {
        fprintf(stderr, "'%s' does not say '%s'\n", caller->reason, words);
        sshd_print_log(&server);
        fail();
    }
}

static void a_known_host_and_a_good_key(void **unused)
{
    struct caller caller;
    (void)unused;
    caller_init(&caller, loop, &server);
    caller_dial(&caller);
    if (!caller_up(&caller))
        says(&caller, "up");
    session_close(caller.session, CLOCK_SECOND);
    assert_true(loop_until(loop, &caller.is_down, 5 * CLOCK_SECOND));
    assert_int_equal(caller.err, 0);
    caller_end(&caller);
}

static void the_wrong_key_is_named(void **unused)
{
    struct caller caller;
    (void)unused;
    assert_int_equal(sshd_keygen(&server, "-t ed25519 -N '' -f wrong"), 0);
    caller_init(&caller, loop, &server);
    snprintf(caller.settings.identities[0], KNOWN_PLACE, "%s", place_file(&server.place, "wrong"));
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    assert_int_equal(caller.err, ERR_REFUSED);
    says(&caller, "accepts none of our keys");
    says(&caller, "/wrong (ssh-ed25519 sha256:");
    says(&caller, "no ssh-agent is running here");
    caller_end(&caller);
}

static void no_key_at_all(void **unused)
{
    struct caller caller;
    (void)unused;
    caller_init(&caller, loop, &server);
    snprintf(caller.settings.identities[0], KNOWN_PLACE, "%s", place_file(&server.place, "nothing"));
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    assert_int_equal(caller.err, ERR_REFUSED);
    says(&caller, "there is none to offer");
    says(&caller, "nothing: No such file");
    caller_end(&caller);
}

static void an_unknown_host_is_refused(void **unused)
{
    struct caller caller;
    (void)unused;
    caller_init(&caller, loop, &server);
    caller.settings.policy.files[0][0] = '\0';
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    assert_int_equal(caller.err, ERR_REFUSED);
    says(&caller, "is not known");
    says(&caller, "host_key = sha256:");
    caller_end(&caller);
}

static void the_unknown_host_is_asked_about(void **unused)
{
    static const char *const once[] = {"once", NULL}, *const save[] = {"save", NULL}, *const no[] = {"no", NULL};
    const struct {
        const char *const *answers;
        bool up, saved;
    } rows[] = {{once, true, false}, {no, false, false}, {save, true, true}, {NULL, true, true}};
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct caller caller;
        caller_init(&caller, loop, &server);
        caller.settings.policy.files[0][0] = '\0';
        snprintf(caller.settings.policy.save, KNOWN_PLACE, "%s", place_file(&server.place, "new/saved"));
        caller.answers = rows[i].answers;
        caller_dial(&caller);
        assert_int_equal(caller_up(&caller), rows[i].up);
        assert_int_equal(access(place_file(&server.place, "new/saved"), F_OK) == 0, rows[i].saved);
        if (rows[i].answers) {
            assert_int_equal(caller.kind, ASK_HOST_KEY);
            assert_non_null(strstr(caller.question, "ssh-ed25519 sha256:"));
            assert_non_null(strstr(caller.art, "[ED25519 256]"));
        } else {
            assert_false(caller.is_asked); /* it was saved */
        }
        caller_end(&caller);
    }
}

static void accept_new_takes_and_notes(void **unused)
{
    struct caller caller;
    (void)unused;
    for (int i = 0; i < 2; i++) {
        caller_init(&caller, loop, &server);
        caller.settings.policy.files[0][0] = '\0';
        caller.settings.policy.accept_new = i == 0;
        snprintf(caller.settings.policy.save, KNOWN_PLACE, "%s", place_file(&server.place, "accepted"));
        caller_dial(&caller);
        assert_true(caller_up(&caller));
        caller_end(&caller);
    }
}

static void a_changed_key_is_never_taken(void **unused)
{
    static const char *const answers[] = {"once", NULL};
    struct caller caller;
    char command[1200];
    (void)unused;
    assert_int_equal(sshd_keygen(&server, "-t ed25519 -N '' -f other"), 0);
    snprintf(command, sizeof command, "cd '%s'; echo \"[127.0.0.1]:%u $(cat other.pub)\" >changed", server.place.folder,
             server.port);
    assert_int_equal(system(command), 0);
    caller_init(&caller, loop, &server);
    snprintf(caller.settings.policy.files[0], KNOWN_PLACE, "%s", place_file(&server.place, "changed"));
    caller.settings.policy.accept_new = true;
    caller.answers = answers;
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    assert_int_equal(caller.err, ERR_REFUSED);
    assert_false(caller.is_asked);
    says(&caller, "has CHANGED: on file is ssh-ed25519 sha256:");
    says(&caller, "changed:1");
    says(&caller, "now it shows ssh-ed25519 sha256:");
    caller_end(&caller);
}

static void a_revoked_host_key(void **unused)
{
    struct caller caller;
    char command[1200];
    (void)unused;
    snprintf(command, sizeof command,
             "cd '%s'; (cat known_hosts; echo \"@revoked * $(cut -d' ' -f1,2 host_key.pub)\") >revoked",
             server.place.folder);
    assert_int_equal(system(command), 0);
    caller_init(&caller, loop, &server);
    snprintf(caller.settings.policy.files[0], KNOWN_PLACE, "%s", place_file(&server.place, "revoked"));
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    says(&caller, "is marked as revoked in");
    caller_end(&caller);
}

static void a_pin_decides(void **unused)
{
    struct caller caller;
    uint8_t *key;
    size_t bytes;
    (void)unused;
    for (int i = 0; i < 2; i++) {
        caller_init(&caller, loop, &server);
        char command[1200];
        snprintf(command, sizeof command, "cd '%s'; ssh-keygen -lf %s.pub | cut -d' ' -f2 | tr -d '\\n' >print",
                 server.place.folder, i ? "id" : "host_key");
        assert_int_equal(system(command), 0);
        assert_int_equal(file_read(place_file(&server.place, "print"), 100, &key, &bytes, NULL), 0);
        snprintf(caller.settings.policy.pin, sizeof caller.settings.policy.pin, "%s",
                 (char *)key); /* "SHA256:…" as printed */
        mem_free(key);
        caller.settings.policy.files[0][0] = '\0';
        caller_dial(&caller);
        assert_int_equal(caller_up(&caller), i == 0);
        if (i)
            says(&caller, "is pinned");
        caller_end(&caller);
    }
}

/* RSA with this library, and other kinds of keys. */
static void kinds_of_keys(void **unused)
{
    static const struct {
        const char *make, *file;
        bool in;
    } rows[] = {
        {"-t ecdsa -N '' -f ec256", "ec256", true},
        {"-t ecdsa -b 521 -N '' -f ec521", "ec521", true},
        {"-t ecdsa -m PEM -N '' -f ecpem", "ecpem", true},
        {"-t rsa -b 2048 -N '' -f rsa", "rsa", false},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct caller caller;
        char command[1200];
        assert_int_equal(sshd_keygen(&server, rows[i].make), 0);
        snprintf(command, sizeof command, "cd '%s'; cat %s.pub >>authorized_keys", server.place.folder, rows[i].file);
        assert_int_equal(system(command), 0);
        caller_init(&caller, loop, &server);
        snprintf(caller.settings.identities[0], KNOWN_PLACE, "%s", place_file(&server.place, rows[i].file));
        caller_dial(&caller);
        bool in = caller_up(&caller);
        if (in != rows[i].in && rows[i].in)
            says(&caller, rows[i].file);
        if (!in) {
            says(&caller, "can only sign with SHA-1");
            says(&caller, "ssh-keygen -t ed25519");
        }
        caller_end(&caller);
    }
}

static void a_passphrase_is_asked_only_when_it_helps(void **unused)
{
    static const char *const right[] = {"sesame", NULL}, *const second[] = {"no", "sesame", NULL},
                             *const wrong[] = {"a", "b", "c", NULL};
    const struct {
        const char *make, *file;
        bool authorised;
        const char *const *answers;
        bool up;
        int asked;
    } rows[] = {
        {"-t ed25519 -N sesame -f locked", "locked", true, right, true, 1},
        {NULL, "locked", true, second, true, 2},
        {NULL, "locked", true, wrong, false, 3},
        {"-t ed25519 -N sesame -f stranger", "stranger", false, right, false, 0},
        {"-t ecdsa -m PEM -N sesame -f lockedpem", "lockedpem", true, right, true, 1},
        {NULL, "locked", true, NULL, false, 0},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct caller caller;
        char command[1200];
        if (rows[i].make)
            assert_int_equal(sshd_keygen(&server, rows[i].make), 0);
        snprintf(command, sizeof command, "cd '%s'; cat %s.pub >>authorized_keys", server.place.folder, rows[i].file);
        if (rows[i].make && rows[i].authorised)
            assert_int_equal(system(command), 0);
        caller_init(&caller, loop, &server);
        snprintf(caller.settings.identities[0], KNOWN_PLACE, "%s", place_file(&server.place, rows[i].file));
        caller.answers = rows[i].answers;
        caller_dial(&caller);
        if (caller_up(&caller) != rows[i].up || caller.asked_count != rows[i].asked) {
            fprintf(stderr, "row %zu: asked %d times\n", i, caller.asked_count);
            says(&caller, "another end");
        }
        if (!rows[i].answers)
            says(&caller, "nobody is here to type it");
        if (rows[i].answers == wrong)
            says(&caller, "was not right");
        caller_end(&caller);
    }
}

static void an_open_key_file_is_not_used(void **unused)
{
    struct caller caller;
    (void)unused;
    assert_int_equal(sshd_keygen(&server, "-t ed25519 -N '' -f open"), 0);
    chmod(place_file(&server.place, "open"), 0644);
    caller_init(&caller, loop, &server);
    snprintf(caller.settings.identities[0], KNOWN_PLACE, "%s", place_file(&server.place, "open"));
    caller_dial(&caller);
    assert_false(caller_up(&caller));
    says(&caller, "can be read by others (mode 644): chmod 600 it");
    caller_end(&caller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_host_and_a_good_key),
        cmocka_unit_test(the_wrong_key_is_named),
        cmocka_unit_test(no_key_at_all),
        cmocka_unit_test(an_unknown_host_is_refused),
        cmocka_unit_test(the_unknown_host_is_asked_about),
        cmocka_unit_test(accept_new_takes_and_notes),
        cmocka_unit_test(a_changed_key_is_never_taken),
        cmocka_unit_test(a_revoked_host_key),
        cmocka_unit_test(a_pin_decides),
        cmocka_unit_test(kinds_of_keys),
        cmocka_unit_test(a_passphrase_is_asked_only_when_it_helps),
        cmocka_unit_test(an_open_key_file_is_not_used),
    };
    if (!sshd_is_here()) {
        printf("no sshd here (openssh-server): nothing was logged into\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, server_begin, server_end);
}
