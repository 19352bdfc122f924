#pragma once
/* Ranks on GPUs, a process each: CUDA has one device's memory to a process, and so has NCCL. Every
 * process runs the same checks over the same prompts; what rank 0 of the last stage computes as
 * logits is given to all, so that all feed the same ids. Rank 0 alone prints. Over the emulation
 * the ranks' collectives are NCCL's stand-in (tests/fakenccl), small sums peer memory. */
#include "worker/comm/stages.h"
#include "worker/engine/engine.h"

/* Forks tp x pp - 1 times and returns in every process; before anything of CUDA. A rank that fails
 * ends all. library: for dlopen. */
void golden_gpus_fork(uint32_t tp, uint32_t pp, const char *library);
uint32_t golden_gpus_position(void); /* 0: also where nothing was forked */
/* Engines on it are one of the group's from now on; on any other device (a CPU that is compared
 * with) they are of one rank. NULL: none any more. */
void golden_gpus_use(struct device *d);
bool golden_gpus_has(const struct device *d);
/* Does not return but at position 0, whose value is of the whole: of its own and the others'
 * statuses the worst. */
int golden_gpus_end(int status);

/* Of one engine's life, on all ranks alike. */
struct golden_gpus;
MUST_USE enum status golden_gpus_open(struct golden_gpus **out, struct error *err);
struct collectives *golden_gpus_collectives(struct golden_gpus *g);
struct comm_place golden_gpus_place(void);
MUST_USE enum status golden_gpus_join(struct golden_gpus *g, struct error *err);
/* n floats of the sampling rank to all; own: NULL elsewhere. Valid until the next call. */
float *golden_gpus_share(const float *own, size_t n);
/* When all have come to it. Records of the engine's runner are dropped; the engine may be closed
 * then. NULL is fine. */
void golden_gpus_leave(struct golden_gpus *g, struct engine *e);
