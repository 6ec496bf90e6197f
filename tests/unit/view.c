/* The screen without a terminal: what keys do, what is asked before, what is said; and that nothing of another run stays. */
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "console/view.h"
#include "console/waterfall.h"
#include "ssh/base/clock.h"
#include "ssh/base/mem.h"
#include "tests/helpers/fleet.h"

static void assert_shows(struct view *view, const char *words)
{
    char *text = fleet_text(view, 24, 80, false);
    if (!strstr(text, words))
        fail_msg("'%s' is not on the screen:\n%s", words, text);
    mem_free(text);
}

static void assert_hides(struct view *view, const char *words)
{
    char *text = fleet_text(view, 24, 80, false);
    if (strstr(text, words))
        fail_msg("'%s' is on the screen:\n%s", words, text);
    mem_free(text);
}

static void assert_wish(struct view *view, enum wish_kind kind, enum order_kind order, const char *name, const char *value)
{
    struct wish wish = {.kind = WISH_NONE};
    assert_true(view_take(view, &wish));
    assert_int_equal(wish.kind, kind);
    assert_int_equal(wish.order, order);
    assert_string_equal(wish.name, name);
    assert_string_equal(wish.value, value);
    mem_free(wish.text);
}

static void assert_no_wish(struct view *view)
{
    struct wish wish;
    assert_false(view_take(view, &wish));
}

static void views_show_what_they_are_for(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 4, 4, 30);
    assert_shows(&view, "step 60 of 200");
    assert_shows(&view, "un-masked 3.2000 at step 40, from 5.5400");
    assert_shows(&view, "mask.rate 0.9 → 0.95 from step 30");
    assert_shows(&view, "r0s0 waits for gradient from r0s1, 31 % of the step: that road carries");
    fleet_press(&view, "2");
    assert_shows(&view, "of dense");
    assert_shows(&view, "6.1 %");
    assert_shows(&view, "dense bf16's 76.3 MiB   0.036 an hour");
    fleet_press(&view, "5");
    assert_shows(&view, "ada@laptop");
    fleet_press(&view, "6");
    assert_shows(&view, "×2"); /* two equal warnings in one row */
    fleet_press(&view, "4");
    assert_shows(&view, "log of r0s0");
    view_clear(&view);
}

static void leaving_harms_nothing(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    fleet_press(&view, "q");
    assert_wish(&view, WISH_LEAVE, 0, "", "");
    view_press(&view, PRESS_CONTROL('c'), FLEET_NOW);
    assert_wish(&view, WISH_LEAVE, 0, "", "");
    view_clear(&view);
}

static void a_run_is_changed_only_after_asking(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    fleet_press(&view, "S");
    assert_shows(&view, "kedge stop sea");
    fleet_press(&view, "Enter"); /* Cancel has the focus */
    assert_no_wish(&view);
    fleet_press(&view, "S Esc S q S n");
    assert_no_wish(&view);
    fleet_press(&view, "S Left Enter");
    assert_wish(&view, WISH_ORDER, ORDER_STOP, "", "");
    fleet_press(&view, "P y");
    assert_wish(&view, WISH_ORDER, ORDER_PAUSE, "", "");
    fleet_press(&view, "K y y y Enter"); /* its name must be typed */
    assert_no_wish(&view);
    fleet_press(&view, "K s e a Enter");
    assert_wish(&view, WISH_ORDER, ORDER_STOP_NOW, "", "");
    view_clear(&view);
}

