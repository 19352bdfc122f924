#pragma once
/* The adapters that this rank has reported as loaded. Its Hello repeats them for a head that
 * does not know. The executor has the weights. Loop thread only. */
#include "proto/messages.h"

struct held_adapters {
    struct msg_adapter *all; /* [n]; owns names and paths */
    uint32_t n;
};

/* Adds the adapter when a->on is set (once), else removes it. */
void held_adapters_set(struct held_adapters *h, const struct msg_adapter *a);
void held_adapters_fini(struct held_adapters *h);
