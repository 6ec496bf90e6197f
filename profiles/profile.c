#include "profiles/profile.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/fields.h"
#include "ssh/base/hash.h"
#include "ssh/base/mem.h"
#include "ssh/base/text.h"

#define NAME_BYTES 128              /* "host.NAME.key" */
#define VALUE_BYTES (PROFILE_PATHS + 64)

/* ---- defaults ---- */

static void set_default(const struct field *row, void *base)
{
    struct why why = {0};
    if (row->initial && field_parse(row, row->initial, base, &why))
        BUG("the default of a setting is refused: %s", why.text);
}

void profile_defaults(struct profile *profile)
{
    size_t count;
    const struct field *rows = field_all(&count);
    memset(profile, 0, sizeof *profile);
    for (size_t i = 0; i < count; i++)
        if (!field_is_host(&rows[i]))
            set_default(&rows[i], profile);
}

int64_t profile_head_width(const struct profile *profile)
{
    return profile->head_width ? profile->head_width : profile->hidden / profile->heads;
}

bool profile_name_usable(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= PROFILE_NAME && strspn(name, PROFILE_NAME_LETTERS) == length && name[0] != '.' &&
           name[0] != '-';
}

struct profile_host *profile_add_host(struct profile *profile, const char *name, struct why *why)
{
    size_t count;
    const struct field *rows = field_all(&count);
    if (!profile_name_usable(name)) {
        why_set(why, ERR_INVALID, "'%.60s' cannot be the name of a host: " PROFILE_NAME_RULE, name);
        return NULL;
    }
    if (profile_find_host(profile, name)) {
        why_set(why, ERR_INVALID, "host %s is there twice", name);
        return NULL;
    }
    if (profile->host_count == PROFILE_HOSTS) {
        why_set(why, ERR_FULL, "host %s is one too many: a profile has at most %d hosts", name, PROFILE_HOSTS);
        return NULL;
    }
    struct profile_host *host = &profile->hosts[profile->host_count++];
    memset(host, 0, sizeof *host);
    memcpy(host->name, name, strlen(name));
    for (size_t i = 0; i < count; i++)
        if (field_is_host(&rows[i]))
            set_default(&rows[i], host);
    return host;
}

struct profile_host *profile_find_host(struct profile *profile, const char *name)
{
    for (int64_t i = 0; i < profile->host_count; i++)
        if (strcmp(profile->hosts[i].name, name) == 0)
            return &profile->hosts[i];
    return NULL;
}

const struct profile_host *profile_head(const struct profile *profile)
{
    for (int64_t i = 0; i < profile->host_count && profile->head[0]; i++)
        if (strcmp(profile->hosts[i].name, profile->head) == 0)
            return profile->hosts[i].kind == HOST_LOCAL ? NULL : &profile->hosts[i];
    return NULL;
}

uint64_t profile_fuse_ns(const struct profile *profile)
{
    double price = 0, most = 90.0 * 86400 * 1e9;
    for (int64_t i = 0; i < profile->host_count; i++)
        price += profile->hosts[i].price_per_hour;
    double paid_ns = profile->budget > 0 && price > 0 ? profile->budget / price * 3600e9 : 0;
    uint64_t fuse_ns = paid_ns > most ? (uint64_t)most : (uint64_t)paid_ns;
    return profile->deadline_ns && (!fuse_ns || profile->deadline_ns < fuse_ns) ? profile->deadline_ns : fuse_ns;
}

int profile_check_leases(const struct profile *profile, uint64_t wall_ms, struct why *why)
{
    char end[32];
    for (int64_t i = 0; i < profile->host_count; i++)
        if (profile->hosts[i].lease_until_s && profile->hosts[i].lease_until_s <= wall_ms / 1000)
            return why_set(why, ERR_INVALID, "host %s: its lease is over (lease_until = %s): write when it ends now, or take "
                           "another host", profile->hosts[i].name, text_from_time(profile->hosts[i].lease_until_s, end, sizeof end));
    return 0;
}

/* ---- one value by its full name ---- */

struct place {
    const struct field *row;
    void *base;
    int *line;
};

/* "mask.rate" or "host.NAME.listen" → the row and where its value lies. NAME may have dots, a key has none. */
static int find_place(struct profile *profile, const char *name, bool add_host, struct place *place, struct why *why)
{
    char host_name[NAME_BYTES], row_name[NAME_BYTES];
    const char *last = strrchr(name, '.');
    if (strncmp(name, "host.", 5) == 0 && last > name + 5 && (size_t)(last - name) < sizeof host_name) {
        snprintf(host_name, sizeof host_name, "%.*s", (int)(last - name - 5), name + 5);
        snprintf(row_name, sizeof row_name, "host%.100s", last);
        const struct field *row = field_find(row_name);
        struct profile_host *host = profile_find_host(profile, host_name);
        if (row && !host && add_host) {
            host = profile_add_host(profile, host_name, why);
            if (!host)
                return ERR_INVALID;
        }
        if (row && !host)
            return why_set(why, ERR_ABSENT, "%.100s: the profile has no host named %s", name, host_name);
        if (row) {
            *place = (struct place){row, host, &host->lines[field_host_index(row)]};
            return 0;
        }
    } else {
        const struct field *row = field_find(name);
        if (row && !field_is_host(row)) {
            *place = (struct place){row, profile, &profile->lines[field_index(row)]};
            return 0;
        }
        if (row)
            return why_set(why, ERR_INVALID, "%s is a setting of each host: write host.NAME.%s", name, row->key);
    }
    const char *near = field_nearest(name);
    return near ? why_set(why, ERR_ABSENT, "%.100s is not a setting; did you mean %s?", name, near)
                : why_set(why, ERR_ABSENT, "%.100s is not a setting; kedge-profile(5) lists them", name);
}

