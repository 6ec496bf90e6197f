/*
 * Failures, sorted into kinds.
 *
 * A bug in us stops at once (BUG). A refusal to the user, or an outcome of life, is a negative
 * `enum err` that is returned; the first function that knows the cause writes it into `struct why`
 * in one line that names the thing, the place and the remedy, and callers only pass the code up.
 * ERR_AGAIN, ERR_GONE and ERR_FULL are life, not errors: nobody logs them by default.
 */
#ifndef KEDGE_BASE_WHY_H
#define KEDGE_BASE_WHY_H

enum err {
    ERR_AGAIN = -1,   /* not now; call again when there is room or data */
    ERR_GONE = -2,    /* the peer, file or process is no longer there */
    ERR_FULL = -3,    /* a bounded thing is at its maximum; disk full is ERR_FULL too */
    ERR_TIMEOUT = -4, /* a deadline passed */
    ERR_INVALID = -5, /* input that breaks the rules (profile, frame, file) */
    ERR_REFUSED = -6, /* trust or permission */
    ERR_SYSTEM = -7,  /* a system call failed; the text has strerror */
    ERR_MEMORY = -8,  /* a large allocation failed */
    ERR_ABSENT = -9,  /* the named thing does not exist */
};

struct why {
    int err;        /* 0 until filled */
    char text[600]; /* one line, no trailing newline */
};

/* Fill `why` (may be NULL) unless it is filled already; returns `err`, so that
 * `return why_set(why, ERR_INVALID, "...")` reads as one thought. */
int why_set(struct why *why, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* As why_set with ERR_SYSTEM and ": strerror(errno)" appended; ENOSPC and EDQUOT become ERR_FULL,
 * ENOENT becomes ERR_ABSENT, EACCES and EPERM become ERR_REFUSED. */
int why_errno(struct why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The name of an error kind, for logs ("gone", "full", …). */
const char *why_name(int err);

/* A bug in this program: print, log, restore the terminal (see why_on_bug) and abort. */
#define BUG(...) why_bug(__FILE__, __LINE__, __VA_ARGS__)
#define BUG_IF(condition) \
    do { \
        if (condition) \
            BUG("%s", #condition); \
    } while (0)

void why_bug(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));

/* Called once by why_bug before aborting; the console registers the terminal's restorer. */
void why_on_bug(void (*restore)(void));

#endif
