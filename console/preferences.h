/*
 * What a user wants of every screen: $XDG_CONFIG_HOME/kedge/screen.ini.
 *
 *   [screen]
 *   theme = auto | mono | safe
 *   mouse = no | yes
 */
#ifndef KEDGE_CONSOLE_PREFERENCES_H
#define KEDGE_CONSOLE_PREFERENCES_H

#include "console/terminal.h"

struct preferences {
    enum theme theme;
    bool mouse; /* it is asked for from the beginning; else it is the terminal's own until somebody wants it */
};

/* The defaults where there is no file, or nothing that is understood in it. */
struct preferences preferences_read(void);

#endif
