#pragma once
/* Names, storages and tensors in a pickle: opcodes of torch_pickle.c. */
#include "common/model/files/pickle_machine.h"

MUST_USE enum status pickle_push_global(struct pickle_machine *m);
MUST_USE enum status pickle_push_stack_global(struct pickle_machine *m);
/* The storage of a persistent id: ("storage", type, key, location, number of elements). */
MUST_USE enum status pickle_push_storage(struct pickle_machine *m);
/* The tensor that other readers would call a function for. */
MUST_USE enum status pickle_reduce(struct pickle_machine *m);
