#include "gpu/model/tokenizer_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "gpu/model/utf8.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define REGEX_MAX 8192
#define STEPS_MAX 20000000 /* of one match, as PCRE2 counts them: a pattern from a stranger may need exponentially many */
#define HEAP_KIB (64 * 1024)
#define JIT_STACK ((size_t)16 << 20)
/* White_Space of Unicode, for use in a class. */
#define SPACES "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

struct pattern {
    char *text; /* when it is no expression */
    size_t bytes;
    pcre2_code *code;
};

struct pattern_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- the dialect ---- */

struct translation {
    const struct tokenizer_place *at;
    const char *regex;
    size_t bytes, used;
    bool in_class;
    struct buf out;
};

static int refuse(const struct translation *t, size_t from, size_t count, struct why *why)
{
    char safe[TOKENIZER_SHOWN];
    if (count > t->bytes - from)
        count = t->bytes - from;
    return why_set(why, ERR_INVALID, "%s: %s: \"%s\" at byte %zu of the Regex is not supported", t->at->label, t->at->part,
                   text_harmless(t->regex + from, count, safe, sizeof safe), from + 1);
}

/* A backslash and what belongs to it. */
static int put_escape(struct translation *t, struct why *why)
{
    const char *at = t->regex + t->used;
    size_t room = t->bytes - t->used, count = 2;
    if (room < 2)
        return refuse(t, t->used, 1, why);
    if (at[1] == 's' || at[1] == 'S') {
        if (at[1] == 'S' && t->in_class)
            return refuse(t, t->used, 2, why);
        buf_format(&t->out, t->in_class ? "%s%s" : "[%s%s]", at[1] == 'S' ? "^" : "", SPACES);
    } else if (at[1] == 'p' || at[1] == 'P') {
        const char *end = room > 2 && at[2] == '{' ? memchr(at, '}', room) : NULL;
        if (!end)
            return refuse(t, t->used, 3, why);
        count = (size_t)(end - at) + 1;
        buf_put(&t->out, at, count);
    } else if (strchr("dDrntf", at[1]) || (at[1] > ' ' && at[1] < 0x7f && !strchr("0123456789", at[1]) &&
                                           !((at[1] | 0x20) >= 'a' && (at[1] | 0x20) <= 'z'))) {
        buf_put(&t->out, at, 2);
    } else {
        return refuse(t, t->used, 2, why);
    }
    t->used += count;
    return 0;
}

/* What begins here is the same in both dialects, or is refused. */
static int check_plain(const struct translation *t, struct why *why)
{
    static const char *const groups[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};
    const char *at = t->regex + t->used;
    size_t room = t->bytes - t->used;
    if (t->in_class)
        return *at == '[' || (room > 1 && at[0] == '&' && at[1] == '&') ? refuse(t, t->used, 2, why) : 0;
    if (*at == '^' || *at == '$') /* of a line there, of the text here */
        return refuse(t, t->used, 1, why);
    if (room > 1 && ((at[0] == '{' && at[1] == ',') || (at[0] == '}' && at[1] == '+') || (at[0] == '(' && at[1] == '*')))
        return refuse(t, t->used, 2, why);
    if (room > 1 && at[0] == '(' && at[1] == '?') {
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
            if (room >= strlen(groups[i]) && memcmp(at, groups[i], strlen(groups[i])) == 0)
                return 0;
        return refuse(t, t->used, 4, why);
    }
    return 0;
}

static int translate(struct translation *t, struct why *why)
{
    int err = 0;
    while (t->used < t->bytes && err == 0) {
        char c = t->regex[t->used];
        if (c == '\\') {
            err = put_escape(t, why);
            continue;
        }
        err = check_plain(t, why);
        buf_put(&t->out, &c, 1);
        t->used++;
        if (!t->in_class && c == '[') {
            t->in_class = true;
            if (t->used < t->bytes && t->regex[t->used] == '^')
                buf_put(&t->out, &t->regex[t->used++], 1);
            if (t->used < t->bytes && t->regex[t->used] == ']') /* a member here, an empty class there */
                err = err ? err : refuse(t, t->used, 1, why);
        } else if (t->in_class && c == ']') {
            t->in_class = false;
        }
    }
    return err;
}

