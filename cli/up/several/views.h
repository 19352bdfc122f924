#pragma once
/* Shows the models of a `cox up` that serves several, to its user and to its gateways. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/str.h"

struct set_run;

/* Returns true when each `always` model serves or has failed, and each other head answers. */
bool set_run_is_ready(const struct set_run *r);
/* Returns why the last model has failed, when all models have failed; otherwise "". */
const char *set_run_failure(const struct set_run *r);
/* Formats "2 of 3 models ready, 4 s". */
void set_run_progress(const struct set_run *r, uint64_t since_ms, char *out, size_t size);
/* Returns the names with their states, "a, b (asleep), c (failed)". The text changes later. */
const char *set_run_names(const struct set_run *r);
/* Returns the name of the first model. */
const char *set_run_first_name(const struct set_run *r);
/* Appends a line for each model, with the address of its admin API. */
void set_run_print(const struct set_run *r, struct strbuf *out);
/* Writes the gateways' file. */
MUST_USE enum status set_run_write_file(struct set_run *r, struct error *err);
/* Writes the names with their states to `names`. */
void set_run_write_names(struct set_run *r);