/* A host is named by the row that is selected, or typed; who takes its place is one that has nothing of the run. */
static void a_host_is_changed_only_after_asking(void **unused)
{
    struct view view;
    struct wire_host spare = {.host = "spare", .use = HOST_SPARE};
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    fleet_press(&view, "4 g M");
    assert_shows(&view, "no other host of this run is idle");
    view_apply(&view, WIRE_HOST_ROW, &spare, FLEET_NOW);
    fleet_press(&view, "D");
    assert_shows(&view, "kedge drain sea h0");
    fleet_press(&view, "Enter D Esc R n");
    assert_no_wish(&view);
    fleet_press(&view, "D y");
    assert_wish(&view, WISH_ORDER, ORDER_DRAIN, "h0", "");
    fleet_press(&view, "G R Left Enter");
    assert_wish(&view, WISH_ORDER, ORDER_RESTART, "h3", "");
    fleet_press(&view, "M");
    assert_shows(&view, "replace h3 by: spare");
    fleet_press(&view, "Enter");
    assert_shows(&view, "kedge replace sea h3 spare");
    fleet_press(&view, "y");
    assert_wish(&view, WISH_ORDER, ORDER_REPLACE, "h3", "spare");
    fleet_press(&view, "1 :");
    for (const char *c = "drain nowhere"; *c; c++)
        view_press(&view, (unsigned char)*c, FLEET_NOW);
    fleet_press(&view, "Enter");
    assert_shows(&view, "there is no host 'nowhere'");
    assert_no_wish(&view);
    view_clear(&view);
}

/* The command that does the same can be taken along instead. */
static void a_dialog_gives_its_command(void **unused)
{
    struct view view;
    struct wish wish;
    (void)unused;
    fleet_view(&view, 8, 4, 3);
    fleet_press(&view, "S c");
    assert_true(view_take(&view, &wish) && wish.kind == WISH_COPY);
    assert_string_equal(wish.text, "kedge stop sea");
    mem_free(wish.text);
    assert_shows(&view, "Stop this run?"); /* it still asks */
    assert_no_wish(&view);
    view_clear(&view);
}

static void read_only_changes_nothing(void **unused)
{
    struct view view;
    size_t count;
    const struct key *keys = keys_all(&count);
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    view.read_only = true;
    assert_shows(&view, "[read-only]");
    for (size_t i = 0; i < count; i++)
        for (int panel = PANEL_RUN; panel < PANEL_COUNT && keys[i].changes; panel++) {
            view.panel = (enum panel)panel;
            if (keys[i].panels & ON(panel))
                view_press(&view, keys[i].presses[0], FLEET_NOW);
            assert_false(view.prompt.open || view.dialog.kind);
            fleet_press(&view, "y Enter");
        }
    static const char *const typed[] = {"set mask.rate=0.5", "drain h0", "replace h0 h1"};
    for (size_t i = 0; i < sizeof typed / sizeof *typed; i++) {
        fleet_press(&view, "1 :");
        for (const char *c = typed[i]; *c; c++)
            view_press(&view, (unsigned char)*c, FLEET_NOW);
        fleet_press(&view, "Enter");
        assert_false(view.dialog.kind);
    }
    struct wish wish;
    while (view_take(&view, &wish)) {
        assert_int_not_equal(wish.kind, WISH_ORDER);
        mem_free(wish.text);
    }
    view_clear(&view);
}

static void a_knob_is_drafted_then_proposed(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 4, 4, 30);
    fleet_press(&view, "5 Down +");
    assert_shows(&view, "→ 0.96 drafted");
    assert_shows(&view, "a step over all roads instead of");
    fleet_press(&view, "- - Enter");
    assert_wish(&view, WISH_ORDER, ORDER_SET, "mask.rate", "0.94");
    fleet_press(&view, "+ Esc");
    assert_hides(&view, "drafted");
    fleet_press(&view, "Enter Erase Erase 9 Enter"); /* 0.95 → 0.9 typed */
    assert_wish(&view, WISH_ORDER, ORDER_SET, "mask.rate", "0.9");
    fleet_press(&view, "Enter 7 7 7 Erase Erase Erase Erase Erase Erase 7 Enter"); /* out of range: said here, sent nowhere */
    assert_no_wish(&view);
    assert_shows(&view, "mask.rate");
    fleet_press(&view, "Esc u");
    assert_shows(&view, "→ 0.9 drafted");
    fleet_press(&view, "Enter");
    assert_wish(&view, WISH_ORDER, ORDER_SET, "mask.rate", "0.9");
    struct wire_knob_row pending = {.name = "mask.rate", .value = "0.95", .pending = 1, .pending_value = "0.9"};
    view_apply(&view, WIRE_KNOB_ROW, &pending, FLEET_NOW);
    assert_shows(&view, "→ 0.9 proposed");
    view_clear(&view);
}

