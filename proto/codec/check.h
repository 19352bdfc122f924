#pragma once
/* Declares the rules for the contents of a message. The file is private to proto/codec. */
#include "proto/messages.h"

/* Checks size limits, enum ranges, counts that must agree, and that floats are numbers. The
 * check runs after decoding and before encoding. With `outgoing`, texts for humans may be too
 * long, because encoding cuts them. */
MUST_USE enum status msg_check(const struct msg *m, bool outgoing, struct error *err);
