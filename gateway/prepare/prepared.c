#include "gateway/prepare/prepared.h"

void prepared_fini(struct prepared *p)
{
    params_fini(&p->params);
    prompt_list_fini(&p->prompts);
}
