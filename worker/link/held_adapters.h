#pragma once
/* Keeps the adapters that this rank has reported as loaded. Its Hello repeats them for a head
 * that does not know them. The executor has the weights. All functions run on the loop thread. */
#include "proto/messages.h"

struct held_adapters {
    struct msg_adapter *all; /* the adapters, [n], with their own names and paths */
    uint32_t n;
};

/* Adds the adapter (once) when a->on is set, else removes it. */
void held_adapters_set(struct held_adapters *h, const struct msg_adapter *a);
void held_adapters_fini(struct held_adapters *h);
