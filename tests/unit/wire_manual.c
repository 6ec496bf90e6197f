/*
 * kedge-wire.7 tells the language as the table has it: each message with its number, direction, lane, largest payload and
 * fields, and no other. The prose between is a person's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/wire/frame.h"
#include "ssh/wire/wire.h"

#define PAGE "man/kedge-wire.7"
#define ITEM "\n.It Sy "

static char *page;

static int read_page(void **state)
{
    uint8_t *data;
    size_t bytes;
    struct why why = {0};
    (void)state;
    if (file_read(PAGE, 1 << 20, &data, &bytes, &why) != 0) {
        print_error("%s\n", why.text);
        return -1;
    }
    page = (char *)data;
    return 0;
}

static int free_page(void **state)
{
    (void)state;
    mem_free(page);
    return 0;
}

/* "S→W" as mdoc writes it. */
static void direction_text(const char *direction, char *out, size_t size)
{
    const char *arrow;
    size_t used = 0;
    out[0] = 0;
    while ((arrow = strstr(direction, "→")) != NULL) {
        used += (size_t)snprintf(out + used, size - used, "%.*s\\(->", (int)(arrow - direction), direction);
        direction = arrow + strlen("→");
    }
    snprintf(out + used, size - used, "%s", direction);
}

static char *item_line(const struct wire_message *message)
{
    char direction[80];
    direction_text(message->direction, direction, sizeof direction);
    return mem_format(ITEM "%s No ( %d ) , %s, lane %s, at most %u bytes\n", message->name, (int)message->type, direction,
                      wire_lane_name((int)message->lane), message->max_bytes);
}

static char *fields_text(const struct wire_message *message)
{
    static const char *const kinds[] = {
        [WIRE_U8] = "u8", [WIRE_U16] = "u16", [WIRE_U32] = "u32", [WIRE_U64] = "u64", [WIRE_I32] = "i32", [WIRE_F32] = "f32",
        [WIRE_F64] = "f64", [WIRE_STRING] = "text", [WIRE_TAIL] = "tail",
    };
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    for (size_t i = 0; i < message->field_count; i++) {
        const struct wire_field *field = &message->fields[i];
        fprintf(out, "%s%s %s", i ? ", " : "", field->name, kinds[field->kind]);
        if (field->kind == WIRE_STRING)
            fprintf(out, " \\(<= %zu", field->size - 1);
        else if (field->least || field->most)
            fprintf(out, " %u\\(en%u", field->least, field->most);
    }
    fputc('.', out);
    fclose(out);
    return text; /* free it */
}

/* The lines behind `at` up to the next macro, as one line. */
static char *joined_text(const char *at)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    for (bool first = true; *at && *at != '.'; first = false) {
        size_t line = strcspn(at, "\n");
        fprintf(out, "%s%.*s", first ? "" : " ", (int)line, at);
        at += line + (at[line] == '\n');
    }
    fclose(out);
    return text; /* free it */
}

static void every_message_is_told_as_it_is(void **state)
{
    size_t count;
    const struct wire_message *messages = wire_all(&count);
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < count; i++) {
        char *item = item_line(&messages[i]), *fields = fields_text(&messages[i]), *told = NULL;
        const char *at = strstr(page, item), *next = at ? strstr(at + 1, ITEM) : NULL;
        const char *list = at ? strstr(at, "\n.Em Fields :\n") : NULL;
        if (list && (!next || list < next))
            told = joined_text(list + strlen("\n.Em Fields :\n"));
        if (!told || strcmp(told, fields) != 0) {
            print_error(PAGE " must have:%s.Pp\n.Em Fields :\n%s\n", item, fields);
            wrong++;
        }
        free(told);
        free(fields);
        mem_free(item);
    }
    assert_int_equal(wrong, 0);
}

static void no_other_message_is_told(void **state)
{
    size_t count, told = 0;
    const struct wire_message *messages = wire_all(&count);
    (void)state;
    for (const char *at = page; (at = strstr(at, ITEM)) != NULL; at++, told++) {
        bool known = false;
        const char *name = at + strlen(ITEM);
        size_t length = strcspn(name, " \n");
        for (size_t i = 0; i < count; i++)
            known |= strlen(messages[i].name) == length && memcmp(messages[i].name, name, length) == 0;
        if (!known)
            fail_msg(PAGE " tells of %.*s, which is not in the table", (int)length, name);
    }
    assert_int_equal(told, count);
}

static void the_version_and_the_header_are_told(void **state)
{
    char text[100];
    (void)state;
    snprintf(text, sizeof text, "\nThis page is about version %d.\n", WIRE_VERSION);
    assert_non_null(strstr(page, text));
    snprintf(text, sizeof text, "\nA frame begins with a header of %d bytes:\n", FRAME_HEADER_BYTES);
    assert_non_null(strstr(page, text));
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        snprintf(text, sizeof text, "\n.It %d Ta %s Ta ", lane, wire_lane_name(lane));
        assert_non_null(strstr(page, text));
    }
    for (int role = ROLE_CONSOLE; role <= ROLE_ANCHOR; role++) {
        snprintf(text, sizeof text, "%d %s", role, wire_role_name(role));
        assert_non_null(strstr(page, text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_is_told_as_it_is),
        cmocka_unit_test(no_other_message_is_told),
        cmocka_unit_test(the_version_and_the_header_are_told),
    };
    return cmocka_run_group_tests(tests, read_page, free_page);
}
