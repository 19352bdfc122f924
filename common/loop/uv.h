#pragma once
/* libuv's loop, for those who have handles of their own on it (sockets of HTTP, ZeroMQ, Redis).
 * They close them before loop_free. Loop thread only. */
#include <uv.h>

struct loop;
uv_loop_t *loop_uv(struct loop *l);
