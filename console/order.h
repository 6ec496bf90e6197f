/*
 * The commands that change a run which is going: set, pause, resume, stop. Each waits, with a deadline, until what was
 * ordered is so, and says what is so.
 */
#ifndef KEDGE_CONSOLE_ORDER_H
#define KEDGE_CONSOLE_ORDER_H

#include "console/args.h"
#include "console/style.h"

int order_set(const struct args *args, const struct style *style);
int order_pause(const struct args *args, const struct style *style);
int order_restart(const struct args *args, const struct style *style);
int order_drain(const struct args *args, const struct style *style);
int order_replace(const struct args *args, const struct style *style);
int order_snapshot(const struct args *args, const struct style *style);
int order_checkpoint(const struct args *args, const struct style *style);
int order_resume(const struct args *args, const struct style *style);
int order_stop(const struct args *args, const struct style *style);

#endif
