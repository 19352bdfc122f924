#include "common/model/info/base.h"

#include "common/model/info/family.h"

enum status model_info_add_eos(struct model_info *m, uint64_t id, struct error *err)
{
    if (id >= m->vocab_size)
        return error_set(err, STATUS_INVALID,
                         "%s: the end-of-sequence id %llu is not less than the size of the "
                         "vocabulary (%u). Fetch the model again",
                         m->path, (unsigned long long)id, m->vocab_size);
    for (uint32_t i = 0; i < m->n_eos_ids; i++)
        if (m->eos_ids[i] == id)
            return STATUS_OK;
    if (m->n_eos_ids == MODEL_MAX_EOS)
        return error_set(err, STATUS_INVALID,
                         "%s has more than %d end-of-sequence ids, the most that Coxswain "
                         "supports. Use another model",
                         m->path, MODEL_MAX_EOS);
    m->eos_ids[m->n_eos_ids++] = (uint32_t)id;
    return STATUS_OK;
}

enum status model_info_unknown(const struct model_info *m, struct str arch, struct error *err)
{
    struct strbuf known;
    strbuf_init(&known, 0);
    family_names(&known);
    if (arch.len > 64)
        arch.len = 64;
    enum status s =
        error_set(err, STATUS_UNSUPPORTED,
                  "%s: the architecture " STR_FMT " is not supported. Supported architectures: %s",
                  m->path, STR_ARG(arch), known.ptr);
    strbuf_fini(&known);
    return s;
}