static void the_command_line_has_completion_and_history(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    fleet_press(&view, ": l i Tab Enter");
    assert_int_equal(view.panel, PANEL_LINKS);
    fleet_press(&view, ": s e t Tab");
    assert_string_equal(view.prompt.text, "set ");
    fleet_press(&view, "m Tab");
    assert_string_equal(view.prompt.text, "set mask.rate=");
    fleet_press(&view, "0 . 5 Enter");
    assert_wish(&view, WISH_ORDER, ORDER_SET, "mask.rate", "0.5");
    fleet_press(&view, ": Up");
    assert_string_equal(view.prompt.text, "set mask.rate=0.5");
    fleet_press(&view, "Up");
    assert_string_equal(view.prompt.text, "links ");
    fleet_press(&view, "Down Down");
    assert_string_equal(view.prompt.text, "");
    fleet_press(&view, "Esc : k n o b Enter");
    assert_shows(&view, "did you mean 'knobs'?");
    fleet_press(&view, ": s t o p Enter");
    assert_int_equal(view.dialog.kind, DIALOG_ASK); /* typed or pressed: it asks */
    view_clear(&view);
}

static void filters_hide_rows(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    fleet_press(&view, "6 / n o n - f i n Enter");
    assert_shows(&view, "was not finite");
    assert_hides(&view, "longer than usual");
    fleet_press(&view, "!");
    assert_hides(&view, "not finite");
    fleet_press(&view, "Esc");
    assert_shows(&view, "longer than usual");
    fleet_press(&view, "/ ( Enter"); /* no expression: searched for as it stands */
    assert_shows(&view, "is no regular expression");
    fleet_press(&view, "Esc v v");
    assert_hides(&view, "longer than usual");
    view_clear(&view);
}

/* Patterns that libc would chew on for ever are searched for as they stand. */
static void filters_are_bounded(void **unused)
{
    static const struct { const char *pattern; bool regex; } cases[] = {
        {"r[0-9]+s0", true}, {"a{2,300}", true}, {"(ab{3}){2}", true}, {"a\\{9999}", true}, {"[{]9999}", true},
        {"((a{1,255}){1,255}){1,255}", false}, {"a{1001}", false}, {"a{99999999999999999999}", false}, {"(a*)*\\1", false}, {"(", false},
    };
    struct filter filter = {0};
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(filter_set(&filter, cases[i].pattern), cases[i].regex);
        assert_true(cases[i].regex || filter_match(&filter, cases[i].pattern));
    }
    filter_clear(&filter);
}

static void events_are_saved_as_they_are_shown(void **unused)
{
    struct view view;
    struct wish wish;
    (void)unused;
    fleet_view(&view, 8, 4, 3);
    fleet_press(&view, "6 / s l o w Enter s");
    assert_shows(&view, "save into: sea-events.txt");
    fleet_press(&view, "Enter");
    assert_true(view_take(&view, &wish) && wish.kind == WISH_SAVE);
    assert_string_equal(wish.name, "sea-events.txt");
    assert_non_null(strstr(wish.text, "2 times, at last "));
    assert_non_null(strstr(wish.text, "r0s1 peer-slow: r0s1 waits longer"));
    assert_null(strstr(wish.text, "non-finite"));
    mem_free(wish.text);
    fleet_press(&view, "s Esc");
    assert_no_wish(&view);
    view_clear(&view);
}

