/* Any bytes as a profile: reading ends, complaints stay bounded, and what is accepted comes back from its settings text and
 * can be changed by the writer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/fields.h"
#include "profiles/ini.h"
#include "profiles/profile.h"
#include "ssh/base/why.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void hear_section(const char *section, int line, void *arg)
{
    BUG_IF(line < 1 || strlen(section) > INI_WORD);
    if (strncmp(section, "host ", 5) == 0)
        profile_add_host(arg, section + 5, NULL);
}

static void hear_value(const char *section, const char *key, const char *value, int line, void *arg)
{
    char name[2 * INI_WORD + 4];
    BUG_IF(line < 1 || strlen(section) > INI_WORD || strlen(key) > INI_WORD || strlen(value) > INI_LINE);
    snprintf(name, sizeof name, "%s.%s", section, key);
    if (strncmp(name, "host ", 5) == 0)
        name[4] = '.'; /* [host NAME] */
    profile_set(arg, name, value, NULL);
}

static void hear_fault(const char *fault, int line, void *arg)
{
    (void)arg;
    BUG_IF(line < 1 || !*fault);
}

static void check_settings(const struct profile *profile)
{
    static struct profile other;
    struct buf text;
    struct why why = {0};
    buf_init(&text, PROFILE_SETTINGS_BYTES);
    if (profile_to_settings(profile, &text, &why) || profile_from_settings(buf_peek(&text), buf_used(&text), &other, &why))
        BUG("%s", why.text);
    BUG_IF(profile_hash(profile) != profile_hash(&other));
    buf_clear(&text);
}

/* The same bytes through the front door, read and written. */
static void read_as_file(const uint8_t *bytes, size_t count)
{
    static struct profile profile;
    char path[64];
    struct complaints complaints;
    snprintf(path, sizeof path, "/dev/shm/kedge-fuzz-ini.%d", (int)getpid());
    FILE *file = fopen(path, "w");
    BUG_IF(!file);
    BUG_IF(fwrite(bytes, 1, count, file) != count);
    BUG_IF(fclose(file) != 0);
    complaints_init(&complaints);
    int err = profile_read(path, &profile, &complaints, NULL, 0);
    BUG_IF((err == 0) != (complaints.count == 0));
    if (err == 0) {
        profile_check(&profile, path, &complaints);
        check_settings(&profile);
    }
    if (profile_write_value(path, "run.steps", "77", NULL) == 0 && err == 0) {
        complaints_clear(&complaints);
        BUG_IF(profile_read(path, &profile, &complaints, NULL, 0) != 0);
        BUG_IF(profile.steps != 77);
    }
    complaints_clear(&complaints);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct profile profile;
    struct ini_reader reader = {hear_section, hear_value, hear_fault, &profile};
    profile_defaults(&profile);
    ini_read_bytes(bytes, count, &reader);
    check_settings(&profile);
    read_as_file(bytes, count);
    return 0;
}
