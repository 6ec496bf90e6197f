/*
 * The commands that look and change nothing: text (console/print.h) or JSON (console/report.h) of the state of a run.
 */
#ifndef KEDGE_CONSOLE_SHOW_H
#define KEDGE_CONSOLE_SHOW_H

#include "console/args.h"
#include "console/style.h"

int show_list(const struct args *args, const struct style *style);   /* kedge, kedge ls */
int show_status(const struct args *args, const struct style *style);
int show_anchor(const struct args *args, const struct style *style);
int show_links(const struct args *args, const struct style *style);
int show_hosts(const struct args *args, const struct style *style);
int show_events(const struct args *args, const struct style *style);
int show_get(const struct args *args, const struct style *style);

#endif
