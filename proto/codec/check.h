#pragma once
/* The rules for what a message may hold. Private to proto/codec. */
#include "proto/messages.h"

/* Caps, enum ranges, counts that must agree, floats that must be numbers: run after decoding and
 * before encoding. outgoing: over-long human texts are fine, encoding cuts them. */
MUST_USE enum status msg_check(const struct msg *m, bool outgoing, struct error *err);
