/*
 * OpenMP, or one thread where the build has none (tests/configure.sh says so; also SAN=thread): the pragmas are ignored
 * then. oneDNN brings its own OpenMP in any case, and its number of threads is still ours to set.
 *
 * Loops over rows or chunks never share a sum between threads, so results do not depend on how many there are.
 */
#ifndef KEDGE_CPU_THREADS_H
#define KEDGE_CPU_THREADS_H

#include <stdbool.h>

#ifdef _OPENMP
#include <omp.h>

static const bool threads_in_kernels = true;

/* For parallel regions that the calling thread starts, oneDNN's too. Their number must not follow the load of the machine.
 */
static inline void threads_set(int threads)
{
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
}

static inline int threads_index(void)
{
    return omp_get_thread_num();
}
#else
static const bool threads_in_kernels = false;

/* Of the runtime that oneDNN was linked with; absent when that is not OpenMP. */
extern void omp_set_dynamic(int dynamic) __attribute__((weak));
extern void omp_set_num_threads(int threads) __attribute__((weak));

static inline void threads_set(int threads)
{
    if (omp_set_dynamic && omp_set_num_threads) {
        omp_set_dynamic(0);
        omp_set_num_threads(threads);
    }
}

static inline int threads_index(void)
{
    return 0;
}
#endif

#endif
