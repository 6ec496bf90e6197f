/*
 * Finding a backend. It is a shared object beside the program, so that a machine without CUDA or oneDNN can still be console
 * or head, and so that nothing outside the backend's folder ever sees their headers.
 */
#include "gpu/math/ops.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "ssh/base/mem.h"

size_t ops_packed_row_bytes(int format, int64_t columns)
{
    size_t count = (size_t)columns;
    switch (format) {
    case FORMAT_FP32:
        return 4 * count;
    case FORMAT_BF16:
        return 2 * count;
    case FORMAT_INT8:
        return 2 + count;
    case FORMAT_INT4:
        return 2 + (count + 1) / 2;
    default:
        BUG("number format %d is unknown", format);
    }
}

static bool ops_name_is_plain(const char *name)
{
    if (!*name)
        return false;
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at))
            return false;
    return true;
}

const struct ops *ops_load(const char *folder, const char *name, struct why *why)
{
    if (!ops_name_is_plain(name)) {
        why_set(why, ERR_INVALID, "'%s' is not the name of a backend; backends are: cpu", name);
        return NULL;
    }
    const struct ops *ops = NULL;
    char *path = mem_format("%s/kedge-%s.so", folder, name);
    if (access(path, F_OK) != 0) {
        why_set(why, ERR_ABSENT, "backend '%s' is not built: there is no %s; 'make' says which package it needs", name,
                path);
        goto out;
    }
    /* An OpenMP runtime reads this when it is loaded. Threads that spin while they wait take the cores that other processes of the
     * host need, and then each parallel loop lasts a time slice: measured 8 times slower on a busy machine. The user's word wins. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        why_set(why, ERR_INVALID, "backend %s cannot be loaded: %s", path, dlerror());
        goto out;
    }
    ops = dlsym(object, OPS_SYMBOL);
    if (!ops) {
        why_set(why, ERR_INVALID, "%s is not a backend of this version (it has no %s); run 'make' again", path, OPS_SYMBOL);
        dlclose(object);
    }
out:
    mem_free(path);
    return ops;
}
