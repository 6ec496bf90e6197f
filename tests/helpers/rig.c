#include "tests/helpers/rig.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ssh/base/mem.h"
#include "tests/helpers/numbers.h"

const char *rig_folder(void)
{
    static char folder[4096];
    const char *given = getenv("O");
    if (given) {
        snprintf(folder, sizeof folder, "%s", given);
        return folder;
    }
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length < 0 ? 0 : length] = 0;
    char *tests = strstr(folder, "/tests/");
    if (tests)
        *tests = 0;
    return folder;
}

const struct ops *rig_ops(void)
{
    static const struct ops *ops;
    struct why why = {0};
    if (!ops)
        ops = ops_load(rig_folder(), "cpu", &why);
    if (!ops) {
        printf("%s\n", why.text);
        exit(why.err == ERR_ABSENT ? 77 : 1);
    }
    return ops;
}

/* A function of gpu/cpu/cpu.h, from the loaded object. */
static void *rig_function(const char *name)
{
    char *path = mem_format("%s/kedge-cpu.so", rig_folder());
    void *object = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    mem_free(path);
    void *function = object ? dlsym(object, name) : NULL;
    if (!function) {
        printf("kedge-cpu.so does not export %s\n", name);
        exit(1);
    }
    dlclose(object); /* whoever loaded it keeps it */
    return function;
}

static int rig_use_isa(const char *isa)
{
    int (*use)(const char *);
    *(void **)&use = rig_function("cpu_use_isa");
    return use(isa);
}

size_t rig_scratch(const struct rig *rig)
{
    size_t (*held)(const struct device *);
    *(void **)&held = rig_function("cpu_scratch_held");
    return held(rig->device);
}

int rig_isas(const char *names[RIG_ISAS])
{
    static const char *const all[RIG_ISAS] = {"base", "avx2", "onednn", "avx512", "amx"};
    int count = 0;
    rig_ops();
    for (int i = 0; i < RIG_ISAS; i++)
        if (rig_use_isa(all[i]) == 0)
            names[count++] = all[i];
    rig_use_isa(NULL);
    return count;
}

const char *rig_onednn(void)
{
    const char *names[RIG_ISAS];
    int count = rig_isas(names);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], "onednn") == 0)
            return names[i];
    return names[count - 1];
}

void rig_open(struct rig *rig, const char *isa, int threads)
{
    struct why why = {0};
    *rig = (struct rig){.ops = rig_ops()};
    if (rig_use_isa(isa) != 0 || rig->ops->open(&rig->device, threads, &why) != 0) {
        printf("no device with %s and %d threads: %s\n", isa, threads, why.text);
        exit(1);
    }
    rig->label = rig->ops->describe(rig->device);
}

void rig_close(struct rig *rig)
{
    for (int i = 0; i < rig->kept_count; i++)
        free(rig->kept[i]);
    free(rig->kept);
    rig->ops->close(rig->device);
}

void rig_each(void (*test)(struct rig *rig))
{
    const char *names[RIG_ISAS];
    int count = rig_isas(names);
    for (int i = 0; i < count; i++)
        for (int threads = 1; threads <= 2; threads++) {
            struct rig rig;
            rig_open(&rig, names[i], threads);
            test(&rig);
            rig_close(&rig);
        }
}

void *rig_take(struct rig *rig, int64_t bytes)
{
    rig->kept = mem_grow(rig->kept, (size_t)rig->kept_count + 1, sizeof *rig->kept);
    void *memory = malloc(bytes ? (size_t)bytes : 1);
    BUG_IF(!memory);
    memset(memory, 0xA5, bytes ? (size_t)bytes : 1);
    return rig->kept[rig->kept_count++] = memory;
}

float *rig_floats(struct rig *rig, int64_t count)
{
    return rig_take(rig, count * (int64_t)sizeof(float));
}

float *rig_zeros(struct rig *rig, int64_t count)
{
    float *x = rig_floats(rig, count);
    memset(x, 0, (size_t)count * sizeof *x);
    return x;
}

float *rig_noise(struct rig *rig, int64_t count, uint64_t seed, double deviation)
{
    float *x = rig_floats(rig, count);
    numbers_noise(x, count, seed, deviation);
    return x;
}

float *rig_copy(struct rig *rig, const float *x, int64_t count)
{
    float *copy = rig_floats(rig, count);
    memcpy(copy, x, (size_t)count * sizeof *x);
    return copy;
}

double *rig_doubles(struct rig *rig, int64_t count)
{
    double *x = rig_take(rig, count * (int64_t)sizeof(double));
    memset(x, 0, (size_t)count * sizeof *x);
    return x;
}

double *rig_wide(struct rig *rig, const float *x, int64_t count)
{
    double *wide = rig_doubles(rig, count);
    for (int64_t i = 0; i < count; i++)
        wide[i] = (double)x[i];
    return wide;
}
