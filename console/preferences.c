#include "console/preferences.h"

#include <string.h>

#include "profiles/ini.h"
#include "ssh/base/mem.h"

static void take_value(const char *section, const char *key, const char *value, int line, void *arg)
{
    struct preferences *preferences = arg;
    (void)line;
    if (strcmp(section, "screen") != 0)
        return;
    if (strcmp(key, "mouse") == 0)
        preferences->mouse = strcmp(value, "yes") == 0;
    for (int i = 0; strcmp(key, "theme") == 0 && i < THEME_COUNT; i++)
        if (strcmp(value, terminal_theme_name((enum theme)i)) == 0)
            preferences->theme = (enum theme)i;
}

static void skip_fault(const char *fault, int line, void *arg)
{
    (void)fault, (void)line, (void)arg; /* a screen is shown all the same */
}

static void skip_section(const char *section, int line, void *arg)
{
    (void)section, (void)line, (void)arg;
}

struct preferences preferences_read(void)
{
    struct preferences preferences = {.theme = THEME_AUTO};
    const struct ini_reader reader = {.section_cb = skip_section, .value_cb = take_value, .fault_cb = skip_fault, .arg = &preferences};
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char *path = config && *config ? mem_format("%s/kedge/screen.ini", config)
                                   : mem_format("%s/.config/kedge/screen.ini", home ? home : "");
    ini_read_file(path, &reader, NULL);
    mem_free(path);
    return preferences;
}
