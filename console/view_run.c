/*
 * What changes a whole run: each asks first, the focus on Cancel, and says which command does the same; a kill wants the run's name.
 */
#include <string.h>

#include "console/view.h"

struct question {
    enum act act;
    enum order_kind order;
    const char *title, *text, *twin;
};

static const struct question questions[] = {
    {ACT_PAUSE, ORDER_PAUSE, "Pause this run?",
     "All processes hold at the next step boundary and keep everything in memory. Rented hosts cost the same meanwhile.", "pause"},
    {ACT_CHECKPOINT, ORDER_CHECKPOINT, "Write the weights?",
     "Every stage writes its weights at the next step boundary, and training goes on.", "checkpoint"},
    {ACT_STOP, ORDER_STOP, "Stop this run?",
     "All its processes end after the step that is under way. Its journal, logs and profile stay. It cannot be resumed.", "stop"},
    {ACT_KILL, ORDER_STOP_NOW, "Kill this run?",
     "All its processes are ended at once; the step that is under way is lost. It cannot be resumed.", "stop --now"},
};

static const struct question resume = {ACT_PAUSE, ORDER_RESUME, "Resume this run?",
                                       "Training goes on from the step at which it was paused.", "resume"};

bool view_act_on_run(struct view *view, enum act act)
{
    const struct question *question = NULL;
    char twin[160];
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        if (questions[i].act == act)
            question = &questions[i];
    if (!question)
        return false;
    if (act == ACT_PAUSE && view->state.run.phase == PHASE_HOLDING)
        question = &resume;
    if (!view->road.live || state_is_over(&view->state)) {
        view_say(view, INK_WARN, "the run is over: there is nothing to %s", question->twin);
        return true;
    }
    if (view->road.down) {
        view_say(view, INK_WARN, "no road to the scheduler now; 'kedge stop %s' ends a run whose scheduler is dead", view->run);
        return true;
    }
    struct wish wish = {.kind = WISH_ORDER, .order = question->order};
    snprintf(twin, sizeof twin, "kedge %s %s", question->twin, view->run);
    if (act == ACT_KILL)
        view_ask_typed(view, question->title, question->text, twin, view->run, &wish);
    else
        view_ask(view, question->title, question->text, twin, &wish);
    return true;
}
