#pragma once
/* Defines the messages about LoRA adapters, a part of messages.h. The head sends gateways the
 * list of adapters that the ranks hold. A gateway asks the head to load or drop an adapter when
 * its own users may do so. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

/* Identifies an adapter, whose effect is a function of its identity (lora_adapter_identity).
 * When one folder is read twice and the identities differ, these are two adapters. All zeros =
 * not known. */
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

/* Orders a rank to load the adapter at `path` (`on`), or to drop it. If `identity` is known, the
 * adapter that the rank reads must have it. An id belongs to one loading of one folder: the same
 * name loaded again has another id. The rank answers with AdapterDone, which says why a load
 * failed. */
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
    struct adapter_identity identity; /* identity of the loaded adapter */
};
/* Names an adapter. `path` is the folder that the adapter was loaded from; empty = the head is
 * older and does not send it. */
struct adapter_name {
    struct str name, path;
};
struct msg_adapters { /* Lists the adapter names that requests may use. */
    const struct adapter_name *list;
    uint32_t n;
};
/* Orders the head to load or drop an adapter. The head answers an order once, under its ticket:
 * when all ranks have the adapter, when no rank has it, or with the reason for a refusal. */
struct msg_adapter_order {
    uint64_t ticket;
    bool on, in_place; /* in_place: replace a loaded adapter of that name */
    struct str name, path;
    struct str by; /* name of the admin key that gave the order; "" = not known */
};
struct msg_adapter_answer {
    uint64_t ticket;
    enum status status;
    struct str text;
};
