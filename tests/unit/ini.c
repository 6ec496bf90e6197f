/* INI lines in, (section, key, value, line) out; whatever comes, in bounded memory and with the right line numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "profiles/ini.h"
#include "ssh/base/buf.h"
#include "ssh/base/mem.h"
#include "tests/helpers/dice.h"

static struct buf heard; /* "3 [mask]\n", "4 mask.rate=0.9\n", "5 !fault\n" */

static void hear_section(const char *section, int line, void *arg)
{
    (void)arg;
    assert_int_equal(buf_format(&heard, "%d [%s]\n", line, section), 0);
}

static void hear_value(const char *section, const char *key, const char *value, int line, void *arg)
{
    (void)arg;
    assert_int_equal(buf_format(&heard, "%d %s.%s=%s\n", line, section, key, value), 0);
}

static void hear_fault(const char *fault, int line, void *arg)
{
    (void)arg;
    assert_int_equal(buf_format(&heard, "%d !%.20s\n", line, fault), 0);
}

static const char *read_bytes(const void *text, size_t bytes)
{
    static const struct ini_reader reader = {hear_section, hear_value, hear_fault, NULL};
    uint8_t *exact = mem_copy(text, bytes); /* so that a sanitizer sees a read behind the end */
    buf_clear(&heard);
    buf_init(&heard, 1 << 24);
    ini_read_bytes(exact, bytes, &reader);
    mem_free(exact);
    buf_put(&heard, "", 1);
    return (const char *)buf_peek(&heard);
}

static const char *read_text(const char *text)
{
    return read_bytes(text, strlen(text));
}

