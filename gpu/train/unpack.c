/* `kedge-worker unpack`: what undoes the frames of an upload (ssh/wire/planes.h), from its input to its output. */
#include <stdbool.h>
#include <stdio.h>
#include <zstd.h>

#include "gpu/train/command.h"
#include "ssh/base/mem.h"
#include "ssh/wire/planes.h"

/* Exactly so many; `begins`: its end is no fault here. Then it is ERR_GONE. */
static int take(uint8_t *out, size_t bytes, bool begins, struct why *why)
{
    size_t got = fread(out, 1, bytes, stdin);
    if (got == bytes)
        return 0;
    if (ferror(stdin))
        return why_errno(why, "cannot read");
    if (got == 0 && begins)
        return ERR_GONE;
    return why_set(why, ERR_INVALID, "the input ends within a frame");
}

static int unpack_frame(uint8_t *packed, uint8_t *split, uint8_t *plain, struct why *why)
{
    uint8_t header[PLANES_HEADER];
    struct planes planes;
    int err = take(header, sizeof header, true, why);
    if (!err)
        err = planes_get(header, &planes, why);
    if (!err)
        err = take(packed, planes.packed, false, why);
    if (err)
        return err;
    size_t got = ZSTD_decompress(split, planes.plain, packed, planes.packed);
    if (ZSTD_isError(got) || got != planes.plain)
        return why_set(why, ERR_INVALID, "a frame is damaged%s%s", ZSTD_isError(got) ? ": " : "",
                       ZSTD_isError(got) ? ZSTD_getErrorName(got) : "");
    planes_join(planes.stride, split, planes.plain, plain);
    return fwrite(plain, 1, planes.plain, stdout) == planes.plain ? 0 : why_errno(why, "cannot write");
}

int unpack_main(int count, char **words)
{
    (void)words;
    if (count) {
        fprintf(stderr, "kedge-worker unpack: it takes no words, only frames on its input\n");
        return EXIT_USAGE;
    }
    struct why why = {0};
    uint8_t *packed = mem_new(2 * PLANES_MOST), *split = mem_new(PLANES_MOST), *plain = mem_new(PLANES_MOST);
    int err;
    while ((err = unpack_frame(packed, split, plain, &why)) == 0) {
    }
    if (err == ERR_GONE && fflush(stdout) != 0)
        err = why_errno(&why, "cannot write");
    mem_free(packed);
    mem_free(split);
    mem_free(plain);
    if (err == ERR_GONE)
        return EXIT_DONE;
    fprintf(stderr, "kedge-worker unpack: %s\n", why.text);
    return command_exit(err);
}
