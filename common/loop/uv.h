#pragma once
/* Gives access to libuv's loop, for code with handles of its own (sockets of HTTP, ZeroMQ,
 * Redis). Such code closes them before loop_free. Only the loop thread calls these functions. */
#include <uv.h>

struct loop;
uv_loop_t *loop_uv(struct loop *l);
