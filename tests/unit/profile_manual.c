/* kedge-profile.5 lists the table as it is. `profile_manual --update` writes the page's settings anew after the table
 * changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "profiles/fields.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define PAGE "man/kedge-profile.5"
#define BEGIN ".\\\" Settings begin"
#define END ".\\\" Settings end"

/* The page cut in three: up to and with the line BEGIN, the settings, from the line END on. */
static void split_page(char *page, char **settings, char **end)
{
    *settings = strstr(page, BEGIN);
    assert_non_null(*settings);
    *settings += strcspn(*settings, "\n") + 1;
    *end = strstr(*settings, END);
    assert_non_null(*end);
}

static char *print_settings(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    field_print_manual(out);
    assert_int_equal(fclose(out), 0);
    return text; /* free it */
}

static void page_and_table_agree(void **state)
{
    (void)state;
    uint8_t *page;
    size_t bytes;
    char *settings, *end, *table = print_settings();
    assert_int_equal(file_read(PAGE, 1 << 20, &page, &bytes, NULL), 0);
    split_page((char *)page, &settings, &end);
    if (strlen(table) != (size_t)(end - settings) || memcmp(table, settings, strlen(table)) != 0)
        fail_msg(PAGE " does not list the settings as profiles/fields.c has them; run this program with --update");
    mem_free(page);
    free(table);
}

static void each_row_is_listed_once(void **state)
{
    (void)state;
    size_t count;
    const struct field *rows = field_all(&count);
    char *table = print_settings();
    for (size_t i = 0; i < count; i++) {
        char item[100];
        snprintf(item, sizeof item, ".It Ic %s.%s\n", rows[i].section, rows[i].key);
        char *found = strstr(table, item);
        assert_non_null(found);
        assert_null(strstr(found + 1, item));
    }
    free(table);
}

static int update(void)
{
    uint8_t *page;
    size_t bytes;
    struct why why = {0};
    char *settings, *end, *table = print_settings();
    if (file_read(PAGE, 1 << 20, &page, &bytes, &why)) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    split_page((char *)page, &settings, &end);
    char *text = mem_format("%.*s%s%s", (int)(settings - (char *)page), (char *)page, table, end);
    int err = file_write(PAGE, text, strlen(text), 0644, &why);
    if (err)
        fprintf(stderr, "%s\n", why.text);
    mem_free(text);
    mem_free(page);
    free(table);
    return err != 0;
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_and_table_agree),
        cmocka_unit_test(each_row_is_listed_once),
    };
    if (count == 2 && strcmp(arguments[1], "--update") == 0)
        return update();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