static void click(struct view *view, uint32_t press, int row, int column)
{
    struct surface surface;
    surface_init(&surface, 24, 80, false);
    view_draw(view, &surface, FLEET_NOW, FLEET_WALL);
    view_mouse(view, press, row, column, &surface, FLEET_NOW);
    view_draw(view, &surface, FLEET_NOW, FLEET_WALL);
    surface_clear(&surface);
}

/* What is clicked is what keys lead to; the mouse is nobody's before m. */
static void a_mouse_selects_and_scrolls(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 64, 8, 3);
    assert_false(view.mouse);
    fleet_press(&view, "m");
    assert_true(view.mouse);
    assert_wish(&view, WISH_MOUSE, 0, "", "");
    for (int column = 30; column < 80 && view.panel != PANEL_HOSTS; column++)
        click(&view, PRESS_CLICK, 1, column);
    assert_int_equal(view.panel, PANEL_HOSTS);
    int first = view.places[PANEL_HOSTS].row;
    click(&view, PRESS_CLICK, first + 3, 10);
    assert_int_equal(view.places[PANEL_HOSTS].selected, 3);
    click(&view, PRESS_WHEEL_DOWN, 0, 0);
    assert_int_equal(view.places[PANEL_HOSTS].selected, 4);
    click(&view, PRESS_WHEEL_UP, 0, 0);
    click(&view, PRESS_CLICK, first, 70);
    assert_int_equal(view.places[PANEL_HOSTS].selected, 0);
    static const struct { int row, column; } nowhere[] = {{0, 0}, {1, 79}, {23, 79}, {-1, -1}, {400, 400}};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
        click(&view, PRESS_CLICK, nowhere[i].row, nowhere[i].column);
    assert_int_equal(view.places[PANEL_HOSTS].selected, 0);
    fleet_press(&view, "S"); /* a dialog is answered by keys */
    click(&view, PRESS_CLICK, first + 3, 10);
    assert_shows(&view, "Stop this run?");
    assert_no_wish(&view);
    view_clear(&view);
}

static void what_is_old_says_so(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    view_down(&view, "the scheduler closed the connection", FLEET_NOW - 14 * CLOCK_SECOND);
    assert_shows(&view, "no road to the scheduler for 14 s");
    view.road.down = false;
    view.state.run_heard_ns -= 14 * CLOCK_SECOND;
    assert_shows(&view, "14 s old");
    assert_shows(&view, "last word from the scheduler 14 s ago");
    view_clear(&view);
}

static void another_run_of_the_same_name_begins_empty(void **unused)
{
    struct view view;
    struct wire_run_state run = {.run = "sea", .run_id = 8, .phase = PHASE_FORMING, .steps = 10, .loss = NAN, .validation_loss = NAN,
                                 .first_validation_loss = NAN, .step_seconds = NAN, .tokens_per_second = NAN, .gradient_norm = NAN};
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    view_apply(&view, WIRE_RUN_STATE, &run, FLEET_NOW);
    assert_int_equal(view.state.event_count, 0);
    assert_int_equal(view.history.loss.count, 0);
    assert_shows(&view, "forming");
    view_clear(&view);
}

static void a_log_is_filtered_alone(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 4, 4, 3);
    view.has_folder = true;
    fleet_press(&view, "4");
    assert_shows(&view, "log of r0s0");
    snprintf(view.log, sizeof view.log, "one road is up\ntwo: warn of something\nthree road is lost\n");
    fleet_press(&view, "Enter");
    assert_shows(&view, "three road is lost");
    assert_hides(&view, "r0s2");
    fleet_press(&view, "/ r o a d . * l Enter");
    assert_shows(&view, "lines with road.*l");
    assert_shows(&view, "three road is lost");
    assert_hides(&view, "one road");
    fleet_press(&view, "!");
    assert_shows(&view, "lines without road.*l");
    assert_shows(&view, "two: warn");
    assert_hides(&view, "three road");
    fleet_press(&view, "! / x y z Enter");
    assert_shows(&view, "no line of its end matches");
    fleet_press(&view, "Esc"); /* the filter, then the log, then the view */
    assert_shows(&view, "one road is up");
    fleet_press(&view, "Esc");
    assert_shows(&view, "r0s2");
    fleet_press(&view, "/ s 1 Enter"); /* the rows have their own */
    assert_shows(&view, "one road is up");
    assert_hides(&view, "r0s2");
    fleet_press(&view, "Esc Esc");
    assert_int_equal(view.panel, PANEL_RUN);
    view_clear(&view);
}

