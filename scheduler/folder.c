#include "scheduler/folder.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"

int folder_read_id(const char *folder, uint64_t *run_id, struct why *why)
{
    char path[FOLDER_PATH], *end;
    uint8_t *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/run.id", folder);
    int err = file_read(path, 64, &text, &bytes, why);
    if (err < 0)
        return err;
    unsigned long long id = strtoull((const char *)text, &end, 16);
    bool good = isxdigit(text[0]) && end - (const char *)text == 16 && (*end == '\0' || *end == '\n') && id != 0;
    mem_free(text);
    if (!good)
        return why_set(why, ERR_INVALID, "%s: does not hold the 16 hex digits of a run", path);
    *run_id = id;
    return 0;
}

int folder_complain(const struct complaints *complaints, struct why *why)
{
    const char *lines = (const char *)buf_peek(&complaints->lines);
    const char *end = memchr(lines, '\n', buf_used(&complaints->lines));
    int length = end ? (int)(end - lines) : (int)buf_used(&complaints->lines);
    if (complaints->count > 1)
        return why_set(why, ERR_INVALID, "%.*s (and %d more)", length, lines, complaints->count - 1);
    return why_set(why, ERR_INVALID, "%.*s", length, lines);
}

int folder_read_profile(const char *folder, struct profile *profile, struct why *why)
{
    char path[FOLDER_PATH];
    struct complaints complaints;
    snprintf(path, sizeof path, "%s/run.ini", folder);
    complaints_init(&complaints);
    int err = profile_read(path, profile, &complaints, NULL, 0);
    if (err < 0)
        err = folder_complain(&complaints, why);
    complaints_clear(&complaints);
    return err;
}