static int compile(const struct translation *t, pcre2_code **code, struct why *why)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int number;
    size_t offset;
    BUG_IF(!context);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code *made = pcre2_compile(buf_peek(&t->out), buf_used(&t->out), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                                     &number, &offset, context);
    pcre2_compile_context_free(context);
    if (!made) {
        uint8_t text[160];
        pcre2_get_error_message(number, text, sizeof text);
        return why_set(why, ERR_INVALID, "%s: %s: Regex: %s", t->at->label, t->at->part, (const char *)text);
    }
    pcre2_jit_compile(made, PCRE2_JIT_COMPLETE); /* where it cannot, the same is interpreted */
    *code = made;
    return 0;
}

int pattern_new_regex(const struct tokenizer_place *at, const char *regex, size_t bytes, struct pattern **pattern,
                      struct why *why)
{
    struct translation t = {.at = at, .regex = regex, .bytes = bytes};
    pcre2_code *code = NULL;
    if (bytes == 0 || bytes > REGEX_MAX)
        return why_set(why, ERR_INVALID, "%s: %s: a Regex of %zu bytes; 1 to %d are possible", at->label, at->part, bytes,
                       REGEX_MAX);
    buf_init(&t.out, 64 * REGEX_MAX);
    int err = translate(&t, why);
    if (err == 0)
        err = compile(&t, &code, why);
    buf_clear(&t.out);
    if (err == 0) {
        *pattern = mem_new(sizeof **pattern);
        (*pattern)->code = code;
    }
    return err;
}

int pattern_new_text(const char *text, struct pattern **pattern)
{
    *pattern = mem_new(sizeof **pattern);
    (*pattern)->text = mem_text(text);
    (*pattern)->bytes = strlen(text);
    return 0;
}

void pattern_free(struct pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    mem_free(pattern->text);
    mem_free(pattern);
}

/* ---- looking ---- */

struct pattern_scratch *pattern_scratch_new(void)
{
    struct pattern_scratch *scratch = mem_new(sizeof *scratch);
    scratch->data = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    BUG_IF(!scratch->data || !scratch->context);
    pcre2_set_match_limit(scratch->context, STEPS_MAX);
    pcre2_set_heap_limit(scratch->context, HEAP_KIB);
    scratch->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK, NULL);
    if (scratch->stack)
        pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
    return scratch;
}

void pattern_scratch_free(struct pattern_scratch *scratch)
{
    if (!scratch)
        return;
    pcre2_match_data_free(scratch->data);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->stack);
    mem_free(scratch);
}

static int find_regex(const struct pattern *pattern, struct pattern_scratch *scratch, const uint8_t *text, size_t bytes,
                      size_t from, size_t *start, size_t *end, struct why *why)
{
    int found = pcre2_match(pattern->code, text, bytes, from, PCRE2_NO_UTF_CHECK, scratch->data, scratch->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(pattern->code, text, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch->data,
                            scratch->context);
    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0) {
        uint8_t reason[160];
        pcre2_get_error_message(found, reason, sizeof reason);
        return why_set(why, ERR_INVALID, "pre_tokenizer: its Regex gives up in a text of %zu bytes: %s", bytes,
                       (const char *)reason);
    }
    const size_t *ends = pcre2_get_ovector_pointer(scratch->data);
    *start = ends[0];
    *end = ends[1];
    return 1;
}

int pattern_find(const struct pattern *pattern, struct pattern_scratch *scratch, const uint8_t *text, size_t bytes,
                 size_t *from, size_t *start, size_t *end, struct why *why)
{
    int found = 1;
    if (pattern->code) {
        found = find_regex(pattern, scratch, text, bytes, *from, start, end, why);
    } else {
        const uint8_t *at = utf8_find(text + *from, bytes - *from, pattern->text, pattern->bytes);
        if (!at)
            return 0;
        *start = (size_t)(at - text);
        *end = *start + pattern->bytes;
    }
    if (found == 1) /* behind an empty match the search goes on one character later */
        *from = *end > *start ? *end : *end + (*end < bytes ? utf8_length(text + *end, bytes - *end) : 1);
    return found;
}
