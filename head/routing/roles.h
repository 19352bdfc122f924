#pragma once
/* Roles of replicas, as far as they are of use now (docs/develop/recovery.md, "Moving requests"). A
 * decode replica gets its requests, with their KV blocks, from prefill replicas: where it can get
 * them from none, both compute prompts and what follows, as replicas without a role do. Loop
 * thread. */
#include "head/state/head_core.h"

/* The list of live engine slots has changed, and every replica in it is whole. */
void roles_settle(struct head_core *h);
/* Says what is wrong and what to change, for people. */
const char *roles_advice(enum role_trouble t);
