#pragma once
/* Divides the memory among the models of a set (memory.c). */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/str.h"

struct set_run;
struct set_need;
struct running_model;

/* Measures models by `cox plan`. May run on any thread. */
MUST_USE enum status set_run_measure(const struct set_run *r, struct running_model *const *models,
                                     uint32_t n_models, struct set_need *needs, struct error *err);
/* Finds room for n more models beside those of the slots that stay, which keep their memory and
 * their devices. Writes the results into the options of the models.
 * STATUS_NO_MEMORY: a model does not fit; the text names it. */
MUST_USE enum status set_run_fit(struct set_run *r, struct running_model *const *fresh,
                                 const bool *stays, const struct set_need *needs, uint32_t n,
                                 struct error *err);

/* Finds out what each model needs, divides the memory, and writes the results into the options of
 * the models. The sizes are appended to `out` as a table or as JSON, also when the models do not
 * fit. */
MUST_USE enum status set_run_plan_memory(struct set_run *r, bool as_json, struct strbuf *out,
                                         struct error *err);
