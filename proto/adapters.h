#pragma once
/* Messages about LoRA adapters: a part of messages.h. The head says what ranks hold; gateways ask
 * it to, when their own users may. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

/* An adapter's sums are a function of its identity (lora_adapter_identity): two readings of one
 * folder that differ in it are two adapters. Zeros: not known. */
struct adapter_identity {
    uint64_t hi, lo;
};
static inline bool adapter_identity_known(struct adapter_identity i)
{
    return (i.hi | i.lo) != 0;
}
static inline bool adapter_identity_same(struct adapter_identity a, struct adapter_identity b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* Load what is at path (on), or drop it. identity: it has to be that one, where it is known. An id
 * names one loading of one folder: the same name loaded again has another. Answered by AdapterDone,
 * with the worker's word on what is wrong. */
struct msg_adapter {
    uint64_t id;
    bool on;
    struct str name, path;
    struct adapter_identity identity;
};
struct msg_adapter_done {
    uint64_t id;
    bool on;
    enum status status;
    struct str text;
    struct adapter_identity identity; /* of what was loaded */
};
/* path: what it was loaded from; empty: the head is of an older version and does not say. */
struct adapter_name {
    struct str name, path;
};
struct msg_adapters { /* that requests may name */
    const struct adapter_name *list;
    uint32_t n;
};
/* Answered once under its ticket: when all have it, or none; or why not. */
struct msg_adapter_order {
    uint64_t ticket;
    bool on, in_place; /* in_place: it may take the place of one of that name */
    struct str name, path;
    struct str by; /* the name of the admin key that asked; "": none is known */
};
struct msg_adapter_answer {
    uint64_t ticket;
    enum status status;
    struct str text;
};
