/*
 * Any bytes as lines of JSON: whether a line is taken or refused, what comes out holds together. First byte: the template;
 * for half of its values the rest is not a line but the texts of a valid one, so that content is reached at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "gpu/model/document.h"
#include "ssh/base/mem.h"
#include "ssh/base/why.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Runs cover the text, neighbours differ, something is learned, and the whole comes back from its tokens. */
static void check(const struct document *document)
{
    static struct tokenizer *tokenizer;
    if (!tokenizer)
        tokenizer = tokenizer_new_bytes();
    struct encoder *encoder = encoder_new(tokenizer);
    struct token_list ids = {0};
    struct buf back;
    size_t at = 0, learned = 0;
    buf_init(&back, (size_t)64 << 20);
    for (size_t i = 0; i < document->count; i++) {
        const struct document_run *run = &document->runs[i];
        BUG_IF(run->end <= at || (i && run->learned == document->runs[i - 1].learned));
        BUG_IF(encoder_encode(encoder, buf_peek(&document->text) + at, run->end - at, 0, &ids, NULL));
        learned += run->learned ? run->end - at : 0;
        at = run->end;
    }
    BUG_IF(learned == 0 || at != buf_used(&document->text) || ids.count != at);
    BUG_IF(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back, NULL));
    BUG_IF(buf_used(&back) != at || memcmp(buf_peek(&back), buf_peek(&document->text), at) != 0);
    token_list_clear(&ids);
    buf_clear(&back);
    encoder_free(encoder);
}

/* A valid line of messages: each a byte that chooses the role, then its content up to a NUL (unless it is not UTF-8). */
static char *line_of(const uint8_t *bytes, size_t count)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    json_t *messages = json_array(), *root = json_object();
    for (size_t i = 0; i < 6 && count > 1; i++) {
        const char *role = roles[*bytes++ % 4];
        count--;
        const uint8_t *end = memchr(bytes, 0, count);
        size_t length = end ? (size_t)(end - bytes) : count;
        json_t *content = json_stringn((const char *)bytes, length);
        if (content)
            json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", content));
        bytes += length + (end != NULL);
        count -= length + (end != NULL);
    }
    json_object_set_new(root, "messages", messages);
    char *line = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return line;
}

static void read_line(const char *line, size_t count, enum chat_template template, struct document *document)
{
    struct why why = {0};
    if (document_read(line, count, template, document, &why) == 0)
        check(document);
    else
        BUG_IF(!why.text[0] || strchr(why.text, '\n'));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct document document;
    if (count < 2)
        return 0;
    enum chat_template template = (enum chat_template)(bytes[0] % CHAT_TEMPLATES);
    document_init(&document);
    if (bytes[0] & 0x40) {
        char *line = line_of(bytes + 1, count - 1);
        read_line(line, strlen(line), template, &document);
        free(line);
    } else { /* the document is used again from line to line */
        for (size_t at = 1; at < count;) {
            const uint8_t *end = memchr(bytes + at, '\n', count - at);
            size_t length = end ? (size_t)(end - bytes) - at : count - at;
            read_line((const char *)bytes + at, length, template, &document);
            at += length + 1;
        }
    }
    document_clear(&document);
    return 0;
}
