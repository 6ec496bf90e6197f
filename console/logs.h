/*
 * `kedge logs`: the logs of one process, or of all of them merged by their time stamps, each line with the name of its
 * process.
 */
#ifndef KEDGE_CONSOLE_LOGS_H
#define KEDGE_CONSOLE_LOGS_H

#include "console/args.h"
#include "console/style.h"

int logs_show(const struct args *args, const struct style *style);

#endif
