/*
 * A set of files that a host must have: the programs with their libraries, the text to learn from, a checkpoint. It has an
 * identity, which names its folder on the host; a folder with that name that is marked whole is never sent again.
 *
 * Small files travel together as one archive, large ones alone, so that nothing needs twice its room (ssh/launch/push.h).
 */
#ifndef KEDGE_LAUNCH_PARCEL_H
#define KEDGE_LAUNCH_PARCEL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "profiles/profile.h"
#include "ssh/base/why.h"

#define PARCEL_FILES 20000
#define PARCEL_NAME 100
#define PARCEL_ID 17
#define PARCEL_LARGE ((uint64_t)32 << 20) /* from here on a file travels alone */

struct parcel_file {
    char *local;
    char name[PARCEL_NAME]; /* below the folder on the host */
    uint64_t bytes;
    mode_t mode;
};

struct parcel {
    const char *what; /* "programs", "text", "checkpoint", "adapter": for people */
    char id[PARCEL_ID];
    struct parcel_file *files;
    size_t count;
    uint64_t bytes;
    char *archive;          /* local path of the small files' archive; NULL = not made, or none needed */
    uint64_t archive_bytes;
};

/* kedge-worker, kedge-cpu.so and kedged, with the shared libraries that they need (glibc's excepted): by content. */
int parcel_programs(struct parcel *parcel, struct why *why);
/* What data.path matches; `value` gets data.path as the host must see it, with FOLDER written "@". By size and time. */
int parcel_text(const struct profile *profile, struct parcel *parcel, char *value, size_t size, struct why *why);
/* The files of model.path; those of lora.path. */
int parcel_checkpoint(const struct profile *profile, struct parcel *parcel, struct why *why);
int parcel_adapter(const struct profile *profile, struct parcel *parcel, struct why *why);
/* Make the archive in `folder`, once. */
int parcel_pack(struct parcel *parcel, const char *folder, struct why *why);
void parcel_clear(struct parcel *parcel); /* removes the archive; zeroed memory is fine */

#endif
