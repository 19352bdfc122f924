#pragma once
/* Runs the opcodes of torch_pickle.c for names, storages and tensors. */
#include "common/model/files/pickle_machine.h"

MUST_USE enum status pickle_push_global(struct pickle_machine *m);
MUST_USE enum status pickle_push_stack_global(struct pickle_machine *m);
/* Pushes the storage of a persistent id: ("storage", type, key, location, number of elements). */
MUST_USE enum status pickle_push_storage(struct pickle_machine *m);
/* Pushes the tensor that other readers would build with a function call. */
MUST_USE enum status pickle_reduce(struct pickle_machine *m);
