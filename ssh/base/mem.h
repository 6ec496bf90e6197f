/*
 * Small memory never fails, large memory may.
 *
 * mem_new and friends abort on exhaustion, so that code stays straight; mem_large is for models, snapshots
 * and device buffers, where there is something sensible to do about failure. Both return zeroed memory.
 */
#ifndef KEDGE_BASE_MEM_H
#define KEDGE_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

void *mem_new(size_t bytes);                                   /* zeroed; bytes = 0 is a bug */
void *mem_array(size_t count, size_t bytes_each);              /* zeroed, overflow is a bug */
void *mem_grow(void *old, size_t count, size_t bytes_each);    /* realloc; new part is not zeroed */
char *mem_text(const char *text);                              /* strdup */
char *mem_format(const char *format, ...) __attribute__((format(printf, 1, 2))); /* caller frees */
void *mem_copy(const void *bytes, size_t count);               /* memdup; count may be 0 */
void mem_free(void *pointer);

/* 64-byte aligned and zeroed; NULL when the system has no more. Free with mem_large_free. */
void *mem_large(size_t bytes);
void mem_large_free(void *pointer);

#endif
