/*
 * Included before every source file by the build: libc calls that are easy to misuse become compile errors.
 * The headers that declare them come first, or their own declarations would trip.
 */
#ifndef KEDGE_BASE_BANNED_H
#define KEDGE_BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncat sprintf vsprintf gets strtok atoi atol atof asctime ctime gmtime localtime
#pragma GCC poison rand srand tmpnam mktemp

#endif
