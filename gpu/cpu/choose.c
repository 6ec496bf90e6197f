/* Which instruction set to run: the best one that the processor and the operating system both have. */
#include <string.h>

#include "gpu/cpu/kernels.h"

static bool runs_base(void)
{
    return true;
}

static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool runs_amx(void)
{
    return runs_avx512() && amx_runs();
}

static const struct {
    struct kernels kernels;
    bool (*runs)(void);
} sets[] = {
    /* best first */
    {{"amx", &vector_kernels_avx512, &layer_kernels_avx512, &attention_kernels_avx512, &mask_kernels_avx512,
      &expect_kernels_avx512, &pack_kernels_avx512, &levels_kernels_avx512, &amx_panels, true},
     runs_amx},
    {{"avx512", &vector_kernels_avx512, &layer_kernels_avx512, &attention_kernels_avx512, &mask_kernels_avx512,
      &expect_kernels_avx512, &pack_kernels_avx512, &levels_kernels_avx512, &avx512_panels, false},
     runs_avx512},
    {{"onednn", &vector_kernels_avx512, &layer_kernels_avx512, &attention_kernels_avx512, &mask_kernels_avx512,
      &expect_kernels_avx512, &pack_kernels_avx512, &levels_kernels_avx512, NULL, false},
     runs_avx512},
    {{"avx2", &vector_kernels_avx2, &layer_kernels_avx2, &attention_kernels_avx2, &mask_kernels_avx2,
      &expect_kernels_avx2, &pack_kernels_avx2, &levels_kernels_avx2, NULL, false},
     runs_avx2},
    {{"base", &vector_kernels_base, &layer_kernels_base, &attention_kernels_base, &mask_kernels_base,
      &expect_kernels_base, &pack_kernels_base, &levels_kernels_base, NULL, false},
     runs_base},
};

const struct kernels *kernels_choose(const char *isa)
{
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if ((!isa || strcmp(isa, sets[i].kernels.isa) == 0) && sets[i].runs())
            return &sets[i].kernels;
    return NULL;
}
