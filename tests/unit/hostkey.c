/* Known hosts, fingerprints and key files, with ssh-keygen as the judge where it is there. */
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

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/session/blob.h"
#include "ssh/session/hostkey.h"
#include "ssh/session/key.h"
#include "tests/helpers/place.h"

/* The public key of RFC 8032's first test vector, in SSH's dress, and two others that differ. */
static const char ed_one[] = "AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";
static const char ed_two[] = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

static size_t decode(const char *text, uint8_t *out)
{
    int bytes = blob_from_base64(text, strlen(text), out, KNOWN_KEY);
    assert_true(bytes > 0);
    return (size_t)bytes;
}

static void base64_both_ways(void **unused)
{
    static const char *const rows[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}};
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[20];
        uint8_t bytes[20];
        blob_to_base64((const uint8_t *)rows[i][0], strlen(rows[i][0]), text, sizeof text);
        assert_string_equal(text, rows[i][1]);
        int count = blob_from_base64(text, strlen(text), bytes, sizeof bytes);
        assert_int_equal(count, strlen(rows[i][0]));
        assert_memory_equal(bytes, rows[i][0], (size_t)count);
    }
    static const char *const bad[] = {"Z", "Zg=g", "Zm9v\n", "Zm 9v", "Zm9vZ", "===", "Zm9\xc3"};
    uint8_t bytes[20];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(blob_from_base64(bad[i], strlen(bad[i]), bytes, sizeof bytes), -1);
    assert_int_equal(blob_from_base64("Zm9vYmFy", 8, bytes, 5), -1);
}

static void strings_end_where_they_say(void **unused)
{
    static const uint8_t bytes[] = {0, 0, 0, 2, 'h', 'i', 0xff, 0xff, 0xff, 0xff};
    struct blob blob = {bytes, sizeof bytes}, string;
    (void)unused;
    assert_true(blob_string(&blob, &string));
    assert_true(blob_is(string, "hi"));
    assert_false(blob_string(&blob, &string)); /* 4 GB are not there; nothing moved */
    assert_int_equal(blob.left, 4);
    blob.left = 3;
    assert_false(blob_string(&blob, &string));
}

static void verdicts(void **unused)
{
    static const struct {
        const char *host;
        uint16_t port;
        const char *file; /* 1 = the key, 2 = another one */
        enum known_verdict verdict;
        const char *place;
    } rows[] = {
        {"gpu", 22, "", KNOWN_NOT, ""},
        {"gpu", 22, "gpu ssh-ed25519 1\n", KNOWN_SAME, "f:1"},
        {"GPU", 22, "gpu ssh-ed25519 1\n", KNOWN_SAME, "f:1"},
        {"gpu", 22, "gpu ssh-ed25519 2\n", KNOWN_CHANGED, "f:1"},
        {"gpu", 22, "# gpu ssh-ed25519 2\n\n  gpu ssh-ed25519 1 a comment\n", KNOWN_SAME, "f:3"},
        {"gpu", 22, "gpu ssh-ed25519 2\ngpu ssh-ed25519 1\n", KNOWN_SAME, "f:2"},
        {"gpu", 22, "gpu ssh-ed25519 1\ngpu ssh-ed25519 2\n", KNOWN_SAME, "f:1"},
        {"gpu", 2222, "gpu ssh-ed25519 1\n", KNOWN_NOT, ""},
        {"gpu", 2222, "[gpu]:2222 ssh-ed25519 1\r\n", KNOWN_SAME, "f:1"},
        {"gpu", 2222, "[GPU]:2222 ssh-ed25519 2\n", KNOWN_CHANGED, "f:1"},
        {"gpu", 22, "a,gpu,b ssh-ed25519 1\n", KNOWN_SAME, "f:1"},
        {"gpu1.example.com", 22, "*.example.com,!gpu2.* ssh-ed25519 1\n", KNOWN_SAME, "f:1"},
        {"gpu2.example.com", 22, "*.example.com,!gpu2.* ssh-ed25519 1\n", KNOWN_NOT, ""},
        {"gpu1", 22, "gpu? ssh-ed25519 1\n", KNOWN_SAME, "f:1"},
        {"gpu12", 22, "gpu? ssh-ed25519 1\n", KNOWN_NOT, ""},
        {"gpu", 22, "gpu ssh-ed25519 1\n@revoked * ssh-ed25519 1\n", KNOWN_REVOKED, "f:2"},
        {"gpu", 22, "@revoked gpu ssh-ed25519 1\ngpu ssh-ed25519 1\n", KNOWN_REVOKED, "f:1"},
        {"gpu", 22, "@revoked gpu ssh-ed25519 2\n", KNOWN_NOT, ""},
        {"gpu", 22, "@cert-authority gpu ssh-ed25519 1\n", KNOWN_NOT, ""},
        {"gpu", 22, "gpu ssh-ed25519\ngpu\ngpu ssh-ed25519 !!!\n", KNOWN_NOT, ""},
    };
    uint8_t key[KNOWN_KEY];
    size_t bytes = decode(ed_one, key);
    struct known *known = mem_new(sizeof *known);
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf text;
        buf_init(&text, 10000);
        for (const char *at = rows[i].file; *at; at++) {
            bool is_key = (*at == '1' || *at == '2') && at > rows[i].file && at[-1] == ' ';
            buf_format(&text, is_key ? "%s" : "%.1s", is_key ? (*at == '1' ? ed_one : ed_two) : at);
        }
        buf_put(&text, "", 1);
        known_init(known, rows[i].host, rows[i].port, key, bytes);
        known_look(known, "f", (const char *)buf_peek(&text));
        if (known->verdict != rows[i].verdict || strcmp(known->place, rows[i].place) != 0) {
            fprintf(stderr, "row %zu: verdict %d at '%s'\n%s", i, known->verdict, known->place, rows[i].file);
            fail();
        }
        buf_clear(&text);
    }
    mem_free(known);
}

