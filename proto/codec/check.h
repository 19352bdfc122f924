#pragma once
/* The rules for what a message may hold. Private to proto/codec. */
#include "proto/messages.h"

/* Checks caps, enum ranges, counts that must agree, and that floats are numbers. Runs after
 * decoding and before encoding. With `outgoing`, human texts may be too long, because encoding
 * cuts them. */
MUST_USE enum status msg_check(const struct msg *m, bool outgoing, struct error *err);
