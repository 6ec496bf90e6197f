/* Lines of JSON as documents: every kind, every template, which runs are learned; what is wrong with a line, in words. */
#include "gpu/model/document.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"

/* The document with its learned runs in braces. */
static char *shown(const char *line, enum chat_template template, bool *end_token)
{
    static char out[2000];
    struct document document;
    struct why why = {0};
    size_t used = 0, at = 0;
    document_init(&document);
    if (document_read(line, strlen(line), template, &document, &why))
        fail_msg("%s: %s", line, why.text);
    for (size_t i = 0; i < document.count; i++) {
        const struct document_run *run = &document.runs[i];
        used += (size_t)snprintf(out + used, sizeof out - used, run->learned ? "{%.*s}" : "%.*s", (int)(run->end - at),
                                 (const char *)buf_peek(&document.text) + at);
        at = run->end;
    }
    assert_int_equal(at, buf_used(&document.text));
    *end_token = document.end_token;
    document_clear(&document);
    return out;
}

#define CHAT                                                                                                                \
    "{\"messages\":[{\"role\":\"system\",\"content\":\" S \"},{\"role\":\"user\",\"content\":\"Q \\n\"},"                   \
    "{\"role\":\"assistant\",\"content\":\" "                                                                               \
    "A\"},{\"role\":\"user\",\"content\":\"R\"},{\"role\":\"assistant\",\"content\":\"B\"}]}"

static void test_kinds(void **state)
{
    static const struct {
        const char *line;
        enum chat_template template;
        const char *text;
        bool end_token;
    } cases[] = {
        {"{\"text\":\"a\\u0000b\\u00e9\"}", CHAT_PLAIN, "{a", true}, /* printed up to the NUL */
        {"{\"text\":\"a b\"}", CHAT_CHATML, "{a b}", true},
        {"{\"prompt\":\"p \",\"completion\":\"c\",\"text\":\"not this\"}", CHAT_PLAIN, "p {c}", true},
        {"{\"question\":\"q\",\"answer\":\"#### 4\"}", CHAT_PLAIN, "q\n{#### 4}", true},
        {"{\"instruction\":\"i\",\"output\":\"o\"}", CHAT_PLAIN, "i\n{o}", true},
        {"{\"instruction\":\"i\",\"input\":\"x\",\"output\":\"o\"}", CHAT_PLAIN, "i\nx\n{o}", true},
        {"{\"instruction\":\"i\",\"input\":\"\",\"output\":\"o\"}", CHAT_PLAIN, "i\n{o}", true},
        {CHAT, CHAT_PLAIN, " S \nQ \n\n{ A}\nR\n{B}", true},
        {CHAT, CHAT_CHATML,
         "<|im_start|>system\n S <|im_end|>\n<|im_start|>user\nQ \n<|im_end|>\n<|im_start|>assistant\n{ A<|im_end|>}\n"
         "<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n{B<|im_end|>}\n",
         false},
        {CHAT, CHAT_LLAMA3,
         "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n{A<|eot_id|>}<|start_header_id|>user<|end_header_id|>\n\nR<|eot_"
         "id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n{B<|eot_id|>}",
         false},
        {CHAT, CHAT_MISTRAL, "[INST] S\n\nQ[/INST]{ A</s>}[INST] R[/INST]{ B</s>}", false},
        {"{\"question\":\"q\",\"answer\":\"a\"}", CHAT_CHATML,
         "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{a<|im_end|>}\n", false},
        {"{\"prompt\":\"q\",\"completion\":\"a\"}", CHAT_MISTRAL, "[INST] q[/INST]{ a</s>}", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool end_token;
        const char *text = shown(cases[i].line, cases[i].template, &end_token);
        if (strncmp(text, cases[i].text, i ? 1 + strlen(cases[i].text) : 2) != 0 || end_token != cases[i].end_token)
            fail_msg("%s is '%s' instead of '%s'", cases[i].line, text, cases[i].text);
    }
}

static void test_bad_lines(void **state)
{
    static const char *const cases[][2] = {
        {"{\"text\":", "column"},
        {"[1]", "not a JSON object"},
        {"7", "column"},
        {"{\"text\":\"\xff\"}", "column"},
        {"{}", "it has none of: messages; prompt and completion"},
        {"{\"prompt\":\"p\"}", "it has none of"},
        {"{\"text\":5}", "text is not a text"},
        {"{\"text\":\"\"}", "text is empty"},
        {"{\"prompt\":1,\"completion\":\"c\"}", "prompt is not a text"},
        {"{\"question\":\"q\",\"answer\":\"\"}", "answer is empty"},
        {"{\"instruction\":\"q\",\"input\":[],\"output\":\"o\"}", "input is not a text"},
        {"{\"messages\":[]}", "messages is not a list of 1"},
        {"{\"messages\":{}}", "messages is not a list of 1"},
        {"{\"messages\":[7]}", "message 1 has role \"(none)\""},
        {"{\"messages\":[{\"role\":\"to\\u001bol\",\"content\":\"c\"}]}", "message 1 has role \"to\\x1bol\"; system, user"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "message 1 has no text"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}", "the assistant says nothing"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\"}]}",
         "the assistant says nothing"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"system\",\"content\":\"\"}]}",
         "message 2 is of the system"},
    };
    struct document document;
    (void)state;
    document_init(&document);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct why why = {0};
        assert_int_equal(document_read(cases[i][0], strlen(cases[i][0]), CHAT_PLAIN, &document, &why), ERR_INVALID);
        if (!strstr(why.text, cases[i][1]) || strchr(why.text, '\n'))
            fail_msg("%s: '%s' does not say '%s'", cases[i][0], why.text, cases[i][1]);
    }
    struct why why = {0};
    const char *turns = "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"user\",\"content\":\"q\"}]}";
    assert_int_equal(document_read(turns, strlen(turns), CHAT_MISTRAL, &document, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "message 2 is of the user; user and assistant must take turns"));
    char *wide = mem_new(DOCUMENT_LINE_MAX + 2);
    memset(wide, ' ', DOCUMENT_LINE_MAX + 1);
    why.err = 0;
    assert_int_equal(document_read(wide, DOCUMENT_LINE_MAX + 1, CHAT_PLAIN, &document, &why), ERR_FULL);
    mem_free(wide);
    document_clear(&document);
}

static void test_template_needs_tokens(void **state)
{
    uint8_t *file;
    size_t bytes;
    struct tokenizer *tokenizer, *plain = tokenizer_new_bytes();
    struct why why = {0};
    (void)state;
    assert_int_equal(file_read("tests/unit/fixtures/tokenizers/qwen2.json", TOKENIZER_FILE_MAX, &file, &bytes, NULL), 0);
    assert_int_equal(tokenizer_parse(file, bytes, "qwen2", &tokenizer, NULL), 0);
    assert_int_equal(document_check(CHAT_CHATML, tokenizer, &why), 0);
    assert_int_equal(document_check(CHAT_PLAIN, tokenizer, &why), 0);
    assert_int_equal(document_check(CHAT_LLAMA3, tokenizer, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "data.template = llama3 needs the token <|start_header_id|>"));
    assert_int_equal(document_check(CHAT_LLAMA3, plain, NULL), 0);
    tokenizer_close(tokenizer);
    tokenizer_close(plain);
    mem_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_bad_lines),
                                       cmocka_unit_test(test_template_needs_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
