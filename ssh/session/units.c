#include "ssh/session/units.h"

#include <stdio.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/base/text.h"

void units_init(struct units *units, uint64_t bytes)
{
    *units = (struct units){.bytes = bytes, .count = (bytes + UNITS_BYTES - 1) / UNITS_BYTES};
    units->state = mem_new((size_t)units->count + 1);
}

void units_clear(struct units *units)
{
    mem_free(units->state);
    units->state = NULL;
}

void units_forget(struct units *units)
{
    memset(units->state, UNIT_MISSING, (size_t)units->count);
    units->next = units->there_bytes = 0;
}

uint64_t units_end(const struct units *units, uint64_t unit)
{
    return unit + 1 < units->count ? (unit + 1) * UNITS_BYTES : units->bytes;
}

bool units_read(const struct units *units, const char *range, uint64_t *first, uint64_t *count)
{
    char copy[64], *rest = copy;
    uint64_t begin, bytes;
    snprintf(copy, sizeof copy, "%s", range);
    const char *word = strsep(&rest, " ");
    if (!rest || text_to_u64(word, &begin) != 0 || text_to_u64(rest, &bytes) != 0 || begin % UNITS_BYTES || !bytes ||
        begin >= units->bytes || bytes > units->bytes - begin)
        return false;
    *first = begin / UNITS_BYTES;
    *count = (bytes + UNITS_BYTES - 1) / UNITS_BYTES;
    return units_end(units, *first + *count - 1) == begin + bytes;
}

bool units_set_there(struct units *units, uint64_t first, uint64_t count, enum unit before)
{
    for (uint64_t i = first; i < first + count; i++) {
        if (units->state[i] != before)
            return false;
        units->state[i] = UNIT_THERE;
        units->there_bytes += units_end(units, i) - i * UNITS_BYTES;
    }
    return true;
}

uint64_t units_next(struct units *units, uint64_t most, uint64_t *first)
{
    uint64_t count = 0;
    while (units->next < units->count && units->state[units->next] != UNIT_MISSING)
        units->next++;
    *first = units->next;
    while (count < most && *first + count < units->count && units->state[*first + count] == UNIT_MISSING)
        count++;
    return count;
}

void units_order(struct units *units, uint64_t first, uint64_t count)
{
    memset(units->state + first, UNIT_ORDERED, (size_t)count);
}

uint64_t units_whole(const struct units *units, uint64_t from)
{
    for (uint64_t i = from / UNITS_BYTES; i < units->count && units->state[i] == UNIT_THERE; i++)
        from = units_end(units, i);
    return from;
}
