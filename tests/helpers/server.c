#include "tests/helpers/server.h"

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
