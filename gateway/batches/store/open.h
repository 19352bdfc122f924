#pragma once
/* Opens the store's database when it is needed, and opens it again after a loss. */
#include "gateway/batches/store/state.h"

/* Opens the database when it is closed and a retry is due. Returns STATUS_CLOSED or
 * STATUS_NO_MEMORY with the reason when the database stays closed. Each call of the store begins
 * with this function or with `state_begin`. */
enum status state_ready(struct state_store *s, struct error *err);
/* Calls `state_ready`, then begins a transaction. */
enum status state_begin(struct state_store *s, struct error *err);
