#pragma once
/* Declares the part of shm.c that only tests and benchmarks use: rings of another size. */
#include <stdint.h>

#include "worker/comm/links/link.h"

#define LINK_SHM_RING_BYTES     ((uint64_t)1 << 20) /* ring size per direction in link_shm_offer */
#define LINK_SHM_RING_MIN_BYTES ((uint64_t)1 << 12)
#define LINK_SHM_RING_MAX_BYTES ((uint64_t)1 << 26)

/* Like link_shm_offer, with rings of ring_bytes: a power of two between MIN and MAX. */
MUST_USE enum status link_shm_offer_sized(int bell_fd, uint64_t ring_bytes, int *memory_fd,
                                          struct comm_link **out, struct error *err);
