#pragma once
/* Sets the roles of replicas, as far as they can be used now (docs/develop/recovery.md, "Moving
 * requests"). A decode replica gets its requests, with their KV blocks, from prefill replicas.
 * Without a prefill replica that can send them, both kinds work like replicas without a role:
 * they compute prompts and decode. The code runs on the loop thread. */
#include "head/state/head_core.h"

/* Sets the role of each live engine slot. Call when the list has changed and every replica in it
 * is whole. */
void roles_settle(struct head_core *h);
/* Returns a text for operators: the fault, and the change that fixes it. */
const char *roles_advice(enum role_trouble t);
