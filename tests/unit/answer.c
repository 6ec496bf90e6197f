/* Final answers: found behind their mark, compared as numbers. */
#include "gpu/model/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void found(const char *text, bool first, const char *wanted)
{
    char answer[ANSWER_MAX];
    bool there = answer_find(text, strlen(text), first, answer);
    if (there != (wanted != NULL) || (there && strcmp(answer, wanted) != 0))
        fail_msg("in '%s' is '%s'", text, there ? answer : "(none)");
}

static void behind_the_mark(void **state)
{
    (void)state;
    found("so it is\n#### 42", false, "42");
    found("####42\n", false, "42");
    found("#### 1\n\nmore #### 2 \r\n", false, "2");
    found("#### 1\n\nmore #### 2\n", true, "1");
    found("42", false, NULL);
    found("####", false, NULL);
    found("#### \n42", false, NULL);
    found("", false, NULL);
    found("##### 7", false, "# 7"); /* the first four are the mark */
    char large[600];
    memset(large, 'x', sizeof large);
    memcpy(large, "####", 4);
    assert_false(answer_find(large, sizeof large, false, (char[ANSWER_MAX]){0}));
    assert_true(answer_find(large, ANSWER_MAX + 3, false, (char[ANSWER_MAX]){0})); /* exactly what fits */
    assert_false(answer_find("#### a\0b", 8, false, (char[ANSWER_MAX]){0}));
}

static void whole_lines(void **state)
{
    (void)state;
    assert_false(answer_is_whole("#### 4", 6));
    assert_true(answer_is_whole("#### 4\n", 7));
    assert_false(answer_is_whole("####\n", 5));
    assert_false(answer_is_whole("4\n", 2));
}

static void same_numbers(void **state)
{
    static const char *const same[][2] = {{"42", "42"}, {"42", "42.0"}, {"$42", "42"}, {"42,000", "42000"}, {"42.", "42"}, {"-3", "-3.00"},
                                          {"yes", "yes"}};
    static const char *const different[][2] = {{"42", "43"}, {"42", "4.2"}, {"42", "-42"}, {"yes", "no"}, {"42 apples", "42"}, {"", "0"}};
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_true(answer_same(same[i][0], same[i][1]));
    for (size_t i = 0; i < sizeof different / sizeof *different; i++)
        if (answer_same(different[i][0], different[i][1]))
            fail_msg("%s is not %s", different[i][0], different[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(behind_the_mark), cmocka_unit_test(whole_lines), cmocka_unit_test(same_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
