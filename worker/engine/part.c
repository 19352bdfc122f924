#include "worker/engine/part.h"

#include "worker/model/families/program_build.h"

enum status engine_build_part(const struct engine *e, struct comm_place at, struct program **out,
                              struct error *err)
{
    const struct program_setup s = {.tp = at.tp,
                                    .rank = at.rank,
                                    .pp = at.pp,
                                    .stage = at.stage,
                                    .max_model_len = e->max_model_len,
                                    .inner_unit = loader_inner_unit(&e->config, e->files),
                                    .expert_parallel = e->expert_parallel};
    return program_build(&e->config, &s, out, err);
}

enum status engine_in_files(const struct engine *e, enum status s, struct error *err)
{
    return s == STATUS_OK ? s : error_prefix(err, s, "%s", e->info.path);
}

enum status engine_measure_part(const struct engine *e, const struct program *p,
                                struct engine_part *out, struct error *err)
{
    const struct comm_place at = {p->tp, p->pp, p->rank, p->stage};
    *out = (struct engine_part){0};
    TRY(engine_in_files(e, runner_check(p, e->device, e->pass_rows, err), err));
    TRY(engine_in_files(e, loader_measure(p, e->files, e->device, &out->weights_bytes, err), err));
    out->activation_bytes = runner_measure(p, e->device, e->pass_rows);
    out->comm_bytes = !e->told_bytes              ? comm_stages_bytes(&at) + e->kv_transfer_bytes
                      : comm_place_world(&at) > 1 ? e->told_bytes(p->tp, p->pp)
                                                  : e->told_held_bytes;
    return e->loras ? lora_set_measure(e->loras, p, &out->lora_bytes, err) : STATUS_OK;
}
