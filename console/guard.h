/*
 * Gives the terminal back when nobody else can: a child that sleeps on a pipe. When the pipe ends without the word that all is well, its
 * parent was killed, and the child writes what ends a screen and sets the line as it was, unless a shell has taken the terminal already.
 */
#ifndef KEDGE_CONSOLE_GUARD_H
#define KEDGE_CONSOLE_GUARD_H

#include <stddef.h>
#include <termios.h>

struct guard;

/* `reset`: the bytes that bring the terminal back. NULL when there is no process to be had: one does without. */
struct guard *guard_new(int fd, const struct termios *before, const char *reset, size_t reset_bytes);
void guard_free(struct guard *guard); /* all is well: the child ends and is reaped */

#endif