static void run(const struct place *place, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void run(const struct place *place, const char *format, ...)
{
    char command[1000], all[1500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    snprintf(all, sizeof all, "cd '%s' && (%s) </dev/null", place->folder, command);
    assert_int_equal(system(all), 0);
}

static char *text_of(struct place *place, const char *name)
{
    uint8_t *text;
    size_t bytes;
    assert_int_equal(file_read(place_file(place, name), 1 << 16, &text, &bytes, NULL), 0);
    return (char *)text;
}

static void as_ssh_keygen_says(void **unused)
{
    static const char *const kinds[] = {"-t ed25519", "-t ecdsa -b 256", "-t ecdsa -b 384", "-t rsa -b 2048",
                                        "-t rsa -b 1031"};
    struct place place;
    (void)unused;
    if (access("/usr/bin/ssh-keygen", X_OK) != 0)
        skip();
    assert_int_equal(place_init(&place), 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct key key;
        char print[HOSTKEY_PRINT], art[HOSTKEY_ART];
        run(&place,
            "rm -f k k.pub; ssh-keygen -q %s -N '' -C c -f k; ssh-keygen -lvf k.pub | sed 1d >art; "
            "printf %%s \"$(ssh-keygen -lf k.pub | cut -d' ' -f2)\" >print",
            kinds[i]);
        assert_int_equal(key_look(place_file(&place, "k"), &key, NULL), 0);
        assert_false(key.encrypted);
        char *said = text_of(&place, "print");
        hostkey_print(key.blob, key.bytes, print);
        assert_string_equal(print + 7, said + 7);
        assert_true(hostkey_is_pin(said) && hostkey_is_pin(print));
        mem_free(said);
        said = text_of(&place, "art");
        hostkey_art(key.blob, key.bytes, art);
        said[strlen(said) - 1] = '\0';
        assert_string_equal(art, said);
        mem_free(said);
    }
    place_clear(&place);
}

static void hashed_names(void **unused)
{
    struct place place;
    uint8_t key[KNOWN_KEY];
    size_t bytes = decode(ed_one, key);
    struct known *known = mem_new(sizeof *known);
    (void)unused;
    if (access("/usr/bin/ssh-keygen", X_OK) != 0)
        skip();
    assert_int_equal(place_init(&place), 0);
    run(&place,
        "echo '[gpu.example.com]:2222 ssh-ed25519 %s' >known; ssh-keygen -q -H -f known >/dev/null 2>&1; ! grep -q gpu "
        "known",
        ed_one);
    known_init(known, "gpu.example.com", 2222, key, bytes);
    assert_int_equal(known_look_in(known, place_file(&place, "known"), NULL), 0);
    assert_int_equal(known->verdict, KNOWN_SAME);
    known_init(known, "gpu.example.com", 22, key, bytes);
    known_look_in(known, place_file(&place, "known"), NULL);
    assert_int_equal(known->verdict, KNOWN_NOT);
    /* And ssh-keygen finds what we note, also behind a line without an end. */
    run(&place, "printf 'x ssh-ed25519 %s' >mine", ed_two);
    assert_int_equal(known_append(place_file(&place, "mine"), "[gpu]:2222", key, bytes, NULL), 0);
    run(&place, "ssh-keygen -F '[gpu]:2222' -f mine >/dev/null && ssh-keygen -F x -f mine >/dev/null");
    mem_free(known);
    place_clear(&place);
}

static void judgements_in_words(void **unused)
{
    struct place place;
    struct hostkey_policy policy = {.pin = ""};
    uint8_t one[KNOWN_KEY], two[KNOWN_KEY];
    size_t one_bytes = decode(ed_one, one), two_bytes = decode(ed_two, two);
    struct why why = {0};
    (void)unused;
    assert_int_equal(place_init(&place), 0);
    snprintf(policy.save, sizeof policy.save, "%s", place_file(&place, "deep/known"));
    assert_int_equal(hostkey_judge(&policy, "gpu", 2222, one, one_bytes, NULL, &why), HOSTKEY_UNKNOWN);
    assert_non_null(strstr(why.text, "[gpu]:2222 is not known"));
    assert_int_equal(hostkey_save(&policy, "gpu", 2222, one, one_bytes, NULL), 0);
    why = (struct why){0};
    assert_int_equal(hostkey_judge(&policy, "gpu", 2222, one, one_bytes, NULL, &why), HOSTKEY_TRUSTED);
    assert_int_equal(hostkey_judge(&policy, "gpu", 2222, two, two_bytes, NULL, &why), HOSTKEY_REFUSED);
    assert_non_null(strstr(why.text, "CHANGED"));
    assert_non_null(strstr(why.text, "ssh-keygen -R '[gpu]:2222'"));
    char types[200];
    hostkey_types(&policy, "gpu", 2222, types, sizeof types);
    assert_true(strncmp(types, "ssh-ed25519,", 12) == 0);
    /* A file that cannot be read is no reason to trust. */
    mkdir(place_file(&place, "folder"), 0700);
    snprintf(policy.files[0], sizeof policy.files[0], "%s", place_file(&place, "folder"));
    why = (struct why){0};
    assert_true(hostkey_judge(&policy, "gpu", 2222, one, one_bytes, NULL, &why) < 0);
    assert_non_null(strstr(why.text, "known hosts cannot be used"));
    place_clear(&place);
}

static void what_is_no_pin(void **unused)
{
    static const char *const bad[] = {"", "sha256:", "md5:00", "sha256:abc",
                                      "sha256:!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!"};
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(hostkey_is_pin(bad[i]));
}

static void key_files(void **unused)
{
    static const struct {
        const char *make;
        int err;
        bool encrypted, seen;
        const char *type, *words;
    } rows[] = {
        {"ssh-keygen -q -t ed25519 -N '' -f k", 0, false, true, "ssh-ed25519", ""},
        {"ssh-keygen -q -t ed25519 -N abcde -f k", 0, true, true, "ssh-ed25519", ""},
        {"ssh-keygen -q -t rsa -b 1024 -m PEM -N abcde -f k", 0, true, true, "ssh-rsa", ""},
        {"ssh-keygen -q -t rsa -b 1024 -m PEM -N abcde -f k; rm k.pub", 0, true, false, "ssh-rsa", ""},
        {"ssh-keygen -q -t ed25519 -N '' -f x; mv x.pub k; chmod 600 k", ERR_INVALID, false, false, "",
         "give the file without .pub"},
        {"ssh-keygen -q -t ed25519 -N '' -f k; chmod 640 k", ERR_REFUSED, false, false, "", "chmod 600"},
        {"echo hello >k; chmod 600 k", ERR_INVALID, false, false, "", "is not a private key"},
        {"ssh-keygen -q -t ed25519 -N '' -f k; sed -i 2s/^b3BlbnNza/AAAAAAAAA/ k", ERR_INVALID, false, false, "",
         "is damaged"},
        {"true", ERR_ABSENT, false, false, "", "No such file"},
    };
    struct place place;
    (void)unused;
    if (access("/usr/bin/ssh-keygen", X_OK) != 0)
        skip();
    assert_int_equal(place_init(&place), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct key key;
        struct why why = {0};
        run(&place, "rm -f k k.pub x; %s", rows[i].make);
        assert_int_equal(key_look(place_file(&place, "k"), &key, &why), rows[i].err);
        assert_non_null(strstr(why.text, rows[i].words));
        if (rows[i].err)
            continue;
        assert_int_equal(key.encrypted, rows[i].encrypted);
        assert_int_equal(key.bytes > 0, rows[i].seen);
        assert_string_equal(key.type, rows[i].type);
    }
    place_clear(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_both_ways), cmocka_unit_test(strings_end_where_they_say),
        cmocka_unit_test(verdicts),         cmocka_unit_test(as_ssh_keygen_says),
        cmocka_unit_test(hashed_names),     cmocka_unit_test(judgements_in_words),
        cmocka_unit_test(what_is_no_pin),   cmocka_unit_test(key_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