/* As `kedged history` says it. */
static void recall_row(struct view *view, uint64_t wall_ms, enum wire_type type, const void *row)
{
    struct buf encoded;
    char line[4096];
    buf_init(&encoded, sizeof line);
    assert_int_equal(wire_encode((uint16_t)type, row, &encoded, NULL), 0);
    size_t used = (size_t)snprintf(line, sizeof line, "row %" PRIu64 " %d ", wall_ms, (int)type);
    for (size_t i = 0; i < buf_used(&encoded); i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%02x", ((const uint8_t *)buf_peek(&encoded))[i]);
    buf_clear(&encoded);
    history_recall(&view->history, &view->state, line);
}

static void a_frozen_step_shows_where_its_time_went(void **unused)
{
    struct view view;
    (void)unused;
    fleet_view(&view, 2, 2, 3);
    for (int i = 0; i < 2; i++) {
        struct wire_host host = {.clock_offset = 300 * i};
        snprintf(host.host, sizeof host.host, "h%d", i);
        view_apply(&view, WIRE_HOST_ROW, &host, FLEET_NOW);
    }
    fleet_press(&view, "Space");
    assert_wish(&view, WISH_RECALL, 0, "", "");
    assert_shows(&view, "the journal does not know");
    for (int step = 50; step <= 60; step++) {
        if (step == 52) { /* keys are as fast as the journal's reader: the frozen step stays, however little has come */
            fleet_press(&view, "Left Left");
            assert_shows(&view, "frozen at step 58");
            fleet_press(&view, "Right Right");
        }
        for (int stage = 0; stage < 2; stage++) {
            char line[400]; /* the second stage begins half a second later, and its clock is five minutes ahead */
            snprintf(line, sizeof line, "step 1796000000000 r0s%d %d 0 2.5 %s 0.002 0.95 2048 1000000000 %d 0 %d 0 0 0 0 0 %s %s", stage, step,
                     stage ? "nan" : "0.9", step == 58 ? 100000000 : 600000000, step == 58 ? 900000000 : 400000000,
                     stage ? "1796000300500000000" : "1796000000000000000", stage ? "t" : "gggg");
            history_recall(&view.history, &view.state, line);
        }
    }
    waterfall_recalled(&view);
    assert_shows(&view, "frozen at step 60");
    assert_shows(&view, "1.0 s: 400 ms gradient of r0s1");
    assert_shows(&view, "r0s0     ggggggggggggggggggggggg  ");
    assert_shows(&view, "r0s1                ttttttttttttttttttttttt ");
    fleet_press(&view, "Left Left");
    assert_shows(&view, "frozen at step 58");
    assert_shows(&view, "900 ms gradient of r0s1");
    /* The numbers are of that step, and what nobody knows of it is no number. */
    assert_shows(&view, "step 58 of 200");
    assert_shows(&view, "loss 2.5000");
    assert_shows(&view, "tokens/s 2.05k");
    assert_hides(&view, "spent");
    fleet_press(&view, "4");
    assert_shows(&view, "gradient from r0s1, 90 % of the step");
    assert_shows(&view, "10 %"); /* it computed */
    assert_hides(&view, "41.0 GiB");
    struct wire_host then = {.cpu_share = 0.42F, .disk_free_bytes = UINT64_C(17) << 30, .load = NAN, .clock_offset = 0, .host = "h0"};
    recall_row(&view, 1795999999900, WIRE_HOST_ROW, &then);
    then.cpu_share = 0.77F;
    recall_row(&view, 1796000009000, WIRE_HOST_ROW, &then);
    assert_shows(&view, "42 %");
    assert_shows(&view, "17.0 GiB");
    assert_hides(&view, "77 %");
    struct wire_anchor_row now = {.host = "h1", .saying = "waits for a snapshot", .used = 99};
    view_apply(&view, WIRE_ANCHOR_ROW, &now, FLEET_NOW);
    fleet_press(&view, "3");
    assert_shows(&view, "nothing is known of it at step 58");
    struct wire_anchor_row anchor = {.host = "h1", .saying = "computes gradients", .used = 51, .age = 7, .target = 8, .pending = 57};
    recall_row(&view, 1796000000000, WIRE_ANCHOR_ROW, &anchor);
    assert_shows(&view, "computes gradients");
    assert_shows(&view, "step 57 captured");
    assert_shows(&view, "[frozen]");
    fleet_press(&view, "1");
    for (int i = 0; i < 20; i++)
        fleet_press(&view, "Left");
    assert_shows(&view, "frozen at step 50");
    fleet_press(&view, "Esc");
    assert_hides(&view, "frozen");
    struct wire_run_state ahead = {.run = "sea", .run_id = 7, .phase = PHASE_TRAINING, .step = 63, .steps = 200}; /* the journal is behind */
    view_apply(&view, WIRE_RUN_STATE, &ahead, FLEET_NOW);
    fleet_press(&view, "Space");
    assert_shows(&view, "frozen at step 63: the journal does not know");
    waterfall_recalled(&view);
    assert_shows(&view, "frozen at step 60 (");
    view_clear(&view);
}

static void hostile_lines_of_the_journal_change_nothing(void **unused)
{
    static const char *const lines[] = {
        "", "step", "step x", "loss 1", "loss 1 0 nan nan", "loss 99999999999999999999999 0 1 1", "rate 1 a b 3 1e9",
        "rate 1796000000000 r0s0 r0s1 1 inf", "step 1 r0s0 18446744073709551615 0 nan nan nan nan 1 1 1 1 1 1 1 1 1",
        "step 1 r0s0 59 0 nan nan nan nan 1 0 1 1 1 1 1 1 1 18446744073709551615 18446744073709551615 xyz",
        "step 1 r0s0 60 0 nan nan nan nan 1 18446744073709551615 1 1 1 1 1 1 1 0 0 -",
        "row", "row 1", "row 1 132", "row 1 132 ", "row 1 132 zz", "row 1 132 00", "row 1 130 ffff", "row 99999999999999999999 132 00", "row 1 121 00",
    };
    struct view view;
    (void)unused;
    fleet_view(&view, 2, 2, 3);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        history_recall(&view.history, &view.state, lines[i]);
    fleet_press(&view, "Space");
    mem_free(fleet_text(&view, 24, 80, false));
    fleet_press(&view, "Left Right");
    mem_free(fleet_text(&view, 24, 80, false));
    view_clear(&view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_show_what_they_are_for),
        cmocka_unit_test(leaving_harms_nothing),
        cmocka_unit_test(a_run_is_changed_only_after_asking),
        cmocka_unit_test(a_host_is_changed_only_after_asking), cmocka_unit_test(a_dialog_gives_its_command), cmocka_unit_test(read_only_changes_nothing),
        cmocka_unit_test(a_knob_is_drafted_then_proposed),
        cmocka_unit_test(the_command_line_has_completion_and_history),
        cmocka_unit_test(filters_hide_rows), cmocka_unit_test(filters_are_bounded),
        cmocka_unit_test(events_are_saved_as_they_are_shown), cmocka_unit_test(a_mouse_selects_and_scrolls),
        cmocka_unit_test(what_is_old_says_so),
        cmocka_unit_test(another_run_of_the_same_name_begins_empty),
        cmocka_unit_test(a_frozen_step_shows_where_its_time_went), cmocka_unit_test(a_log_is_filtered_alone),
        cmocka_unit_test(hostile_lines_of_the_journal_change_nothing),
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
