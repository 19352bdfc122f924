#pragma once
/* An executor's way to the ranks of its group, on CPUs (worker/comm) or GPUs (NCCL). */
#include "worker/executor_model.h"

/* A step with guesses tells as much; more goes in turns. */
enum { EXECUTOR_TELL_BYTES = 64 << 10 };

/* What the drawing rank has goes to all ranks: n_bytes of the host. One rank: nothing. Errors as
 * the collectives have them. */
MUST_USE enum status executor_tell(struct executor_model *x, void *data, size_t n_bytes,
                                   struct error *err);
/* Ranks on GPUs: the ids of the first n_slots that were drawn last, from device to device. */
MUST_USE enum status executor_share_last(struct executor_model *x, uint32_t n_slots,
                                         struct error *err);

/* open_group of a device whose ranks use NCCL; closed with the executor. */
MUST_USE enum status executor_gpus_open(const struct worker_options *o, struct executor_model *x,
                                        struct error *err);
MUST_USE enum status executor_gpus_join(struct executor_model *x, const struct executor_comm *c,
                                        struct error *err);
/* Nothing of the group is under way any more; or the process has to end (x->is_lost). */
void executor_gpus_leave(struct executor_model *x);
void executor_gpus_close(struct executor_model *x);
/* A step failed with s, which err is of: is the device lost with it (x->is_lost)? */
void executor_look_at_device(struct executor_model *x, enum status s, const struct error *err);
/* Until nothing is under way on the device; or it is lost. */
void executor_await_device(struct executor_model *x);
bool executor_lost(const struct executor *e, struct error *why);
