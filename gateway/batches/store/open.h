#pragma once
/* The life of the store's database. */
#include "gateway/batches/store/state.h"

/* Opens the database if it is closed and a retry is due. Returns STATUS_CLOSED or
 * STATUS_NO_MEMORY with the reason when it stays closed. Each call begins with this or with
 * `state_begin`. */
enum status state_ready(struct state_store *s, struct error *err);
/* Calls `state_ready`, then begins a transaction. */
enum status state_begin(struct state_store *s, struct error *err);
