#include "gpu/model/document.h"

#include <jansson.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define MESSAGES_MAX 10000
#define SHOWN 60

const char *const document_templates[CHAT_TEMPLATES + 1] = {
    [CHAT_PLAIN] = "plain", [CHAT_CHATML] = "chatml", [CHAT_LLAMA3] = "llama3", [CHAT_MISTRAL] = "mistral", NULL};

void document_init(struct document *document)
{
    *document = (struct document){0};
    buf_init(&document->text, 2 * DOCUMENT_LINE_MAX);
}

void document_clear(struct document *document)
{
    buf_clear(&document->text);
    mem_free(document->runs);
    document_init(document);
}

/* Neighbours of one kind are one run: a tokenizer may merge across the seam, as it does in a prompt that is written in one
 * piece. */
static int add(struct document *d, const char *text, size_t bytes, bool learned, struct why *why)
{
    if (bytes == 0)
        return 0;
    if (buf_put(&d->text, text, bytes))
        return why_set(why, ERR_FULL, "the document is longer than %zu bytes", d->text.max);
    if (d->count == 0 || d->runs[d->count - 1].learned != learned) {
        if (d->count == d->capacity) {
            d->capacity = d->capacity ? 2 * d->capacity : 16;
            d->runs = mem_grow(d->runs, d->capacity, sizeof *d->runs);
        }
        d->runs[d->count++].learned = learned;
    }
    d->runs[d->count - 1].end = buf_used(&d->text);
    return 0;
}

static int add_text(struct document *d, const char *text, bool learned, struct why *why)
{
    return add(d, text, strlen(text), learned, why);
}

/* ---- messages ---- */

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLES };

struct message {
    enum role role;
    const char *text;
    size_t bytes;
};

static const char *const role_names[ROLES] = {"system", "user", "assistant"};

/* What goes around each message; a system message of Mistral is put before the first question. */
struct markup {
    const char *before[ROLES], *behind[ROLES];
    const char *tokens[4]; /* that the tokenizer must have */
    bool trims;            /* blanks around a message are dropped */
    bool takes_turns;      /* question, answer, question … */
};

