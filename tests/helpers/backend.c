#include "tests/helpers/backend.h"

#include <math.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"

void backend_open(struct backend *backend, int threads)
{
    struct why why = {0};
    char beside[1024];
    const char *folder = getenv("O");
    if (!folder && file_program_folder(beside, sizeof beside - 8, &why) == 0) {
        memcpy(beside + strlen(beside), "/../..", 7); /* O/tests/ops/x → O */
        folder = beside;
    }
    backend->ops = folder ? ops_load(folder, "cpu", &why) : NULL;
    if (!backend->ops || backend->ops->open(&backend->device, threads, &why) != 0) {
        printf("no CPU backend here: %s\n", why.text);
        exit(77);
    }
}

void backend_close(struct backend *backend)
{
    backend->ops->close(backend->device);
}

float *backend_tensor(const struct backend *backend, const float *values, int64_t count)
{
    float *tensor = backend->ops->alloc(backend->device, (size_t)count * sizeof *tensor);
    BUG_IF(!tensor);
    if (values)
        backend->ops->copy_in(backend->device, tensor, values, (size_t)count * sizeof *tensor);
    return tensor;
}

void backend_get(const struct backend *backend, float *out, const float *tensor, int64_t count)
{
    backend->ops->copy_out(backend->device, out, tensor, (size_t)count * sizeof *out);
    backend->ops->finish(backend->device);
}

/* ---- counting ---- */

enum { BLOCKS = 1000 };

static struct backend_count taken;
static const struct ops *inner;
static struct {
    void *pointer;
    size_t bytes;
} blocks[BLOCKS];

static void *count_alloc(struct device *device, size_t bytes)
{
    void *pointer = ++taken.calls == taken.fail_at ? NULL : inner->alloc(device, bytes);
    for (int i = 0; pointer && i < BLOCKS; i++) {
        if (blocks[i].pointer)
            continue;
        blocks[i].pointer = pointer;
        blocks[i].bytes = bytes;
        taken.blocks++;
        taken.bytes += bytes;
        return pointer;
    }
    BUG_IF(pointer);
    return NULL;
}

static void count_free(struct device *device, void *pointer)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].pointer != pointer)
            continue;
        blocks[i].pointer = NULL;
        taken.blocks--;
        taken.bytes -= blocks[i].bytes;
        inner->free(device, pointer);
        return;
    }
    BUG("a block is freed that was not taken");
}

const struct ops *backend_counted(const struct backend *backend, struct backend_count **count)
{
    static struct ops counted;
    inner = backend->ops;
    counted = *inner;
    counted.alloc = count_alloc;
    counted.free = count_free;
    taken = (struct backend_count){0};
    *count = &taken;
    return &counted;
}

double backend_difference(const float *a, const double *b, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}
