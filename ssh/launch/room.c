#include "ssh/launch/room.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ssh/base/buf.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

const char *room_place(enum part part)
{
    static const char *const places[PARTS] = {"programs", "text", "checkpoint", "adapter"};
    return places[part];
}

char *room_script(const struct parcel *const parcels[PARTS])
{
    struct buf script;
    buf_init(&script, 8192);
    /* U FOLDER: its KiB. A PARCEL KIB: what is left to send; a part of it may have arrived. */
    buf_format(&script, "U() { k=$(du -sk \"$1\" 2>/dev/null | tail -n 1 | cut -f 1); echo \"${k:-0}\"; }; m=0; "
                        "A() { [ -e \"$D/$1/.whole\" ] || { k=$(($2-$(U \"$D/$1\"))); [ $k -le 0 ] || m=$((m+k)); }; }; ");
    for (int part = 0; part < PARTS; part++)
        if (parcels[part] && parcels[part]->count)
            buf_format(&script, "A %s/%s %" PRIu64 "; ", room_place((enum part)part), parcels[part]->id,
                       parcels[part]->bytes / 1024 + 1);
    buf_format(&script, "echo \"used=$(($(U \"$D\")+$(U \"${R%%/*}\")))\"; echo \"missing=$m\"; ");
    buf_put(&script, "", 1);
    char *text = mem_text((const char *)buf_peek(&script));
    buf_clear(&script);
    return text;
}

int room_read(const char *output, struct room *room, struct why *why)
{
    char shown[200], first[40], second[40];
    *room = (struct room){0};
    if (sscanf(output, "used=%39s missing=%39s", first, second) == 2 && text_to_u64(first, &room->used) == 0 &&
        text_to_u64(second, &room->missing) == 0)
        return 0;
    return why_set(why, ERR_INVALID, "answered '%s' when asked what kedge has on its disk",
                   text_harmless(output, strlen(output), shown, sizeof shown));
}

int room_check(const struct profile_host *host, const struct room *room, struct why *why)
{
    char has[32], sends[32], writes[60] = "", may[32], bytes[32];
    uint64_t most = host->disk_budget / 1024;
    if (!host->disk_budget ||
        (room->used <= most && room->missing <= most - room->used && room->run <= most - room->used - room->missing))
        return 0;
    if (room->run)
        snprintf(writes, sizeof writes, ", and the run would write up to %s", text_from_bytes(room->run * 1024, bytes, sizeof bytes));
    return why_set(why, ERR_FULL, "kedge has %s there, %s would be sent%s: more than its disk_budget of %s; raise that, or delete what "
                   "is not needed in kedge's folders there (~/.local/share/kedge, ~/.local/state/kedge)",
                   text_from_bytes(room->used * 1024, has, sizeof has), text_from_bytes(room->missing * 1024, sends, sizeof sends), writes,
                   text_from_bytes(host->disk_budget, may, sizeof may));
}