static const struct markup markups[CHAT_TEMPLATES] = {
    [CHAT_PLAIN] = {.before = {"", "", ""}, .behind = {"\n", "\n", ""}},
    [CHAT_CHATML] = {.before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
                     .behind = {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>"},
                     .tokens = {"<|im_start|>", "<|im_end|>"}},
    [CHAT_LLAMA3] = {.before = {"<|start_header_id|>system<|end_header_id|>\n\n",
                                "<|start_header_id|>user<|end_header_id|>\n\n",
                                "<|start_header_id|>assistant<|end_header_id|>\n\n"},
                     .behind = {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>"},
                     .tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
                     .trims = true},
    [CHAT_MISTRAL] = {.before = {"", "[INST] ", ""},
                      .behind = {"\n\n", "[/INST]", "</s>"},
                      .tokens = {"[INST]", "[/INST]", "</s>"},
                      .trims = true,
                      .takes_turns = true},
};

static void trim(struct message *message)
{
    while (message->bytes && strchr(" \t\r\n", message->text[0])) {
        message->text++;
        message->bytes--;
    }
    while (message->bytes && strchr(" \t\r\n", message->text[message->bytes - 1]))
        message->bytes--;
}

/* What the assistant says, with the token that ends it, is learned; its markup in front is not. */
static int add_message(struct document *d, enum chat_template template, const struct message *message, bool last,
                       struct why *why)
{
    const struct markup *m = &markups[template];
    bool learned = message->role == ROLE_ASSISTANT;
    int err = add_text(d, m->before[message->role], false, why);
    if (err == 0 && template == CHAT_MISTRAL && learned)
        err = add_text(d, " ", true, why);
    if (err == 0)
        err = add(d, message->text, message->bytes, learned, why);
    if (err == 0)
        err = add_text(d, m->behind[message->role], learned, why);
    /* Between an answer and what follows it. */
    if (err == 0 && learned && (template == CHAT_CHATML || (template == CHAT_PLAIN && !last)))
        err = add_text(d, "\n", false, why);
    return err;
}

/* Mistral has no mark for a system message: it stands inside of the first question's. */
static int add_messages(struct document *d, enum chat_template template, struct message *messages, size_t count,
                        struct why *why)
{
    bool inside = template == CHAT_MISTRAL && count > 1 && messages[0].role == ROLE_SYSTEM;
    int err = 0;
    for (size_t i = 0; i < count; i++)
        if (markups[template].trims)
            trim(&messages[i]);
    if (inside) {
        err = add_text(d, markups[template].before[ROLE_USER], false, why);
        for (size_t i = 0; i < 2 && err == 0; i++) {
            err = add(d, messages[i].text, messages[i].bytes, false, why);
            if (err == 0)
                err = add_text(d, markups[template].behind[messages[i].role], false, why);
        }
    }
    for (size_t i = inside ? 2 : 0; i < count && err == 0; i++)
        err = add_message(d, template, &messages[i], i + 1 == count, why);
    return err;
}

static int read_message(const json_t *json, size_t number, struct message *message, struct why *why)
{
    const json_t *content = json_object_get(json, "content");
    const char *role = json_string_value(json_object_get(json, "role"));
    char safe[SHOWN];
    size_t i = 0;
    while (role && i < ROLES && strcmp(role, role_names[i]) != 0)
        i++;
    if (!role || i == ROLES)
        return why_set(why, ERR_INVALID, "message %zu has role \"%s\"; system, user and assistant are possible", number + 1,
                       role ? text_harmless(role, strlen(role), safe, sizeof safe) : "(none)");
    if (!json_is_string(content))
        return why_set(why, ERR_INVALID, "message %zu has no text as content", number + 1);
    *message = (struct message){(enum role)i, json_string_value(content), json_string_length(content)};
    return 0;
}

/* A system message first at most; somebody must answer; where turns are taken they must be. */
static int check_order(enum chat_template template, const struct message *messages, size_t count, struct why *why)
{
    bool answered = false;
    size_t turns = 0;
    for (size_t i = 0; i < count; i++) {
        if (messages[i].role == ROLE_SYSTEM && i > 0)
            return why_set(why, ERR_INVALID, "message %zu is of the system; only the first may be", i + 1);
        if (messages[i].role == ROLE_SYSTEM)
            continue;
        if (markups[template].takes_turns && (messages[i].role == ROLE_ASSISTANT) != (turns % 2 == 1))
            return why_set(why, ERR_INVALID, "message %zu is of the %s; user and assistant must take turns", i + 1,
                           role_names[messages[i].role]);
        turns++;
        answered |= messages[i].role == ROLE_ASSISTANT && messages[i].bytes > 0;
    }
    return answered ? 0 : why_set(why, ERR_INVALID, "the assistant says nothing: there is nothing to learn");
}

static int read_messages(const json_t *json, enum chat_template template, struct document *d, struct why *why)
{
    const json_t *list = json_object_get(json, "messages");
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0 || count > MESSAGES_MAX)
        return why_set(why, ERR_INVALID, "messages is not a list of 1 to %d", MESSAGES_MAX);
    struct message *messages = mem_array(count, sizeof *messages);
    int err = 0;
    for (size_t i = 0; i < count && err == 0; i++)
        err = read_message(json_array_get(list, i), i, &messages[i], why);
    if (err == 0)
        err = check_order(template, messages, count, why);
    if (err == 0)
        err = add_messages(d, template, messages, count, why);
    mem_free(messages);
    return err;
}

/* ---- the other kinds of lines ---- */

static const struct pair {
    const char *question, *more, *answer; /* more: goes on with the question, may be missing */
    const char *between;                  /* in the plain template */
} pairs[] = {
    {"prompt", NULL, "completion", ""}, /* whoever writes these means them to be joined as they are */
    {"question", NULL, "answer", "\n"},
    {"instruction", "input", "output", "\n"},
};

static int text_of(const json_t *json, const char *key, const char **text, size_t *bytes, struct why *why)
{
    const json_t *value = json_object_get(json, key);
    if (!json_is_string(value))
        return why_set(why, ERR_INVALID, "%s is not a text", key);
    *text = json_string_value(value);
    *bytes = json_string_length(value);
    return 0;
}

static int add_pair_plain(struct document *d, const struct pair *pair, const char *question, size_t question_bytes,
                          const char *answer, size_t answer_bytes, struct why *why)
{
    int err = add(d, question, question_bytes, false, why);
    if (err == 0)
        err = add_text(d, pair->between, false, why);
    return err ? err : add(d, answer, answer_bytes, true, why);
}

static int read_pair(const json_t *json, const struct pair *pair, enum chat_template template, struct document *d,
                     struct why *why)
{
    const char *question = NULL, *more = NULL, *answer = NULL;
    size_t question_bytes = 0, more_bytes = 0, answer_bytes = 0;
    char *both = NULL;
    int err = text_of(json, pair->question, &question, &question_bytes, why);
    if (err == 0)
        err = text_of(json, pair->answer, &answer, &answer_bytes, why);
    if (err == 0 && pair->more && json_object_get(json, pair->more))
        err = text_of(json, pair->more, &more, &more_bytes, why);
    if (err == 0 && answer_bytes == 0)
        err = why_set(why, ERR_INVALID, "%s is empty: there is nothing to learn", pair->answer);
    if (err)
        return err;
    if (more_bytes) {
        both = mem_new(question_bytes + 1 + more_bytes);
        memcpy(both, question, question_bytes);
        both[question_bytes] = '\n';
        memcpy(both + question_bytes + 1, more, more_bytes);
        question = both;
        question_bytes += 1 + more_bytes;
    }
    struct message messages[2] = {{ROLE_USER, question, question_bytes}, {ROLE_ASSISTANT, answer, answer_bytes}};
    err = template == CHAT_PLAIN ? add_pair_plain(d, pair, question, question_bytes, answer, answer_bytes, why)
                                 : add_messages(d, template, messages, 2, why);
    mem_free(both);
    return err;
}

static int read_object(const json_t *json, enum chat_template template, struct document *d, struct why *why)
{
    const char *text = NULL;
    size_t bytes = 0;
    d->end_token = template == CHAT_PLAIN;
    if (json_object_get(json, "messages"))
        return read_messages(json, template, d, why);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (json_object_get(json, pairs[i].question) && json_object_get(json, pairs[i].answer))
            return read_pair(json, &pairs[i], template, d, why);
    if (!json_object_get(json, "text"))
        return why_set(why, ERR_INVALID,
                       "it has none of: messages; prompt and completion; question and answer; instruction and output; "
                       "text");
    int err = text_of(json, "text", &text, &bytes, why);
    if (err == 0 && bytes == 0)
        err = why_set(why, ERR_INVALID, "text is empty");
    d->end_token = true;
    return err ? err : add(d, text, bytes, true, why);
}

int document_read(const char *line, size_t bytes, enum chat_template template, struct document *document, struct why *why)
{
    json_error_t error;
    char safe[SHOWN];
    if (bytes > DOCUMENT_LINE_MAX)
        return why_set(why, ERR_FULL, "longer than %zu bytes", DOCUMENT_LINE_MAX);
    buf_consume(&document->text, buf_used(&document->text));
    document->count = 0;
    json_t *json = json_loadb(line, bytes, JSON_ALLOW_NUL, &error);
    if (!json)
        return why_set(why, ERR_INVALID, "column %d: %s", error.column,
                       text_harmless(error.text, strlen(error.text), safe, sizeof safe));
    int err =
        json_is_object(json) ? read_object(json, template, document, why) : why_set(why, ERR_INVALID, "not a JSON object");
    json_decref(json);
    return err;
}

int document_ask(const char *question, enum chat_template template, struct document *document, struct why *why)
{
    struct message message = {ROLE_USER, question, strlen(question)};
    buf_consume(&document->text, buf_used(&document->text));
    document->count = 0;
    document->end_token = false;
    int err = add_messages(document, template, &message, 1, why);
    return err ? err : add_text(document, markups[template].before[ROLE_ASSISTANT], false, why);
}

const char *document_answer_end(enum chat_template template)
{
    return markups[template].behind[ROLE_ASSISTANT];
}

int document_find_template(const char *name, enum chat_template *template, struct why *why)
{
    char safe[SHOWN];
    for (int i = 0; i < CHAT_TEMPLATES; i++)
        if (strcmp(document_templates[i], name) == 0) {
            *template = (enum chat_template)i;
            return 0;
        }
    return why_set(why, ERR_INVALID, "--template %s: not known; plain, chatml, llama3 and mistral are",
                   text_harmless(name, strlen(name), safe, sizeof safe));
}

int document_check(enum chat_template template, const struct tokenizer *tokenizer, struct why *why)
{
    const char *const *token = markups[template].tokens;
    if (tokenizer_is_bytes(tokenizer)) /* markup is spelled in bytes there */
        return 0;
    for (size_t i = 0; i < sizeof markups[0].tokens / sizeof *markups[0].tokens && token[i]; i++)
        if (tokenizer_find(tokenizer, token[i]) == TOKENIZER_NONE)
            return why_set(why, ERR_INVALID,
                           "data.template = %s needs the token %s, which the tokenizer does not have; possible: %s",
                           document_templates[template], token[i], "plain, or the template of the model");
    return 0;
}
