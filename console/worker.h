/* Commands that are the worker's: the console is only the door to them, since models are read there alone. */
#ifndef KEDGE_CONSOLE_WORKER_H
#define KEDGE_CONSOLE_WORKER_H

#include "console/args.h"
#include "console/style.h"

int worker_export(const struct args *args, const struct style *style);
int worker_sample(const struct args *args, const struct style *style);
int worker_eval(const struct args *args, const struct style *style);
int worker_data(const struct args *args, const struct style *style);

#endif
