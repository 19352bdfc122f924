#pragma once
/* Row for the time that a peer may be silent, for the head and for `cox up`, which passes it on.
 * The head's Welcome tells the other processes (proto/link/silence.h). */
#include "common/config/config.h"

#define ROW_PEER_TIMEOUT(S)                                                                        \
    OPT_FLOAT(S, peer_timeout_s, "peer-timeout", 1, 600, "1.5",                                    \
              "Seconds of silence after which a worker, a gateway or the head counts as lost "     \
              "(default 1.5). A longer time forgives pauses of a busy machine or network, and "    \
              "requests of a lost worker wait that much longer.")
