#pragma once
/* The life of the store's database. */
#include "gateway/batches/store/state.h"

/* Opens the database where it is not open and a retry is due; STATUS_CLOSED or STATUS_NO_MEMORY
 * with the reason where it stays closed. Every call begins with it, or with state_begin. */
enum status state_ready(struct state_store *s, struct error *err);
/* state_ready, then a transaction. */
enum status state_begin(struct state_store *s, struct error *err);
