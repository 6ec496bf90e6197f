/*
 * A run as it was at a frozen step: for as long as a picture is drawn the view's state is a copy in which all that is known of that step
 * stands, and nothing that is newer. Pure. What the journal does not keep is unknown, not the value of now.
 */
#ifndef KEDGE_CONSOLE_REPLAY_H
#define KEDGE_CONSOLE_REPLAY_H

#include "console/view.h"

struct replay {
    bool on;
    struct state live;
};

/* The view's frozen step decides (waterfall_find). Nothing may be applied to the view before the end. */
void replay_begin(struct replay *replay, struct view *view);
void replay_end(struct replay *replay, struct view *view);

#endif
