#pragma once
/* Detects a lost device, after which the process must end. */
#include "worker/executor/state.h"

/* Records that the process must end. Only the first reason is kept. */
void executor_note_lost(struct executor_model *x, const struct error *why);
/* Sets x->loss.is_lost when the device is lost. Call it after a step with the step's status `s`
 * and error. */
void executor_look_at_device(struct executor_model *x, enum status s, const struct error *err);
/* Waits until the device is idle or lost. */
void executor_await_device(struct executor_model *x);
bool executor_lost(const struct executor *e, struct error *why);
