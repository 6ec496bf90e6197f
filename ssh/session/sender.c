#include "ssh/session/sender.h"

#include <inttypes.h>
#include <string.h>

#include "ssh/base/clock.h"
#include "ssh/base/mem.h"

struct sender {
    struct shell *shell;
    const struct source *source;
    struct sender_callbacks callbacks;
    void *arg;
    struct order order;
    uint64_t to_pack;       /* bytes of the order that are to be compressed before any goes */
    uint64_t at, left;      /* what goes next: of the file, or of `packed` */
    uint8_t *piece;         /* a unit of the file, and */
    uint8_t *packed;        /* an order's frames; once one was compressed */
    size_t packed_bytes;
    bool finished;          /* there are no more orders */
};

/* False when its owner was told that it cannot, and may have freed it. */
static bool read_at(struct sender *sender, uint64_t at, uint8_t *out, size_t bytes)
{
    struct why why = {0};
    int err = source_read(sender->source, at, out, bytes, &why);
    if (err)
        sender->callbacks.ended(err, -1, why.text, sender->arg);
    return !err;
}

/* One more unit, so that the loop is not held up; behind the last one comes the order's line. */
static enum shell_next pack_some(struct sender *sender)
{
    const struct order *order = &sender->order;
    size_t bytes = sender->to_pack < UNITS_BYTES ? (size_t)sender->to_pack : (size_t)UNITS_BYTES;
    if (!read_at(sender, order->begin + order->bytes - sender->to_pack, sender->piece, bytes))
        return SHELL_GONE;
    uint64_t began_ns = clock_now_ns();
    sender->packed_bytes += compress_frame(order->compress, sender->piece, bytes, sender->packed + sender->packed_bytes);
    if (sender->callbacks.packed)
        sender->callbacks.packed(clock_now_ns() - began_ns, sender->arg);
    sender->to_pack -= bytes;
    if (sender->to_pack)
        return SHELL_ON;
    shell_put(sender->shell, "%" PRIu64 " %" PRIu64 " %zu\n", order->begin, order->bytes, sender->packed_bytes);
    sender->at = 0;
    sender->left = sender->packed_bytes;
    return SHELL_ON;
}

/* Some more bytes of the order; behind the last one a line. */
static enum shell_next send_some(struct sender *sender)
{
    size_t bytes = sender->left < SHELL_BYTES ? (size_t)sender->left : SHELL_BYTES;
    uint8_t *out = shell_reserve(sender->shell, bytes);
    if (sender->order.compress)
        memcpy(out, sender->packed + sender->at, bytes);
    else if (!read_at(sender, sender->at, out, bytes))
        return SHELL_GONE;
    shell_commit(sender->shell, bytes);
    sender->at += bytes;
    sender->left -= bytes;
    if (!sender->left)
        shell_put(sender->shell, "end\n");
    return SHELL_ON;
}

static enum shell_next on_more(struct shell *shell, void *arg)
{
    struct sender *sender = arg;
    (void)shell;
    if (sender->to_pack)
        return pack_some(sender);
    if (sender->left)
        return send_some(sender);
    if (!sender->finished && !sender->callbacks.wants(sender->arg))
        return SHELL_GONE;
    return sender->finished ? SHELL_LAST : sender->to_pack || sender->left ? SHELL_ON : SHELL_WAIT;
}

static enum shell_next on_line(struct shell *shell, const char *line, void *arg)
{
    struct sender *sender = arg;
    (void)shell;
    return sender->callbacks.line(line, sender->arg);
}

static void on_ended(struct shell *shell, int err, int status, const char *reason, void *arg)
{
    struct sender *sender = arg;
    (void)shell;
    sender->callbacks.ended(err, status, reason, sender->arg);
}

void sender_order(struct sender *sender, const struct order *order)
{
    BUG_IF(sender->to_pack || sender->left || sender->finished);
    shell_poke(sender->shell);
    sender->finished = !order;
    if (!order)
        return;
    sender->order = *order;
    if (!order->compress) {
        sender->at = order->begin;
        sender->left = order->bytes;
        shell_put(sender->shell, "%" PRIu64 " %" PRIu64 "\n", order->begin, order->bytes);
        return;
    }
    BUG_IF(order->bytes > SENDER_PACKED_UNITS * UNITS_BYTES);
    sender->to_pack = order->bytes;
    sender->packed_bytes = 0;
    if (sender->packed)
        return;
    sender->piece = mem_new((size_t)UNITS_BYTES);
    sender->packed = mem_new(SENDER_PACKED_UNITS * compress_bound(order->compress, (size_t)UNITS_BYTES));
}

void sender_put(struct sender *sender, const char *line)
{
    shell_put(sender->shell, "%s\n", line);
}

void sender_poke(struct sender *sender)
{
    shell_poke(sender->shell);
}

uint64_t sender_moved_ns(const struct sender *sender)
{
    return shell_moved_ns(sender->shell);
}

uint64_t sender_least_ns(const struct sender *sender)
{
    return shell_least_ns(sender->shell);
}

struct sender *sender_new(struct session *session, const char *command, uint64_t open_ns, const struct source *source,
                          const struct sender_callbacks *callbacks, void *arg)
{
    static const struct shell_callbacks of_shell = {on_line, on_more, on_ended};
    struct sender *sender = mem_new(sizeof *sender);
    *sender = (struct sender){.source = source, .callbacks = *callbacks, .arg = arg};
    sender->shell = shell_new(session, command, open_ns, &of_shell, sender);
    return sender;
}

void sender_free(struct sender *sender)
{
    if (!sender)
        return;
    shell_free(sender->shell);
    mem_free(sender->piece);
    mem_free(sender->packed);
    mem_free(sender);
}
