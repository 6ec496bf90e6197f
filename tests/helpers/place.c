#include "tests/helpers/place.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "ssh/base/file.h"

int place_init(struct place *place)
{
    const char *base = getenv("TMP");
    snprintf(place->folder, sizeof place->folder, "%s/place.XXXXXX", base && base[0] ? base : "/tmp");
    return mkdtemp(place->folder) ? 0 : -1;
}

const char *place_file(struct place *place, const char *name)
{
    snprintf(place->path, sizeof place->path, "%s/%s", place->folder, name);
    return place->path;
}

int place_count(const struct place *place)
{
    DIR *folder = opendir(place->folder);
    int count = -2; /* "." and ".." */
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

void place_clear(struct place *place)
{
    file_remove_tree(place->folder, NULL);
}
