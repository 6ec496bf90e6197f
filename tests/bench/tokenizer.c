/* Tokens and bytes per second of one thread. `tokenizer TOKENIZER.JSON TEXT`; without arguments the small tokenizers of the
 * tests. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gpu/model/tokenizer.h"
#include "ssh/base/clock.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define ROUNDS 5

static int measure(const char *name, const uint8_t *text, size_t bytes, struct why *why)
{
    struct tokenizer *tokenizer = NULL;
    struct token_list ids = {0};
    uint8_t *file = NULL;
    size_t file_bytes;
    uint64_t start = clock_now_ns();
    double best = 1e9;
    int err = file_read(name, TOKENIZER_FILE_MAX, &file, &file_bytes, why);
    if (err == 0)
        err = tokenizer_parse(file, file_bytes, name, &tokenizer, why);
    double opened = (double)(clock_now_ns() - start) / 1e9;
    for (int round = 0; round < ROUNDS && err == 0; round++) {
        struct encoder *encoder = encoder_new(tokenizer);
        ids.count = 0;
        start = clock_now_ns();
        err = encoder_encode(encoder, text, bytes, 0, &ids, why);
        double seconds = (double)(clock_now_ns() - start) / 1e9;
        best = seconds < best ? seconds : best;
        encoder_free(encoder);
    }
    if (err == 0)
        printf("%s: opened in %.2f s; %zu bytes, %zu tokens in %.3f s: %.1f MB/s, %.2f M tokens/s\n", name, opened, bytes,
               ids.count, best, (double)bytes / best / 1e6, (double)ids.count / best / 1e6);
    token_list_clear(&ids);
    tokenizer_close(tokenizer);
    mem_free(file);
    return err;
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"gpt2", "llama3", "qwen2", "smollm", "llama2", "mistral"};
    const char *path = argc == 3 ? argv[2] : "../shared/data/gsm8k_train.jsonl";
    struct why why = {0};
    uint8_t *text = NULL;
    size_t bytes = 0;
    int err = file_read(path, TOKENIZER_TEXT_MAX, &text, &bytes, &why);
    if (err == ERR_ABSENT && argc != 3) {
        printf("tokenizer: %s is not here\n", path);
        return 0;
    }
    if (err == 0 && argc == 3)
        err = measure(argv[1], text, bytes, &why);
    for (size_t i = 0; argc != 3 && i < sizeof kinds / sizeof *kinds && err == 0; i++) {
        char *name = mem_format("tests/unit/fixtures/tokenizers/%s.json", kinds[i]);
        err = measure(name, text, bytes, &why);
        mem_free(name);
    }
    if (err)
        fprintf(stderr, "%s\n", why.text);
    mem_free(text);
    return err != 0;
}
