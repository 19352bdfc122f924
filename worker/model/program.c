#include "worker/model/program.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

void tensor_name_format(const struct tensor_name *t, enum model_format format, uint32_t layer,
                        uint32_t expert, char out[TENSOR_NAME_MAX])
{
    const uint32_t numbers[] = {layer, expert};
    const char *p = format == MODEL_GGUF ? t->gguf : t->hf;
    size_t used = 0, i = 0;
    out[0] = '\0';
    for (const char *at; p && used < TENSOR_NAME_MAX && (at = strstr(p, "%u")) && i < 2; p = at + 2)
        used += (size_t)snprintf(out + used, TENSOR_NAME_MAX - used, "%.*s%u", (int)(at - p), p,
                                 numbers[i++]);
    if (p && used < TENSOR_NAME_MAX)
        (void)snprintf(out + used, TENSOR_NAME_MAX - used, "%s", p);
}

struct cut_range program_vocab_part(const struct program *p, uint32_t rank)
{
    return cut_units(p->config->vocab_size, PROGRAM_VOCAB_UNIT, p->tp, rank);
}

void program_free(struct program *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_ropes; i++)
        mem_free(p->ropes[i].inv);
    mem_free(p->ops);
    mem_free(p->weights);
    mem_free(p);
}
