#pragma once
/* Runs ranks on GPUs, one process each, because CUDA and NCCL have one device for each process.
 * Every process runs the same checks over the same prompts. Every process gets the logits of
 * rank 0 of the last stage, so that all feed the same ids. Only rank 0 prints. With the
 * emulation the ranks' collectives use a replacement of NCCL (tests/fakenccl), and small sums
 * use peer memory. */
#include "worker/comm/stages.h"
#include "worker/engine/engine.h"

/* Forks tp x pp - 1 times and returns in every process. Call it before any use of CUDA. A rank
 * that fails ends all processes. `library` is NCCL's path for dlopen. */
void golden_gpus_fork(uint32_t tp, uint32_t pp, const char *library);
/* Returns this process's position; 0 also when nothing was forked. */
uint32_t golden_gpus_position(void);
/* Sets the device of the forked ranks. From now on, engines on this device belong to these
 * ranks. On any other device, such as a CPU that is compared, engines have one rank. NULL = the
 * forked ranks have no device. */
void golden_gpus_use(struct device *d);
bool golden_gpus_has(const struct device *d);
/* Ends the forked processes. Returns only at position 0, with the worst of all processes'
 * statuses. */
int golden_gpus_end(int status);

/* `golden_gpus` is the communicator during one engine's life. It is the same on all ranks. */
struct golden_gpus;
MUST_USE enum status golden_gpus_open(struct golden_gpus **out, struct error *err);
struct collectives *golden_gpus_collectives(struct golden_gpus *g);
struct comm_place golden_gpus_place(void);
MUST_USE enum status golden_gpus_join(struct golden_gpus *g, struct error *err);
/* Sends n floats of the sampling rank to all ranks; `own` is NULL on the others. The result is
 * valid until the next call. */
float *golden_gpus_share(const float *own, size_t n);
/* Closes the communicator when all ranks have called this. Drops the recordings of the engine's
 * runner; the engine may then be closed. g may be NULL. */
void golden_gpus_leave(struct golden_gpus *g, struct engine *e);
