/* Finding a backend: what is wrong is said in one line, and the device says what it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "tests/helpers/rig.h"

static void refused(const char *folder, const char *name, int err, const char *word)
{
    struct why why = {0};
    assert_null(ops_load(folder, name, &why));
    assert_int_equal(why.err, err);
    if (!strstr(why.text, word) || strchr(why.text, '\n'))
        fail_msg("'%s' does not say '%s' in one line", why.text, word);
}

static void test_refused(void **state)
{
    (void)state;
    refused(rig_folder(), "quantum", ERR_ABSENT, "kedge-quantum.so");
    refused(rig_folder(), "../cpu", ERR_INVALID, "'../cpu'");
    refused(rig_folder(), "", ERR_INVALID, "''");
    refused("/nonexistent", "cpu", ERR_ABSENT, "/nonexistent/kedge-cpu.so");
}

/* A file that is no shared object. */
static void test_damaged(void **state)
{
    (void)state;
    const char *tmp = getenv("TMP");
    char *path = mem_format("%s/kedge-broken.so", tmp ? tmp : "/tmp");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("this is not a shared object\n", file);
    assert_int_equal(fclose(file), 0);
    refused(tmp ? tmp : "/tmp", "broken", ERR_INVALID, "kedge-broken.so");
    assert_int_equal(remove(path), 0);
    mem_free(path);
}

static void test_device(void **state)
{
    (void)state;
    const struct ops *ops = rig_ops();
    struct why why = {0};
    struct device *device = NULL;
    assert_string_equal(ops->name, "cpu");
    for (const char *const *entry = (const char *const *)ops; entry < (const char *const *)(ops + 1); entry++)
        assert_non_null(*entry); /* every op is there */
    assert_int_equal(ops->open(&device, -1, &why), ERR_INVALID);
    assert_null(device);
    assert_non_null(strstr(why.text, "-1 threads"));
    assert_int_equal(ops->open(&device, 0, NULL), 0);
    assert_non_null(strstr(ops->describe(device), "thread"));
    ops->close(device);
    assert_int_equal(ops->open(&device, 1, NULL), 0);
    assert_non_null(strstr(ops->describe(device), "1 thread, oneDNN"));
    float *x = ops->alloc(device, 1000 * sizeof *x), host[1000] = {[999] = 1};
    assert_int_equal((uintptr_t)x % 64, 0);
    for (int i = 0; i < 1000; i++)
        assert_true(x[i] == 0);
    ops->copy_in(device, x, host, sizeof host);
    host[999] = 0;
    ops->copy_out(device, host, x, sizeof host);
    ops->finish(device);
    assert_true(host[999] == 1);
    ops->free(device, x);
    ops->free(device, NULL);
    assert_null(ops->alloc(device, SIZE_MAX / 2)); /* no more memory is an answer, not an end */
    ops->close(device);
    ops->close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_damaged),
                                       cmocka_unit_test(test_device)};
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
