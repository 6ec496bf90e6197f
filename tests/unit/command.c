/* The table of commands and what is written from it: help, completion, and the list in the manual page. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "console/command.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

static char *capture(void (*print)(FILE *))
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    print(out);
    fclose(out);
    return text;
}

static void rows_are_whole(void **unused)
{
    size_t count;
    const struct command *commands = command_all(&count);
    (void)unused;
    for (size_t i = 0; i < count; i++) {
        assert_non_null(commands[i].function);
        assert_true(islower((unsigned char)commands[i].help[0]));
        assert_true(commands[i].help[strlen(commands[i].help) - 1] != '.');
        assert_true(commands[i].most < 0 || commands[i].least <= commands[i].most);
        assert_true((commands[i].options & OPTIONS_GLOBAL) == 0);
        assert_ptr_equal(command_find(commands[i].name), &commands[i]);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(commands[i].name, commands[j].name);
        if (commands[i].details[0])
            assert_true(commands[i].details[strlen(commands[i].details) - 1] != ' ');
    }
    assert_null(command_find("statu"));
    assert_string_equal(command_nearest("statu"), "status");
}

static void manual_page_has_the_table(void **unused)
{
    uint8_t *page;
    size_t bytes;
    struct why why = {0};
    (void)unused;
    if (file_read("man/kedge.1", 1 << 20, &page, &bytes, &why) != 0)
        fail_msg("%s", why.text);
    char *list = capture(command_print_mdoc);
    if (!strstr((char *)page, list)) {
        fprintf(stderr, "%s", list);
        fail_msg("the command list in man/kedge.1 is not that of the table, which is printed above");
    }
    size_t count;
    const struct args_option *options = args_options(&count);
    for (size_t i = 0; i < count; i++) { /* every option is explained somewhere on the page */
        char *flag = mem_format("Fl -%s", options[i].name), *second = mem_format(" , Fl -%s", options[i].name);
        if (!strstr((char *)page, flag) && !strstr((char *)page, second))
            fail_msg("man/kedge.1 does not know --%s", options[i].name);
        mem_free(flag);
        mem_free(second);
    }
    free(list);
    mem_free(page);
}

static void no_line_of_the_page_is_a_request_by_accident(void **unused)
{
    char *list = capture(command_print_mdoc), *rest = list;
    (void)unused;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (*line == '\'' || (*line == '.' && strncmp(line, ".Bl ", 4) != 0 && strncmp(line, ".It Cm ", 7) != 0 &&
                              strcmp(line, ".Pp") != 0 && strcmp(line, ".El") != 0))
            fail_msg("%s", line);
    free(list);
}

static void help_fits_80_columns(void **unused)
{
    char *help = capture(command_print_help), *rest = help;
    size_t count;
    const struct command *commands = command_all(&count);
    (void)unused;
    for (size_t i = 0; i < count; i++)
        assert_non_null(strstr(help, commands[i].help));
    for (char *line; (line = strsep(&rest, "\n"));)
        if (strlen(line) > 80)
            fail_msg("%s", line);
    free(help);
}

static void completion_is_bash(void **unused)
{
    (void)unused;
    FILE *bash = popen("bash -n 2>/dev/null || test $? = 127", "w");
    assert_non_null(bash);
    command_print_completion(bash);
    assert_int_equal(pclose(bash), 0);
}

static void exit_codes(void **unused)
{
    (void)unused;
    assert_int_equal(command_exit_code(0), 0);
    assert_int_equal(command_exit_code(ERR_SYSTEM), 1);
    assert_int_equal(command_exit_code(ERR_FULL), 1);
    assert_int_equal(command_exit_code(ERR_INVALID), 2);
    assert_int_equal(command_exit_code(ERR_ABSENT), 2);
    assert_int_equal(command_exit_code(ERR_GONE), 3);
    assert_int_equal(command_exit_code(ERR_TIMEOUT), 3);
    assert_int_equal(command_exit_code(ERR_REFUSED), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole), cmocka_unit_test(manual_page_has_the_table),
        cmocka_unit_test(no_line_of_the_page_is_a_request_by_accident), cmocka_unit_test(help_fits_80_columns),
        cmocka_unit_test(completion_is_bash), cmocka_unit_test(exit_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