static void the_language(void **state)
{
    (void)state;
    static const struct {
        const char *text, *heard;
    } rows[] = {
        {"", ""},
        {"\n\n", ""},
        {"[mask]\nrate = 0.9\n", "1 [mask]\n2 mask.rate=0.9\n"},
        {"[mask]\nrate = 0.9", "1 [mask]\n2 mask.rate=0.9\n"},
        {"[mask]\r\nrate=0.9\r\n", "1 [mask]\n2 mask.rate=0.9\n"},
        {"\xef\xbb\xbf[mask]\nrate:0.9\n", "1 [mask]\n2 mask.rate=0.9\n"},
        {"# a\n; b\n\n  # c\n[x]\n a = 1\n\tb =\t2\t\n", "5 [x]\n6 x.a=1\n7 x.b=2\n"},
        {"[ x ]  # why\na = 1 # one\nb = 2 ; two\nc = 3#4;5\n", "1 [x]\n2 x.a=1\n3 x.b=2\n4 x.c=3#4;5\n"},
        {"[host  a]\n[host b]\n", "1 [host  a]\n2 [host b]\n"},
        {"[x]\na =\nb = \n", "1 [x]\n2 x.a=\n3 x.b=\n"},
        {"[x]\na = one\n  two\n\n# between\n   three # why\nb = 1\n", "1 [x]\n2 x.a=one two three\n7 x.b=1\n"},
        {"[x]\na =\n  /one/*\n  [ab]*.txt\n  [x]\nb = 1\n", "1 [x]\n2 x.a=/one/* [ab]*.txt\n5 [x]\n6 x.b=1\n"},
        {"[x]\n  a = 1\n  b = 2\n", "1 [x]\n2 x.a=1\n3 x.b=2\n"},
        {"a = 1\n[x]\n", "1 .a=1\n2 [x]\n"},
        {"[x]\na = b = c\nd: e:f\n", "1 [x]\n2 x.a=b = c\n3 x.d=e:f\n"},
        {"[x]\na = \xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\n", "1 [x]\n2 x.a=\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\n"},
        {"[]\na = 1\n", "1 []\n2 .a=1\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(read_text(rows[i].text), rows[i].heard);
}

static void faults(void **state)
{
    (void)state;
    static const struct {
        const char *text, *heard;
    } rows[] = {
        {"[x]\nwhat\na = 1\nwhat else\n", "1 [x]\n2 !there is no '=' in t\n3 x.a=1\n4 !there is no '=' in t\n"},
        {"[x\na = 1\n", "1 !a section must be al\n2 .a=1\n"},
        {"[x] y\n", "1 !a section must be al\n"},
        {"[x]]\n", "1 !a section must be al\n"},
        {"= 1\n", "1 !there is no name bef\n"},
        {"[x]\n  more\n", "1 [x]\n2 !the line is indented\n"},
        {"  more\n", "1 !the line is indented\n"},
        {"[x]\na = 1\n\x01\n", "1 [x]\n2 x.a=1\n3 !the line has a contr\n"},
        {"[x]\na = \xff\n", "1 [x]\n2 !the line is not plai\n"},
        {"[x]\na = \xc0\x80\n", "1 [x]\n2 !the line is not plai\n"},
        {"[x]\na = 1\rb = 2\n", "1 [x]\n2 !the line has a contr\n"},
        {"[x]\n0123456789012345678901234567890123456789012345678 = 1\n", "1 [x]\n2 !the key is longer th\n"},
        {"[0123456789012345678901234567890123456789012345678]\n", "1 !the section's name i\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(read_text(rows[i].text), rows[i].heard);
    assert_string_equal(read_bytes("[x]\na\0b = 1\nc = 2\n", 18), "1 [x]\n2 !the line has a NUL b\n3 x.c=2\n");
}

/* inih's own buffer is 200 bytes: longer lines are handed over in pieces, and nobody notices. */
static void long_lines(void **state)
{
    (void)state;
    struct dice dice = {5};
    static const char letters[] = "abc [];#=:\t./*\xc3\xbc";
    for (int round = 0; round < 400; round++) {
        char value[2000], text[2200], expected[2200];
        size_t length = 1 + dice_below(&dice, sizeof value - 1), at = 0;
        while (at + 2 < length) {
            size_t pick = dice_below(&dice, sizeof letters - 2);
            char last = at ? value[at - 1] : '=';
            bool blank = letters[pick] == ' ' || letters[pick] == '\t', mark = letters[pick] == ';' || letters[pick] == '#';
            if ((at == 0 && (blank || mark)) || ((last == ' ' || last == '\t') && (mark || blank)))
                continue; /* would be trimmed, or a comment */
            value[at++] = letters[pick];
            if (letters[pick] == '\xc3')
                value[at++] = '\xbc';
        }
        while (at > 0 && (value[at - 1] == ' ' || value[at - 1] == '\t'))
            at--;
        snprintf(text, sizeof text, "[x]\n%skey %s= %.*s%s\nb = 2", round & 1 ? "  " : "", round & 2 ? "     " : "", (int)at,
                 value, round & 4 ? "   # why" : "");
        snprintf(expected, sizeof expected, "1 [x]\n2 x.key=%.*s\n3 x.b=2\n", (int)at, value);
        assert_string_equal(read_text(text), expected);
    }
}

static void too_long(void **state)
{
    (void)state;
    static char text[40000];
    memset(text, 'v', sizeof text);
    memcpy(text, "[x]\na = ", 8);
    memcpy(text + 3 + INI_LINE + 1, "\nb=2\n", 6); /* the line has INI_LINE bytes */
    assert_non_null(strstr(read_text(text), "3 x.b=2\n"));
    assert_null(strstr(read_text(text), "!"));
    memcpy(text + 3 + INI_LINE + 1, "v\nb=2\n", 7);
    assert_string_equal(read_text(text), "1 [x]\n2 !the line is longer t\n3 x.b=2\n");

    memset(text, ' ', sizeof text); /* blanks that cannot be cut */
    memcpy(text, "[x]\na = v", 9);
    memcpy(text + 2000, "v\nb=2\n", 7);
    assert_string_equal(read_text(text), "1 [x]\n2 !the line has too man\n3 x.b=2\n");
}

/* A value with its continuations is bounded, too. */
static void too_long_together(void **state)
{
    (void)state;
    static char text[40000];
    size_t used = (size_t)snprintf(text, sizeof text, "[x]\na = 1\n");
    for (int i = 0; i < 3; i++) {
        text[used] = ' ';
        memset(text + used + 1, 'v', 2000);
        text[used + 2001] = '\n';
        used += 2002;
    }
    snprintf(text + used, sizeof text - used, "b = 2\n");
    assert_string_equal(read_text(text), "1 [x]\n5 !the value is longer \n6 x.b=2\n");
}

/* Line numbers stay right whatever is thrown in between. */
static void noise(void **state)
{
    (void)state;
    struct dice dice = {6};
    static const char *const lines[] = {"[x]",    "a = 1", "what",         "  more",      "# c",  "",     "[y", "\xff",
                                        "k\x01=", "= v",   "[host a] # x", "b:2 ; c",     "\t\t", " [z]", "=",  "[",
                                        "]",      ";",     "k=",           "\xef\xbb\xbf"};
    for (int round = 0; round < 300; round++) {
        char text[4000];
        size_t used = 0;
        int count = 1 + (int)dice_below(&dice, 40);
        for (int i = 0; i < count; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                     lines[dice_below(&dice, sizeof lines / sizeof *lines)],
                                     dice_below(&dice, 3) ? "\n" : "\r\n");
        snprintf(text + used, sizeof text - used, "[end]\nlast = 1\n");
        char expected[100];
        snprintf(expected, sizeof expected, "%d [end]\n%d end.last=1\n", count + 1, count + 2);
        assert_non_null(strstr(read_text(text), expected));
    }
    for (int round = 0; round < 2000; round++) {
        uint8_t bytes[300];
        size_t count = dice_below(&dice, sizeof bytes);
        dice_bytes(&dice, bytes, count);
        read_bytes(bytes, count);
    }
    buf_clear(&heard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_language), cmocka_unit_test(faults),           cmocka_unit_test(long_lines),
        cmocka_unit_test(too_long),     cmocka_unit_test(too_long_together), cmocka_unit_test(noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
