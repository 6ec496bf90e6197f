/* The command line: what is understood, and the one line that says what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "console/args.h"
#include "console/command.h"

#define WORDS_MOST 128

/* The words of `line`, split at blanks; they stay valid until the next call. */
static int parse(const char *line, struct args *args, struct why *why)
{
    static char text[1024];
    static char *argv[WORDS_MOST + 2];
    int argc = 0;
    snprintf(text, sizeof text, "kedge %s", line);
    for (char *rest = text, *word; (word = strsep(&rest, " ")) && argc < WORDS_MOST;)
        if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    *why = (struct why){0};
    return args_parse(argc, argv, args, why);
}

static void options_stand_anywhere(void **unused)
{
    struct args args;
    struct why why;
    (void)unused;
    assert_int_equal(parse("--ascii status --json sea -vv", &args, &why), 0);
    assert_string_equal(args.command->name, "status");
    assert_int_equal(args.options, OPTION_ASCII | OPTION_JSON | OPTION_VERBOSE);
    assert_int_equal(args.verbose, 2);
    assert_int_equal(args.word_count, 1);
    assert_string_equal(args.words[0], "sea");
    assert_int_equal(parse("new --from laptop sea", &args, &why), 0);
    assert_string_equal(args.from, "laptop");
    assert_int_equal(parse("new sea --from=x --color=never", &args, &why), 0);
    assert_string_equal(args.from, "x");
    assert_int_equal(args.color, COLOR_NEVER);
    assert_int_equal(parse("events -vf sea", &args, &why), 0);
    assert_true(args.options & OPTION_FOLLOW);
}

static void dashes_end_the_options(void **unused)
{
    struct args args;
    struct why why;
    (void)unused;
    assert_int_equal(parse("check -- --odd.ini", &args, &why), 0);
    assert_string_equal(args.words[0], "--odd.ini");
}

static void nothing_is_the_list(void **unused)
{
    struct args args;
    struct why why;
    (void)unused;
    assert_int_equal(parse("", &args, &why), 0);
    assert_null(args.command);
    assert_int_equal(parse("--version", &args, &why), 0);
    assert_int_equal(parse("set --help", &args, &why), 0); /* help needs no words */
}

static void complaints_name_the_word(void **unused)
{
    static const struct {
        const char *line;
        const char *says;
    } rows[] = {
        {"statsu", "there is no command 'statsu'; did you mean 'status'?"},
        {"zzzzzzzz", "there is no command 'zzzzzzzz'; 'kedge help' lists them"},
        {"status sea --jsno", "there is no option --jsno here; did you mean --json?"},
        {"stop sea --json", "'kedge stop' has no option --json; 'kedge help stop' lists its options"},
        {"--json", "--json needs a command in front; 'kedge help' lists them"},
        {"stop", "'kedge stop' needs RUN"},
        {"set sea", "'kedge set' needs RUN KEY=VALUE..."},
        {"stop sea lake", "'lake' is one word too many for 'kedge stop'"},
        {"ls --color=blue", "--color=blue: say auto, always or never"},
        {"ls --color", "--color needs a value: --color=WHEN"},
        {"ls --json=yes", "--json takes no value"},
        {"ls -x", "there is no option -x here"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct args args = {.verbose = 77};
        struct why why;
        assert_int_equal(parse(rows[i].line, &args, &why), ERR_INVALID);
        assert_string_equal(why.text, rows[i].says);
        assert_int_equal(args.verbose, 77); /* written only on success */
    }
}

static void words_are_bounded(void **unused)
{
    struct args args;
    struct why why;
    char line[2 * ARGS_MOST + 16] = "set";
    (void)unused;
    for (int i = 0; i <= ARGS_MOST; i++)
        memcpy(line + 3 + 2 * i, " x", 3);
    assert_int_equal(parse(line, &args, &why), ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_stand_anywhere), cmocka_unit_test(dashes_end_the_options),
            cmocka_unit_test(nothing_is_the_list),
        cmocka_unit_test(complaints_name_the_word), cmocka_unit_test(words_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
