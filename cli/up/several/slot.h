#pragma once
/* Takes and frees the slots of models, and prepares the processes of one model. */
#include "common/base/status.h"

#include <stdint.h>

struct set_run;
struct set_model;
struct set_version;
struct running_model;

struct set_version *set_version_new(void);
void set_version_release(struct set_version *v); /* accepts NULL */

/* Fills the free slot i with a model of a version. */
void set_slot_take(struct set_run *r, uint32_t i, struct set_version *v, struct set_model *m);
/* Frees a slot whose processes have ended. Waits at most for the call that its watch makes. */
void set_slot_free(struct set_run *r, uint32_t i);
/* Moves the ports of the options: those of head and workers by `step`, the admin port by
 * `admin_step`. STATUS_INVALID: a port would be above 65535. */
MUST_USE enum status set_slot_move_ports(struct running_model *m, int64_t step, int64_t admin_step,
                                         struct error *err);
/* Sets the model's number, its addresses and its part of process names. */
void set_slot_find_place(struct running_model *m);
/* Writes the command lines. */
MUST_USE enum status set_slot_build_plan(struct running_model *m, struct error *err);
/* Tells `demand` what the model needs. */
void set_slot_begin_demand(struct set_run *r, uint32_t i);
