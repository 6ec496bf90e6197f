/*
 * `kedge check`: everything that is wrong with a profile, and, when it has hosts over SSH, with them: side by side, each with
 * what is wrong and the remedy.
 */
#ifndef KEDGE_CONSOLE_CHECK_H
#define KEDGE_CONSOLE_CHECK_H

#include "console/args.h"
#include "console/style.h"

int check_profile(const struct args *args, const struct style *style);

#endif
