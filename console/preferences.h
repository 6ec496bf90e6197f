/*
 * What a user wants of every screen: $XDG_CONFIG_HOME/kedge/screen.ini.
 *
 *   [screen]
 *   theme = auto | mono | safe | light
 *   mouse = no | yes
 */
#ifndef KEDGE_CONSOLE_PREFERENCES_H
#define KEDGE_CONSOLE_PREFERENCES_H

#include "console/terminal.h"
#include "ssh/base/why.h"

struct preferences {
    enum theme theme;
    bool mouse; /* it is asked for from the beginning; else it is the terminal's own until somebody wants it */
    struct why fault; /* what was not understood first, with its line; err 0 = all was */
};

/* The defaults where there is no file; what is not understood in it is left out: a screen is shown all the same, and says so. */
struct preferences preferences_read(void);

#endif
