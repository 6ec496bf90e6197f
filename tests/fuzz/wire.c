/* Any bytes as the payload of any message: refused, or taken and then encoded to the very same bytes. */
#include <stdlib.h>
#include <string.h>

#include "ssh/base/mem.h"
#include "ssh/wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    size_t rows;
    const struct wire_message *messages = wire_all(&rows);
    struct why why = {0};
    struct buf out;
    if (count < 1)
        return 0;
    const struct wire_message *message = &messages[bytes[0] % rows];
    void *payload = mem_new(message->struct_bytes);
    bytes++;
    count--;
    int err = wire_decode((uint16_t)message->type, bytes, count, payload, &why);
    if (err && (err != ERR_INVALID || !why.text[0]))
        abort();
    if (!err) {
        buf_init(&out, message->max_bytes);
        if (wire_encode((uint16_t)message->type, payload, &out, NULL) != 0 || buf_used(&out) != count)
            abort();
        if (count && memcmp(buf_peek(&out), bytes, count) != 0)
            abort();
        buf_clear(&out);
    }
    mem_free(payload);
    return 0;
}
