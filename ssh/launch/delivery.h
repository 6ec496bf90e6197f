/*
 * What a host is handed over its verified session before anything of a run starts there: the run's id, its credentials, the profile where
 * the scheduler will run, and where the host keeps what the profile names. Each file is a line "BYTES NAME" and the bytes.
 */
#ifndef KEDGE_LAUNCH_DELIVERY_H
#define KEDGE_LAUNCH_DELIVERY_H

#include <stdbool.h>

#include "profiles/profile.h"
#include "ssh/base/buf.h"
#include "ssh/base/why.h"
#include "ssh/launch/parcel.h"
#include "ssh/launch/room.h"

struct delivery { /* all is borrowed */
    const struct profile *profile;
    const char *folder;     /* the run's, here */
    const char *host;       /* its name in the profile */
    const char *data;       /* the host's folder for parcels */
    const char *text_value; /* of parcel_text */
    const struct parcel *parcels[PARTS]; /* NULL or count 0 = none */
    bool head, agent;       /* what will run there */
};

/* Where a host with this folder for parcels keeps one. mem_free it. */
char *delivery_place(const char *data, enum part part, const struct parcel *parcel);
/* Puts secrets into `out`: wipe it. ERR_FULL: no room in it; else what file_read says. */
int delivery_collect(const struct delivery *delivery, struct buf *out, struct why *why);

#endif
