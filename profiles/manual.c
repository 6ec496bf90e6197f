/* The rows as mdoc: the middle part of kedge-profile.5, so that the manual cannot say what the program does not do. */
#include "profiles/fields.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 78

static const struct {
    const char *section, *about;
} sections[] = {
    {"run", "the run as a whole"},
    {"model", "what is trained"},
    {"lora", "small adapters that are trained instead of all weights"},
    {"data", "what it learns from"},
    {"train", "how it learns"},
    {"checkpoint", "sets that a run can go on from"},
    {"pipeline", "how the model is cut into stages"},
    {"boundary", "what crosses a cut between two stages"},
    {"mask", "the mask codec"},
    {"replicas", "copies of the pipeline"},
    {"sync", "what replicas exchange, and when"},
    {"anchor", "clean gradients that say which directions are real"},
    {"revert", "changes of live settings that the run does not bear"},
    {"link", "the roads between stages"},
    {"host", "one section for each host"},
};

static const char *about_section(const char *section)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strcmp(sections[i].section, section) == 0)
            return sections[i].about;
    BUG("section %s has no sentence for the manual", section);
}

/* One word of the table as mdoc: nothing in it may act as a macro or an escape. Returns its width. */
static size_t print_word(const char *word, size_t bytes, bool first, FILE *out)
{
    static const char ellipsis[] = "…";
    size_t width = 0;
    if (first && (*word == '.' || *word == '\''))
        fputs("\\&", out);
    for (size_t i = 0; i < bytes; i++, width++) {
        if (word[i] == '\\')
            fputs("\\e", out);
        else if (bytes - i >= sizeof ellipsis - 1 && memcmp(word + i, ellipsis, sizeof ellipsis - 1) == 0) {
            fputs("\\[u2026]", out);
            i += sizeof ellipsis - 2;
        } else
            fputc(word[i], out);
    }
    return width;
}

/* Every sentence on lines of its own, as mdoc wants it. */
static void print_text(const char *text, FILE *out)
{
    size_t column = 0;
    while (*text) {
        size_t bytes = strcspn(text, " ");
        if (column > 0 && column + 1 + bytes > WIDTH) {
            fputc('\n', out);
            column = 0;
        } else if (column > 0) {
            fputc(' ', out);
            column++;
        }
        column += print_word(text, bytes, column == 0, out);
        bool ends = bytes > 0 && text[bytes - 1] == '.';
        text += bytes + strspn(text + bytes, " ");
        if (ends && *text) {
            fputc('\n', out);
            column = 0;
        }
    }
    fputc('\n', out);
}

static void print_row(const struct field *row, FILE *out)
{
    char range[200], full[64];
    field_range(row, range, sizeof range);
    fprintf(out, ".It Ic %s\n", field_name(row, full, sizeof full));
    print_text(row->help, out);
    fputs(".Pp\n", out);
    if (row->type == FIELD_TEXT && *row->unit)
        fprintf(out, "Text %s, ", row->unit);
    else if (row->type == FIELD_TEXT)
        fputs("Text, ", out);
    print_text(range, out);
    if (!row->initial)
        fputs(".Pq must be given\n", out);
    else if (*row->initial)
        fprintf(out, ".Pq default: Li %s\n", row->initial);
    else
        fputs(".Pq default: not given\n", out);
    if (row->live)
        fputs(".Pp\nLive: it may be changed while the run goes on.\n", out);
}

void field_print_manual(FILE *out)
{
    size_t count;
    const struct field *rows = field_all(&count);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(rows[i].section, rows[i - 1].section) != 0) {
            fprintf(out, "%s.Ss [%s%s]: %s\n", i ? ".El\n" : "", rows[i].section, field_is_host(&rows[i]) ? " NAME" : "",
                    about_section(rows[i].section));
            fputs(".Bl -tag -width Ds\n", out);
        }
        print_row(&rows[i], out);
    }
    fputs(".El\n", out);
}
