#pragma once
/* Turns a Submit into a held request, or into a refusal. The code runs on the loop thread. */
#include "head/state/head_core.h"

void submit_on_msg(struct head_core *h, struct gateway_peer *g, const struct msg_submit *m);
/* Frees the kept grammar. Call it when the session ends. */
void submit_forget_grammar(struct kept_grammar *k);
