#include "gpu/train/disk.h"

#include <stdlib.h>
#include <string.h>

#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

/* As script_of_run has it in a shell of the host. */
static uint64_t shared_bytes(void)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    bool said = data && data[0];
    if (!said && !(home && home[0]))
        return 0;
    char *path = mem_format("%s%s/kedge", said ? data : home, said ? "" : "/.local/share");
    uint64_t bytes = file_tree_bytes(path);
    mem_free(path);
    return bytes;
}

uint64_t disk_used(const char *run_folder)
{
    const char *slash = strrchr(run_folder, '/');
    char *runs = mem_format("%.*s", slash && slash > run_folder ? (int)(slash - run_folder) : 1, run_folder);
    uint64_t bytes = file_tree_bytes(runs);
    mem_free(runs);
    return bytes + shared_bytes();
}

int disk_check(const struct profile *profile, const char *host, const char *run_folder, uint64_t bytes, struct why *why)
{
    char has[32], more[32], may[32];
    uint64_t budget = 0, used;
    for (int64_t i = 0; i < profile->host_count; i++)
        if (strcmp(profile->hosts[i].name, host) == 0)
            budget = profile->hosts[i].disk_budget;
    if (!budget || (used = disk_used(run_folder)) + bytes <= budget)
        return 0;
    return why_set(why, ERR_FULL, "kedge has %s on host %s and would have %s more, above its disk_budget of %s: raise it, or delete "
                   "what is not needed there", text_from_bytes(used, has, sizeof has), host, text_from_bytes(bytes, more, sizeof more),
                   text_from_bytes(budget, may, sizeof may));
}

void disk_narrow(uint64_t budget, uint64_t used, uint64_t *all_bytes, uint64_t *free_bytes)
{
    uint64_t left = budget > used ? budget - used : 0;
    if (!budget)
        return;
    *all_bytes = *all_bytes && *all_bytes < budget ? *all_bytes : budget;
    *free_bytes = *free_bytes < left ? *free_bytes : left;
}
