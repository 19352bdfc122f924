#include "tests/sim/cost.h"

const struct cost_model cost_cpu_demo = {
    .name = "cpu demo",
    .step_ns = 6450000,
    .decode_ns = 850000,
    .prompt_ns = 575000,
    .context_ps = 540000,
};
const struct cost_model cost_h200_8b = {
    .name = "H200 8B",
    .step_ns = 4000000,
    .decode_ns = 5000,
    .prompt_ns = 29000,
    .context_ps = 30500,
};
const struct cost_model cost_h200_8b_draft = {
    .name = "H200 8B, draft 1B",
    .step_ns = 4000000,
    .decode_ns = 5000,
    .prompt_ns = 29000,
    .context_ps = 30500,
    .draft_ns = 600000,
    .accept_percent = 70,
};

uint64_t cost_step_ns(const struct cost_model *m, const struct cost_work *w)
{
    return m->step_ns + w->n_decodes * m->decode_ns + w->n_prompt * m->prompt_ns +
           w->n_context * m->context_ps / 1000 + w->n_drafts * m->draft_ns;
}
