/* Any bytes as a capture: an answer and an end, never a crash. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ssh/wire/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static FILE *nowhere;
    char path[40];
    struct why why = {0};
    int fd = memfd_create("capture", MFD_CLOEXEC);
    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    if (fd < 0 || !nowhere || write(fd, DECODE_MAGIC, 16) != 16 || write(fd, bytes, count) != (ssize_t)count)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (decode_file(path, nowhere, &why) != 0 && !why.text[0])
        abort();
    close(fd);
    return 0;
}
