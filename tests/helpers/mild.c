#include "tests/helpers/mild.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

#include "ssh/base/buf.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define DATA "../shared/data/"

const int64_t mild_layers[4] = {2, 1, 1, 2};

static char *read_text(const char *path, int64_t *bytes)
{
    struct buf text;
    buf_init(&text, 1 << 24);
    FILE *file = fopen(path, "r");
    BUG_IF(!file);
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        buf_format(&text, "%s\n%s\n\n", json_string_value(json_object_get(row, "question")),
                   json_string_value(json_object_get(row, "answer")));
        json_decref(row);
    }
    free(line);
    fclose(file);
    *bytes = (int64_t)buf_used(&text);
    char *copy = (char *)mem_copy(buf_peek(&text), buf_used(&text));
    buf_clear(&text);
    return copy;
}

void mild_open(struct mild *mild)
{
    if (access(DATA "base-mild/model.safetensors", R_OK) || access(DATA "gsm8k_train.jsonl", R_OK)) {
        printf("no " DATA "base-mild: losses through untrained cuts would have been compared with the prototype's\n");
        exit(77);
    }
    struct why why = {0};
    const char *folder = getenv("TMP");
    mild->train = read_text(DATA "gsm8k_train.jsonl", &mild->train_bytes);
    mild->test = read_text(DATA "gsm8k_test.jsonl", &mild->test_bytes);
    snprintf(mild->file, sizeof mild->file, "%s/adapt-%d.txt", folder ? folder : "/tmp", (int)getpid());
    if (file_write(mild->file, mild->train + MILD_FIRST, (size_t)(mild->train_bytes - MILD_FIRST), 0600, &why) < 0)
        BUG("%s", why.text);
}

void mild_close(struct mild *mild)
{
    unlink(mild->file);
    mem_free(mild->train);
    mem_free(mild->test);
}

void mild_profile(const struct mild *mild, struct profile *profile)
{
    profile_defaults(profile);
    snprintf(profile->model_path, sizeof profile->model_path, DATA "base-mild");
    snprintf(profile->data_paths, sizeof profile->data_paths, "%s", mild->file);
    profile->hidden = 192;
    profile->layers = 6;
    profile->heads = profile->kv_heads = 6;
    profile->ffn = 384;
    profile->vocabulary = 256;
    profile->sequence = 128;
    profile->micro_batch = 16;
    profile->micro_batches = 4;
    profile->stages = 4;
    profile->validation_share = 0.01;
    profile->codec = CODEC_DENSE;
}

void mild_windows(const struct mild *mild, int64_t count, int64_t *starts)
{
    for (int64_t i = 0; i < count; i++)
        starts[i] = count == 1 ? 0 : (mild->test_bytes - 130) * i / (count - 1);
}
