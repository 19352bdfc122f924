#pragma once
/* Names and addresses that only this machine can reach. They decide who is let in without a key, so
 * nothing is resolved and nothing passes that merely looks like one. */
#include "common/base/str.h"

/* "localhost" in any case, 127.0.0.0/8 in four decimal parts, ::1 in any spelling, also in
 * brackets. Not "127.0.0.1.example.org", "127.1" or "localhost." */
bool host_is_loopback(struct str host);
/* HOST of "HOST", "HOST:PORT" or "[IPV6]:PORT" (brackets are kept), as HTTP's Host has it; empty
 * when it is none of these. A view into the argument. */
struct str authority_host(struct str authority);
