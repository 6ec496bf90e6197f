#include "ssh/launch/clean.h"

#include <signal.h>
#include <string.h>

#include "ssh/base/clock.h"

#define KILLED_DEADLINE_NS (5 * CLOCK_SECOND) /* a killed process leaves at once unless the kernel holds it */

void clean_init(struct clean *clean, const char *folder, uint64_t run_id, uint64_t grace_ns)
{
    memset(clean, 0, sizeof *clean);
    snprintf(clean->folder, sizeof clean->folder, "%s", folder);
    clean->run_id = run_id;
    clean->grace_ns = grace_ns;
}

/* A process may have ended since it was listed and its number been given away: look again just before. */
static void signal_living(const struct clean *clean, int number, bool only_heads)
{
    for (size_t i = 0; i < clean->living_count; i++) {
        const struct holder *holder = &clean->living[i];
        bool head = strcmp(holder->name, "process") != 0;
        if ((head || !only_heads) && holders_live(holder))
            kill(holder->pid, number);
    }
}

static bool has_heads(const struct clean *clean)
{
    for (size_t i = 0; i < clean->living_count; i++)
        if (strcmp(clean->living[i].name, "process") != 0)
            return true;
    return false;
}

int clean_step(struct clean *clean, uint64_t now_ns, struct why *why)
{
    clean->living_count = holders_find(clean->folder, clean->run_id, clean->living, HOLDERS_MOST);
    if (clean->living_count == 0) {
        holders_leftover_files(clean->folder, true);
        return 0;
    }
    if (!clean->began_ns) {
        clean->began_ns = now_ns;
        clean->ended = (int)clean->living_count;
        /* Workers without an agent have nobody else to tell them. */
        signal_living(clean, SIGTERM, has_heads(clean));
    } else if (!clean->killed_ns && now_ns - clean->began_ns >= clean->grace_ns) {
        clean->killed_ns = now_ns;
        signal_living(clean, SIGKILL, false);
    } else if (clean->killed_ns) {
        if (now_ns - clean->killed_ns >= KILLED_DEADLINE_NS)
            return why_set(why, ERR_TIMEOUT, "%s (pid %ld) is still there %d s after KILL: the kernel holds it",
                           clean->living[0].name, (long)clean->living[0].pid, (int)(KILLED_DEADLINE_NS / CLOCK_SECOND));
        signal_living(clean, SIGKILL, false); /* what was forked meanwhile */
    }
    return ERR_AGAIN;
}
