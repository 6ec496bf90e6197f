/*
 * What a view wishes of profiles on the disk, granted: list, read into the form, write, make a new one, check, plan.
 */
#ifndef KEDGE_CONSOLE_DESK_H
#define KEDGE_CONSOLE_DESK_H

#include "console/view.h"

/* False: the wish is not about profiles. What went wrong is said in the view. */
bool desk_grant(struct view *view, const struct wish *wish);

#endif
