/*
 * One document as text: runs of it that are learned from and runs that are only read (a question, the markup of a chat). A
 * line of a JSONL file is one of
 *
 *   {"text": …}                                                  all of it is learned
 *   {"prompt": …, "completion": …}, {"question": …, "answer": …},
 *   {"instruction": …, "input": … (may be missing), "output": …} the second part is learned
 *   {"messages": [{"role": …, "content": …}, …]}                 what the assistant says is learned
 *
 * A chat template says how questions and messages are written. A document of the plain kind has the tokenizer's end token
 * behind it.
 */
#ifndef KEDGE_MODEL_DOCUMENT_H
#define KEDGE_MODEL_DOCUMENT_H

#include <stdbool.h>

#include "gpu/model/tokenizer.h"
#include "ssh/base/buf.h"

#define DOCUMENT_LINE_MAX ((size_t)16 << 20)

enum chat_template { CHAT_PLAIN, CHAT_CHATML, CHAT_LLAMA3, CHAT_MISTRAL, CHAT_TEMPLATES };

struct document_run {
    size_t end; /* in text; it begins where the one before it ends */
    bool learned;
};

struct document {
    struct buf text;
    struct document_run *runs;
    size_t count, capacity;
    bool end_token; /* goes behind it */
};

void document_init(struct document *document);
void document_clear(struct document *document);

/* One line of a JSONL file, without its line end. Refused: why says what is wrong with it, without file and line. */
int document_read(const char *line, size_t bytes, enum chat_template template, struct document *document, struct why *why);
/* A question as the template asks it, up to where the assistant begins; nothing of it is learned. */
int document_ask(const char *question, enum chat_template template, struct document *document, struct why *why);
/* The text of the token that ends what the assistant says; "": the one that ends a text. */
const char *document_answer_end(enum chat_template template);
/* A template by its name. */
int document_find_template(const char *name, enum chat_template *template, struct why *why);
/* Does the tokenizer have the tokens that the template writes? */
int document_check(enum chat_template template, const struct tokenizer *tokenizer, struct why *why);
/* "plain", "chatml", …; NULL behind the last. */
extern const char *const document_templates[CHAT_TEMPLATES + 1];

#endif
