#include "tests/helpers/server.h"

#include "ssh/base/why.h"
#include "ssh/link/loop.h"

struct sshd server;
struct loop *loop;

int server_begin(void **unused)
{
    (void)unused;
    loop = loop_new(&(struct why){0});
    return sshd_start(&server, "");
}

int server_end(void **unused)
{
    (void)unused;
    loop_free(loop);
    sshd_stop(&server);
    return 0;
}

void server_connect(struct caller *caller)
{
    caller_init(caller, loop, &server);
    caller_dial(caller);
    if (!caller_up(caller))
        BUG("the test's own sshd does not let us in: %s", caller->reason);
}
