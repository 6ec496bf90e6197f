#include "console/check_plan.h"

#include <string.h>

#include "ssh/base/child.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "ssh/launch/prepare.h"
#include "ssh/launch/runs.h"

#define PLAN_BYTES ((size_t)4 << 20)
#define PLAN_DEADLINE_NS (60 * CLOCK_SECOND)

json_t *check_plan_read(const char *file, struct why *why)
{
    char program[RUNS_PATH], *text;
    int status = 0;
    if (prepare_sibling("kedged", program, sizeof program, why) != 0)
        return NULL;
    const char *const argv[] = {program, "plan", file, "--json", NULL};
    text = mem_new(PLAN_BYTES);
    int err = child_output(argv, false, text, PLAN_BYTES, PLAN_DEADLINE_NS, &status, why);
    json_t *plan = err || status ? NULL : json_loads(text, 0, NULL);
    if (!err && !plan)
        why_set(why, ERR_INVALID, "the plan of %s cannot be read: 'kedge plan' says why", file);
    mem_free(text);
    return plan;
}

uint64_t check_plan_disk(const json_t *plan, const struct profile_host *host)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(plan, "hosts"), i, row) {
        const char *name = json_string_value(json_object_get(row, "host"));
        json_int_t bytes = json_integer_value(json_object_get(row, "disk_bytes"));
        if (name && strcmp(name, host->name) == 0)
            return bytes > 0 ? (uint64_t)bytes : 0;
    }
    return 0;
}
