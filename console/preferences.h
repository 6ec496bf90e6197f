/*
 * What a user wants of every screen: $XDG_CONFIG_HOME/kedge/screen.ini.
 *
 *   [screen]
 *   theme = auto | mono | safe
 */
#ifndef KEDGE_CONSOLE_PREFERENCES_H
#define KEDGE_CONSOLE_PREFERENCES_H

#include "console/terminal.h"

enum theme preferences_theme(void); /* THEME_AUTO when there is no file, or nothing that is understood in it */

#endif
