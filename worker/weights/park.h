#pragma once
/* Moves loaded weights between a device with memory of its own and page-locked host memory, for
 * sleep at level 1. On a CPU the weights are in host memory already, and nothing is moved. */
#include "worker/weights/loader.h"

/* Copies the weights to host memory and releases the device memory. After an error nothing has
 * changed. STATUS_NO_MEMORY: the host has too little memory that can be locked. */
MUST_USE enum status weights_park(struct device *d, struct loaded *l, struct error *err);
/* Copies the weights back to new device memory, and changes the program's pointers to it. After
 * an error the weights are still parked. */
MUST_USE enum status weights_unpark(struct program *p, struct device *d, struct loaded *l,
                                    struct error *err);
