/*
 * INI lines → (section, key, value, line number) through inih with our own line reader: lines are counted by us, a line longer
 * than INI_LINE bytes is refused (inih cuts at 200 and would make a false extra line of the rest), NUL bytes and invalid UTF-8 are
 * complaints. Comments: whole lines beginning with # or ;, and " ;" / " #" inline.
 */
#ifndef KEDGE_PROFILES_INI_H
#define KEDGE_PROFILES_INI_H

#include "ssh/base/why.h"

#define INI_LINE 4096

/* 0 or a complaint that the caller has recorded; parsing goes on in any case, so that all complaints are found. */
typedef void ini_value_cb(const char *section, const char *key, const char *value, int line, void *arg);
typedef void ini_fault_cb(int line, const char *fault, void *arg);

int ini_read_file(const char *path, ini_value_cb *value, ini_fault_cb *fault, void *arg, struct why *why);

#endif
