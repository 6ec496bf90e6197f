/* Destinations as people write them, and what `ssh -G` says of an alias. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/session/alias.h"
#include "tests/helpers/place.h"

static void destinations_are_taken_apart(void **unused)
{
    static const struct {
        const char *text, *user, *host;
        int port; /* −1: refused */
    } rows[] = {
        {"gpu", "", "gpu", 0},
        {"root@203.0.113.5:41022", "root", "203.0.113.5", 41022},
        {"ssh://me@host:22", "me", "host", 22},
        {"[::1]:2222", "", "::1", 2222},
        {"me@[fe80::1]", "me", "fe80::1", 0},
        {"fe80::1", "", "fe80::1", 0},
        {"a@b@c", "a@b", "c", 0},
        {"-oProxyCommand=x", "", "", -1},
        {"me@-x", "", "", -1},
        {"@host", "", "", -1},
        {"host:", "", "", -1},
        {"host:0", "", "", -1},
        {"host:70000", "", "", -1},
        {"[::1", "", "", -1},
        {"", "", "", -1},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char user[64] = "", host[ADDRESS_HOST] = "";
        uint16_t port = 0;
        struct why why = {0};
        int err = alias_split(rows[i].text, user, host, &port, &why);
        if ((rows[i].port < 0) != (err != 0))
            fail_msg("'%s': %d %s", rows[i].text, err, why.text);
        if (err)
            continue;
        assert_string_equal(user, rows[i].user);
        assert_string_equal(host, rows[i].host);
        assert_int_equal(port, rows[i].port);
    }
}

static void what_ssh_prints_is_understood(void **unused)
{
    struct alias *alias = mem_new(sizeof *alias);
    struct why why = {0};
    (void)unused;
    assert_int_equal(alias_parse("host gpu\nuser me\nhostname 203.0.113.5\nport 41022\nidentityfile /k/one\n"
                                 "identityfile /k/two\nuserknownhostsfile /h/one /h/two\nproxyjump a@b:7,c\nnoise\n",
                                 alias, &why), 0);
    assert_string_equal(alias->host, "203.0.113.5");
    assert_string_equal(alias->user, "me");
    assert_int_equal(alias->port, 41022);
    assert_string_equal(alias->identities[1], "/k/two");
    assert_string_equal(alias->known[1], "/h/two");
    assert_int_equal(alias->jump_count, 2);
    assert_string_equal(alias->jumps[0], "a@b:7");
    assert_string_equal(alias->jumps[1], "c");
    assert_false(alias->has_command);
    assert_int_equal(alias_parse("hostname x\n", alias, &why), ERR_INVALID);
    why = (struct why){0};
    assert_int_equal(alias_parse("hostname x\nport 22\nproxyjump a,b,c,d,e\n", alias, &why), ERR_FULL);
    mem_free(alias);
}

static void aliases_of_a_configuration_are_resolved(void **unused)
{
    static const char text[] = "Host gpu\n  HostName 203.0.113.5\n  Port 41022\n  User someone\n  IdentityFile /k/gpu\n"
                               "  UserKnownHostsFile /h/gpu\n  ProxyJump door\nHost odd\n  ProxyCommand nc %h %p\n";
    struct alias *alias = mem_new(sizeof *alias);
    struct place place;
    struct why why = {0};
    (void)unused;
    if (access("/usr/bin/ssh", X_OK) != 0)
        skip();
    assert_int_equal(place_init(&place), 0);
    assert_int_equal(file_write(place_file(&place, "config"), text, strlen(text), 0600, NULL), 0);
    assert_int_equal(alias_resolve("gpu", place_file(&place, "config"), alias, &why), 0);
    assert_string_equal(alias->host, "203.0.113.5");
    assert_string_equal(alias->user, "someone");
    assert_int_equal(alias->port, 41022);
    assert_string_equal(alias->identities[0], "/k/gpu");
    bool known = false;
    for (int i = 0; i < HOSTKEY_FILES; i++)
        known |= strcmp(alias->known[i], "/h/gpu") == 0;
    assert_true(known);
    assert_int_equal(alias->jump_count, 1);
    assert_string_equal(alias->jumps[0], "door");
    /* What stands in the profile outweighs the file, as with ssh. */
    assert_int_equal(alias_resolve("other@gpu:7", place_file(&place, "config"), alias, &why), 0);
    assert_string_equal(alias->user, "other");
    assert_int_equal(alias->port, 7);
    assert_int_equal(alias_resolve("odd", place_file(&place, "config"), alias, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "ProxyJump"));
    why = (struct why){0};
    assert_int_equal(file_write(place_file(&place, "config"), "Nonsense 7\n", 11, 0600, NULL), 0);
    assert_int_equal(alias_resolve("gpu", place_file(&place, "config"), alias, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "Bad configuration option"));
    place_clear(&place);
    mem_free(alias);
}

static void without_the_program_words_mean_what_they_say(void **unused)
{
    struct alias *alias = mem_new(sizeof *alias);
    struct why why = {0};
    char *path = mem_text(getenv("PATH") ? getenv("PATH") : "");
    (void)unused;
    setenv("PATH", "/nowhere", 1);
    int err = alias_resolve("me@gpu:41022", NULL, alias, &why);
    setenv("PATH", path, 1);
    mem_free(path);
    assert_int_equal(err, 0);
    assert_string_equal(alias->host, "gpu");
    assert_string_equal(alias->user, "me");
    assert_int_equal(alias->port, 41022);
    assert_non_null(strstr(alias->identities[0], "/.ssh/id_ed25519"));
    assert_non_null(strstr(alias->known[0], "/.ssh/known_hosts"));
    mem_free(alias);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destinations_are_taken_apart),
        cmocka_unit_test(what_ssh_prints_is_understood),
        cmocka_unit_test(aliases_of_a_configuration_are_resolved),
        cmocka_unit_test(without_the_program_words_mean_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
