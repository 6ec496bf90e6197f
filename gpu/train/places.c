#include "gpu/train/places.h"

#include <string.h>
#include <unistd.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"

#define PLACES_BYTES (16 * 1024)

static int take_line(char *line, const char *path, struct profile *profile, struct why *why)
{
    char *equals = strchr(line, '=');
    if (!*line)
        return 0;
    if (equals)
        *equals = '\0';
    bool known = strcmp(line, "data.path") == 0 || strcmp(line, "model.path") == 0 || strcmp(line, "lora.path") == 0;
    if (!equals || !known)
        return why_set(why, ERR_INVALID, "%s: '%.40s' is no place; start the run again", path, line);
    return profile_set(profile, line, equals + 1, why);
}

int places_apply(const char *folder, const char *host, struct profile *profile, struct why *why)
{
    char *path = mem_format("%s/paths@%s", folder, host);
    uint8_t *text = NULL;
    size_t bytes;
    int err = 0;
    if (access(path, F_OK) == 0)
        err = file_read(path, PLACES_BYTES, &text, &bytes, why);
    char *rest = (char *)text;
    for (char *line; !err && (line = strsep(&rest, "\n"));)
        err = take_line(line, path, profile, why);
    mem_free(text);
    mem_free(path);
    return err;
}