int profile_set(struct profile *profile, const char *name, const char *value, struct why *why)
{
    struct place place;
    int err = find_place(profile, name, false, &place, why);
    if (err == 0)
        err = field_parse(place.row, value, place.base, why);
    if (err == 0)
        *place.line = PROFILE_SET;
    return err;
}

int profile_get(const struct profile *profile, const char *name, char *out, size_t size, struct why *why)
{
    struct place place;
    int err = find_place((struct profile *)(uintptr_t)profile, name, false, &place, why);
    if (err == 0)
        field_format(place.row, place.base, out, size);
    return err;
}

int profile_line(const struct profile *profile, const char *name)
{
    struct place place;
    return find_place((struct profile *)(uintptr_t)profile, name, false, &place, NULL) ? 0 : *place.line;
}

/* ---- all values as text ---- */

static int put_setting(struct buf *out, const char *name, const struct field *row, const void *base)
{
    char value[VALUE_BYTES];
    field_format(row, base, value, sizeof value);
    return buf_format(out, "%s=%s\n", name, value);
}

static int put_settings(const struct profile *profile, bool live_too, struct buf *out)
{
    size_t count;
    const struct field *rows = field_all(&count);
    char name[NAME_BYTES];
    int err = 0;
    for (size_t i = 0; i < count && err == 0; i++)
        if (!field_is_host(&rows[i]) && (live_too || !rows[i].live))
            err = put_setting(out, field_name(&rows[i], name, sizeof name), &rows[i], profile);
    for (int64_t h = 0; h < profile->host_count; h++) {
        for (size_t i = 0; i < count && err == 0; i++) {
            if (!field_is_host(&rows[i]) || (!live_too && rows[i].live))
                continue;
            snprintf(name, sizeof name, "host.%s.%s", profile->hosts[h].name, rows[i].key);
            err = put_setting(out, name, &rows[i], &profile->hosts[h]);
        }
    }
    return err;
}

int profile_stage_layers(const struct profile *profile, int64_t layers[PROFILE_MAX_STAGES], struct why *why)
{
    const char *at = profile->stage_layers;
    int64_t count = 0, sum = 0;
    while (*at) {
        char *end;
        long value = strtol(at, &end, 10);
        bool goes_on = *end == ',' && end[1];
        if (!isdigit((unsigned char)*at) || value < 1 || value > profile->layers || (*end && !goes_on))
            return why_set(why, ERR_INVALID, "pipeline.layers = %.100s: write how many layers each stage has, as in 2,1,1,2",
                           profile->stage_layers);
        if (count < PROFILE_MAX_STAGES)
            layers[count] = value;
        count++;
        sum += value;
        at = goes_on ? end + 1 : end;
    }
    if (count && (count != profile->stages || sum != profile->layers))
        return why_set(why, ERR_INVALID,
                       "pipeline.layers = %.100s are %" PRId64 " layers on %" PRId64 " stages; the model has %" PRId64
                       " and pipeline.stages is %" PRId64, profile->stage_layers, sum, count, profile->layers, profile->stages);
    return count > 0;
}

int profile_to_settings(const struct profile *profile, struct buf *out, struct why *why)
{
    struct buf text;
    buf_init(&text, PROFILE_SETTINGS_BYTES);
    int err = put_settings(profile, true, &text);
    if (err == 0)
        err = buf_put(out, buf_peek(&text), buf_used(&text));
    buf_clear(&text);
    return err ? why_set(why, err, "the settings of the run do not fit into %zu bytes", out->max) : 0;
}

static int take_setting(struct profile *profile, const char *line, size_t bytes, struct why *why)
{
    char text[NAME_BYTES + VALUE_BYTES];
    if (bytes >= sizeof text || memchr(line, '\0', bytes))
        return why_set(why, ERR_INVALID, "a line of the settings is too long or has a NUL byte");
    memcpy(text, line, bytes);
    text[bytes] = '\0';
    char *equals = strchr(text, '=');
    if (!equals)
        return why_set(why, ERR_INVALID, "a line of the settings has no '='");
    *equals = '\0';
    struct place place;
    int err = find_place(profile, text, true, &place, why);
    if (err == 0 && (equals[1] || place.row->initial)) /* what must be given may be missing here: it came from no file */
        err = field_parse(place.row, equals + 1, place.base, why);
    return err;
}

int profile_from_settings(const uint8_t *text, size_t bytes, struct profile *profile, struct why *why)
{
    struct profile *fresh = mem_new(sizeof *fresh);
    const char *at = (const char *)text, *end = at + bytes;
    int err = 0;
    profile_defaults(fresh);
    while (at < end && err == 0) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            err = why_set(why, ERR_INVALID, "the settings end within a line");
        else
            err = take_setting(fresh, at, (size_t)(newline - at), why);
        at = newline ? newline + 1 : end;
    }
    if (err == 0)
        *profile = *fresh;
    mem_free(fresh);
    return err;
}

uint64_t profile_hash(const struct profile *profile)
{
    struct buf text;
    buf_init(&text, PROFILE_SETTINGS_BYTES);
    if (put_settings(profile, false, &text))
        BUG("the settings of a profile do not fit into %d bytes", PROFILE_SETTINGS_BYTES);
    uint64_t hash = hash_bytes(buf_peek(&text), buf_used(&text));
    buf_clear(&text);
    return hash;
}
