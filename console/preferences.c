#include "console/preferences.h"

#include <string.h>

#include "profiles/ini.h"
#include "ssh/base/mem.h"

static bool take_theme(struct preferences *preferences, const char *value)
{
    for (int i = 0; i < THEME_COUNT; i++)
        if (strcmp(value, terminal_theme_name((enum theme)i)) == 0) {
            preferences->theme = (enum theme)i;
            return true;
        }
    return false;
}

static bool take_mouse(struct preferences *preferences, const char *value)
{
    preferences->mouse = strcmp(value, "yes") == 0;
    return preferences->mouse || strcmp(value, "no") == 0;
}

static const struct {
    const char *key, *values;
    bool (*take)(struct preferences *preferences, const char *value); /* false = none of its values */
} table[] = {{"theme", "auto, mono, safe or light", take_theme}, {"mouse", "yes or no", take_mouse}};

static void take_value(const char *section, const char *key, const char *value, int line, void *arg)
{
    struct preferences *preferences = arg;
    struct why why = {0};
    size_t i = 0;
    while (i < sizeof table / sizeof *table && strcmp(key, table[i].key) != 0)
        i++;
    if (strcmp(section, "screen") != 0)
        why_set(&why, ERR_INVALID, "screen.ini:%d: [%s] is not known, only [screen]", line, section);
    else if (i == sizeof table / sizeof *table)
        why_set(&why, ERR_INVALID, "screen.ini:%d: %s is not known, only theme and mouse", line, key);
    else if (!table[i].take(preferences, value))
        why_set(&why, ERR_INVALID, "screen.ini:%d: %s is %s, not '%s'", line, key, table[i].values, value);
    if (why.err && !preferences->fault.err)
        preferences->fault = why;
}

static void take_fault(const char *fault, int line, void *arg)
{
    struct preferences *preferences = arg;
    if (!preferences->fault.err)
        why_set(&preferences->fault, ERR_INVALID, "screen.ini:%d: %s", line, fault);
}

static void skip_section(const char *section, int line, void *arg)
{
    (void)section, (void)line, (void)arg; /* its values tell */
}

struct preferences preferences_read(void)
{
    struct preferences preferences = {.theme = THEME_AUTO};
    const struct ini_reader reader = {.section_cb = skip_section, .value_cb = take_value, .fault_cb = take_fault, .arg = &preferences};
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char *path = config && *config ? mem_format("%s/kedge/screen.ini", config)
                                   : mem_format("%s/.config/kedge/screen.ini", home ? home : "");
    struct why why;
    if (ini_read_file(path, &reader, &why) != 0 && why.err != ERR_ABSENT)
        preferences.fault = why;
    mem_free(path);
    return preferences;
}
