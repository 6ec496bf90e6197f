#include "ssh/link/greet.h"

#include <string.h>

void greet_encode(const struct wire_hello *hello, struct buf *out)
{
    struct why why = {0};
    if (wire_encode(WIRE_HELLO, hello, out, &why) != 0)
        BUG("%s", why.text);
}

int greet_check(const uint8_t *payload, size_t bytes, const char *common_name, struct wire_hello *hello, struct why *why)
{
    unsigned version = bytes >= 2 ? payload[0] | (unsigned)payload[1] << 8 : 0; /* the one field that no version moves */
    if (version != WIRE_VERSION)
        return why_set(why, ERR_REFUSED,
                       "the HELLO has version %u of the language, this program speaks %u: use the same kedge on all hosts",
                       version, WIRE_VERSION);
    struct wire_hello found;
    int err = wire_decode(WIRE_HELLO, payload, bytes, &found, why);
    if (err)
        return err;
    if (common_name && strcmp(common_name, found.host) != 0)
        return why_set(why, ERR_REFUSED, "the HELLO names host '%s', but the certificate is of '%s'", found.host,
                       common_name);
    *hello = found;
    return 0;
}
