/*
 * Included before every source file by the build: libc calls that are easy to misuse become compile errors.
 * The headers that declare them come first, or their own declarations would trip.
 */
#ifndef KEDGE_BASE_BANNED_H
#define KEDGE_BASE_BANNED_H

/* OpenSSL's headers use these words as names of parameters: only calling them is an error. clang wants it said before libc's own
 * declaration. */
int rand(void) __attribute__((error("use hash_random, or a stream of its own")));
void srand(unsigned seed) __attribute__((error("use hash_random, or a stream of its own")));
char *gets(char *line) __attribute__((error("it cannot be told how much room there is")));

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncat sprintf vsprintf strtok atoi atol atof asctime ctime gmtime localtime
#pragma GCC poison tmpnam mktemp

#endif
