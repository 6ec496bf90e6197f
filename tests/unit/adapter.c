/* adapter_config.json from strangers: what PEFT writes is read, what would change the result is refused by its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/model/adapter.h"
#include "ssh/base/file.h"
#include "tests/helpers/place.h"

static struct place place;

static int read_text(const char *text, struct lora_shape *lora, struct why *why)
{
    *why = (struct why){0};
    assert_int_equal(file_write(place_file(&place, ADAPTER_CONFIG), text, strlen(text), 0600, NULL), 0);
    return adapter_read(place.folder, lora, why);
}

#define START "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16, \"target_modules\": [\"q_proj\", \"up_proj\"]"

static void what_peft_writes_is_read(void **state)
{
    (void)state;
    struct lora_shape lora;
    struct why why;
    const char *text = START ", \"bias\": \"none\", \"use_dora\": false, \"rank_pattern\": {}, \"modules_to_save\": null, "
                             "\"layers_to_transform\": [], \"lora_dropout\": 0.1, \"init_lora_weights\": \"gaussian\"}";
    assert_int_equal(read_text(text, &lora, &why), 0);
    assert_true(lora.rank == 8 && lora.alpha > 15.9f && lora.alpha < 16.1f);
    assert_int_equal(lora.targets, 1u << LORA_Q | 1u << LORA_UP);
}

static void what_we_write_is_read(void **state)
{
    (void)state;
    const struct lora_shape ours = {.rank = 5, .alpha = 7.5f, .targets = 1u << LORA_V | 1u << LORA_DOWN};
    struct lora_shape lora;
    struct why why;
    json_t *json = adapter_make(&ours, "/some/where");
    char *text = json_dumps(json, 0);
    assert_int_equal(read_text(text, &lora, &why), 0);
    assert_int_equal(lora.rank, ours.rank);
    assert_int_equal(lora.targets, ours.targets);
    assert_memory_equal(&lora.alpha, &ours.alpha, sizeof lora.alpha);
    free(text);
    json_decref(json);
}

static void the_rest_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {START ", \"use_dora\": true}", "use_dora is not supported"},
        {START ", \"use_rslora\": true}", "use_rslora is not supported"},
        {START ", \"modules_to_save\": [\"lm_head\"]}", "modules_to_save is not supported"},
        {START ", \"rank_pattern\": {\"q_proj\": 4}}", "rank_pattern is not supported"},
        {START ", \"layers_to_transform\": [1]}", "layers_to_transform is not supported"},
        {START ", \"something_new\": 3}", "something_new is not supported"},
        {START ", \"bias\": \"all\"}", "bias = all is not supported"},
        {START ", \"init_lora_weights\": \"pissa_niter_4\"}", "init_lora_weights = pissa_niter_4 is not supported"},
        {START ", \"use_\\u001b[31m\": 1}", "is not supported"},
        {"{\"peft_type\": \"IA3\"}", "peft_type = IA3 is not supported"},
        {"{}", "peft_type = (missing) is not supported"},
        {"[]", "not a JSON object"},
        {"{\"peft_type\": \"LORA\"", "adapter_config.json:1"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16}", "target_modules is no list"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16, \"target_modules\": \"all-linear\"}", "target_modules is no list"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16, \"target_modules\": [\"lm_head\"]}", "target_modules has lm_head"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16, \"target_modules\": [7]}", "target_modules has no text"},
        {"{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 16, \"target_modules\": [\"q_proj\"]}", "r must be a whole number above 0"},
        {"{\"peft_type\": \"LORA\", \"r\": 99999999999, \"lora_alpha\": 16, \"target_modules\": [\"q_proj\"]}", "a rank of 99999999999"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 1e300, \"target_modules\": [\"q_proj\"]}", "alpha is inf"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": -1, \"target_modules\": [\"q_proj\"]}", "alpha is -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lora_shape lora;
        struct why why;
        if (read_text(cases[i].text, &lora, &why) != ERR_INVALID || !strstr(why.text, cases[i].says) || strchr(why.text, '\033'))
            fail_msg("%s: \"%s\" instead of \"%s\"", cases[i].text, why.text, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_peft_writes_is_read),
        cmocka_unit_test(what_we_write_is_read),
        cmocka_unit_test(the_rest_is_refused_by_name),
    };
    if (place_init(&place) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    place_clear(&place);
    return failed;
}
