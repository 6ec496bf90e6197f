/*
 * Weights out: what a stage saves is what a stage loads, bit for bit, from one stage or several, in one shard or many; a folder that
 * is exported describes the same model and keeps what came with the original; narrower formats are rounded to nearest even;
 * nothing that is there is overwritten, nothing is left when it fails.
 */
#include "gpu/model/export.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/model/checkpoint.h"
#include "gpu/model/config.h"
#include "gpu/model/safetensors.h"
#include "ssh/base/file.h"
#include "ssh/base/mem.h"
#include "tests/helpers/backend.h"
#include "tests/helpers/placed.h"

#define FIXTURES "tests/ops/fixtures/families"

static const char *const families[] = {"llama2", "llama3", "llama-linear", "mistral", "qwen2", "qwen2-tied", "qwen3", "smollm2"};
enum { FAMILIES = sizeof families / sizeof *families };

static struct backend cpu;
static struct stage *stage_of(const struct model_shape *model, int64_t first, int64_t layers)
{
    struct stage_shape shape = {.model = *model, .first_layer = first, .layers = layers, .first = first == 0,
                                .last = first + layers == model->layers, .sequences = 1, .tokens = 8, .slots = 1};
    struct why why = {0};
    struct stage *stage;
    if (stage_new(cpu.ops, cpu.device, &shape, &stage, &why) != 0)
        fail_msg("%s", why.text);
    return stage;
}

static struct stage *loaded(const char *folder, const struct model_shape *model)
{
    struct why why = {0};
    struct stage *stage = stage_of(model, 0, model->layers);
    if (stage_load(stage, folder, &why) != 0)
        fail_msg("%s", why.text);
    return stage;
}

/* The paths of what two stages of the folder's model saved. */
static void save_halves(const char *folder, const struct model_shape *model, const char *paths[2])
{
    static char names[2][400];
    struct why why = {0};
    for (int i = 0; i < 2; i++) {
        struct stage *stage = stage_of(model, i, 1);
        uint64_t bytes, hash;
        if (stage_load(stage, folder, &why) != 0)
            fail_msg("%s", why.text);
        snprintf(names[i], sizeof names[i], "%s", place_file(&place, i ? "r0s1.safetensors" : "r0s0.safetensors"));
        if (stage_save(stage, names[i], &bytes, &hash, &why) != 0)
            fail_msg("%s", why.text);
        paths[i] = names[i];
        stage_free(stage);
    }
}

static void what_goes_out_comes_in(void **state)
{
    (void)state;
    for (int f = 0; f < 2 * FAMILIES; f++) {
        char origin[200], out[400];
        const char *paths[2];
        struct model_shape model, again;
        struct export_result result;
        struct why why = {0};
        bool alone = f % 2; /* without its origin: config.json is made anew */
        snprintf(origin, sizeof origin, FIXTURES "/%s", families[f / 2]);
        snprintf(out, sizeof out, "%s/out%d", place.folder, f);
        assert_int_equal(checkpoint_shape(origin, &model, &why), 0);
        save_halves(origin, &model, paths);
        struct export_settings settings = {.shape = model, .files = paths, .file_count = 2, .origin = alone ? NULL : origin,
                                           .context = 64, .format = -1, .shard_bytes = f / 2 % 2 ? 4000 : EXPORT_SHARD_BYTES,
                                           .out = out};
        if (export_write(&settings, &result, &why) != 0 || checkpoint_shape(out, &again, &why) != 0)
            fail_msg("%s: %s", families[f / 2], why.text);
        assert_int_equal(result.shards > 1, f / 2 % 2);
        struct stage *before = loaded(origin, &model), *after = loaded(out, &again);
        if (stage_hash(before) != stage_hash(after))
            fail_msg("%s: the weights changed", families[f / 2]);
        stage_free(before);
        stage_free(after);
    }
}

/* A head of its own that started from a tied table: the config says untied, and it is in the file. */
static void an_untied_model_says_so(void **state)
{
    (void)state;
    const char *paths[2];
    char out[400];
    struct model_shape model, again;
    struct export_result result;
    struct why why = {0};
    snprintf(out, sizeof out, "%s/untied", place.folder);
    assert_int_equal(checkpoint_shape(FIXTURES "/smollm2", &model, &why), 0);
    model.tied = false;
    save_halves(FIXTURES "/smollm2", &model, paths);
    struct export_settings settings = {.shape = model, .files = paths, .file_count = 2, .origin = FIXTURES "/smollm2", .format = -1,
                                       .shard_bytes = EXPORT_SHARD_BYTES, .out = out};
    assert_int_equal(export_write(&settings, &result, &why), 0);
    assert_int_equal(result.format, WEIGHTS_BF16); /* as it came */
    assert_int_equal(checkpoint_shape(out, &again, &why), 0);
    assert_false(again.tied);
    struct stage *stage = loaded(out, &again);
    stage_free(stage);
}

