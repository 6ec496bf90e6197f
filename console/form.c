#include "console/form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/mem.h"

void form_clear(struct form *form)
{
    for (size_t i = 0; i < form->count; i++) {
        mem_free(form->rows[i].value);
        mem_free(form->rows[i].before);
    }
    mem_free(form->rows);
    memset(form, 0, sizeof *form);
}

static void add_row(struct form *form, const struct profile *profile, const struct field *field, const char *name)
{
    char value[PROFILE_PATHS];
    if (profile_get(profile, name, value, sizeof value, NULL) != 0)
        return;
    form->rows = mem_grow(form->rows, form->count + 1, sizeof *form->rows);
    struct form_row *row = &form->rows[form->count++];
    *row = (struct form_row){.field = field, .given = profile_line(profile, name) != 0, .value = mem_text(value),
                             .before = mem_text(value)};
    snprintf(row->name, sizeof row->name, "%s", name);
}

void form_open(struct form *form, const char *path, const struct profile *profile)
{
    size_t count;
    const struct field *fields = field_all(&count);
    char name[FORM_NAME];
    form_clear(form);
    snprintf(form->path, sizeof form->path, "%s", path);
    for (size_t i = 0; i < count; i++)
        if (!field_is_host(&fields[i]))
            add_row(form, profile, &fields[i], field_name(&fields[i], name, sizeof name));
    for (int64_t host = 0; host < profile->host_count; host++)
        for (size_t i = 0; i < count; i++) {
            if (!field_is_host(&fields[i]))
                continue;
            snprintf(name, sizeof name, "host.%.40s.%.40s", profile->hosts[host].name, fields[i].key);
            add_row(form, profile, &fields[i], name);
        }
}

int form_try(const struct form *form, size_t row, const char *value, struct why *why)
{
    const struct field *field = form->rows[row].field;
    void *scratch = mem_new(field_is_host(field) ? sizeof(struct profile_host) : sizeof(struct profile));
    int err = field_parse(field, value, scratch, why);
    mem_free(scratch);
    return err;
}

int form_set(struct form *form, size_t row, const char *value, struct why *why)
{
    struct form_row *at = &form->rows[row];
    int err = form_try(form, row, value, why);
    if (err)
        return err;
    mem_free(at->value);
    at->value = mem_text(value);
    return 0;
}

bool form_is_changed(const struct form *form, size_t row)
{
    return strcmp(form->rows[row].value, form->rows[row].before) != 0;
}

size_t form_changes(const struct form *form)
{
    size_t changes = 0;
    for (size_t i = 0; i < form->count; i++)
        changes += form_is_changed(form, i);
    return changes;
}

char *form_diff(const struct form *form)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    for (size_t i = 0; out && i < form->count; i++)
        if (form_is_changed(form, i))
            fprintf(out, "- %s = %s\n+ %s = %s\n", form->rows[i].name, form->rows[i].before, form->rows[i].name, form->rows[i].value);
    if (out)
        fclose(out);
    char *own = mem_text(text ? text : "");
    free(text);
    return own;
}

void form_written(struct form *form)
{
    for (size_t i = 0; i < form->count; i++) {
        form->rows[i].given |= form_is_changed(form, i);
        mem_free(form->rows[i].before);
        form->rows[i].before = mem_text(form->rows[i].value);
    }
}
