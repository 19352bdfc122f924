#pragma once
/* A device that may be lost: the process has to end then. */
#include "worker/executor/state.h"

/* The process has to end: the first reason is kept. */
void executor_note_lost(struct executor_model *x, const struct error *why);
/* A step failed with s, which err is of: is the device lost with it (x->loss.is_lost)? */
void executor_look_at_device(struct executor_model *x, enum status s, const struct error *err);
/* Until nothing is under way on the device; or it is lost. */
void executor_await_device(struct executor_model *x);
bool executor_lost(const struct executor *e, struct error *why);
