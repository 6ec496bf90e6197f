/*
 * The commands that begin a run (run) or the watching of one (attach).
 */
#ifndef KEDGE_CONSOLE_BEGIN_H
#define KEDGE_CONSOLE_BEGIN_H

#include "console/args.h"
#include "console/style.h"

int begin_run(const struct args *args, const struct style *style);
int begin_attach(const struct args *args, const struct style *style);

#endif