static void what_is_there_stays(void **state)
{
    (void)state;
    const char *paths[2];
    char out[400], inner[500];
    struct model_shape model;
    struct export_result result;
    struct why why = {0};
    assert_int_equal(checkpoint_shape(FIXTURES "/llama2", &model, &why), 0);
    save_halves(FIXTURES "/llama2", &model, paths);
    snprintf(out, sizeof out, "%s/full", place.folder);
    snprintf(inner, sizeof inner, "%s/mine", out);
    assert_int_equal(file_make_folders(out, 0700, &why), 0);
    assert_int_equal(file_write(inner, "x", 1, 0600, &why), 0);
    struct export_settings settings = {.shape = model, .files = paths, .file_count = 2, .format = -1, .context = 64,
                                       .shard_bytes = EXPORT_SHARD_BYTES, .out = out};
    assert_int_equal(export_write(&settings, &result, &why), ERR_REFUSED);
    assert_non_null(strstr(why.text, "not empty"));
    assert_int_equal(unlink(inner), 0);
    why = (struct why){0};
    settings.file_count = 1; /* the second half is missing */
    assert_int_equal(export_write(&settings, &result, &why), ERR_ABSENT);
    assert_non_null(strstr(why.text, "has the tensor model.layers.1."));
    assert_int_equal(rmdir(out), 0); /* untouched, and empty */
    settings.file_count = 2;
    snprintf(out, sizeof out, "%s/full//", place.folder);
    why = (struct why){0};
    if (export_write(&settings, &result, &why) != 0)
        fail_msg("%s", why.text);
}

/* Next to its neighbours in the narrow format, by the reader: no value is nearer, and a tie goes to the even one. */
static void check_rounding(int format, const float *values, const float *wanted, int count)
{
    struct safetensors_entry entry = {.name = "x", .dims = 1, .shape = {count, 0}};
    struct safetensors_out *out;
    struct safetensors *file;
    struct why why = {0};
    uint64_t bytes, hash;
    const int64_t shape = count;
    float got[32];
    const char *path = place_file(&place, "rounded.safetensors");
    assert_int_equal(safetensors_create(path, &entry, 1, format, NULL, &out, &why), 0);
    assert_int_equal(safetensors_add(out, values, count, &why), 0);
    assert_int_equal(safetensors_finish(out, &bytes, &hash, &why), 0);
    assert_int_equal(safetensors_open(path, &file, &why), 0);
    assert_int_equal(safetensors_get(file, "x", 1, &shape, 0, count, got, &why), 0);
    safetensors_close(file);
    for (int i = 0; i < count; i++)
        if (!(got[i] == wanted[i] || (isnan(got[i]) && isnan(wanted[i]))) || !signbit(got[i]) != !signbit(wanted[i]))
            fail_msg("%s: %.9g became %.9g, %.9g is right", weights_format_name(format), (double)values[i], (double)got[i],
                     (double)wanted[i]);
}

static void narrow_values_are_rounded(void **state)
{
    (void)state;
    static const float bf16[] = {1, 1 + 0x1p-8f, 1 + 0x1.8p-7f, 1 + 0x1.02p-8f, -0.0f, NAN, INFINITY, 0x1.ffp127f, 0x1p-149f};
    static const float bf16_wanted[] = {1, 1, 1 + 0x1p-6f, 1 + 0x1p-7f, -0.0f, NAN, INFINITY, INFINITY, 0};
    static const float f16[] = {1, 1 + 0x1p-11f, 1 + 0x1.8p-10f, -65504, 65519, 65520, -1e30f, NAN, 0x1p-14f, 0x1p-24f,
                                0x1p-25f, 0x1.8p-25f, -0x1p-26f, 0x1.8p-24f, 0x1.ff8p-15f, 0x1.ffcp-15f};
    static const float f16_wanted[] = {1, 1, 1 + 0x1p-9f, -65504, 65504, INFINITY, -INFINITY, NAN, 0x1p-14f, 0x1p-24f,
                                       0, 0x1p-24f, -0.0f, 0x1p-23f, 0x1.ff8p-15f, 0x1p-14f};
    check_rounding(WEIGHTS_BF16, bf16, bf16_wanted, sizeof bf16 / sizeof *bf16);
    check_rounding(WEIGHTS_F16, f16, f16_wanted, sizeof f16 / sizeof *f16);
}

/* A disk that is full: refused, the file of before is untouched and nothing new stays. */
static void a_full_disk_spoils_nothing(void **state)
{
    (void)state;
    struct model_shape model;
    struct why why = {0};
    struct rlimit before, small = {2000, 2000};
    uint64_t bytes, hash, old_bytes, old_hash;
    glob_t found;
    assert_int_equal(checkpoint_shape(FIXTURES "/llama2", &model, &why), 0);
    struct stage *stage = loaded(FIXTURES "/llama2", &model);
    const char *path = mem_text(place_file(&place, "weights")), *pattern = mem_text(place_file(&place, "*"));
    assert_int_equal(stage_save(stage, path, &old_bytes, &old_hash, &why), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int err = stage_save(stage, path, &bytes, &hash, &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(err < 0 && strstr(why.text, "weights"));
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    globfree(&found);
    assert_int_equal(stage_save(stage, path, &bytes, &hash, &why), 0);
    assert_true(bytes == old_bytes && hash == old_hash);
    stage_free(stage);
    mem_free((void *)(uintptr_t)path);
    mem_free((void *)(uintptr_t)pattern);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        placed_test(what_goes_out_comes_in), placed_test(an_untied_model_says_so), placed_test(what_is_there_stays),
        placed_test(narrow_values_are_rounded), placed_test(a_full_disk_spoils_nothing),
    };
    backend_open(&cpu, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(&cpu);
    return failed;
}
