/*
 * OpenMP, or one thread where the compiler has no OpenMP runtime (tests/configure.sh says so): the pragmas are then ignored.
 *
 * Loops over rows or chunks have a static partition and never share a sum between threads, so results do not depend on how
 * many there are.
 */
#ifndef KEDGE_CPU_THREADS_H
#define KEDGE_CPU_THREADS_H

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_num_procs(void)
{
    return 1;
}

static inline int omp_get_thread_num(void)
{
    return 0;
}

static inline void omp_set_num_threads(int threads)
{
    (void)threads;
}

static inline void omp_set_dynamic(int dynamic)
{
    (void)dynamic;
}
#endif

#endif
