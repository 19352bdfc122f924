#pragma once
/* The share of each tenant in the store. */
#include "gateway/batches/store/state.h"

/* Limit of a tenant's data, as a multiple of the room that stays free: n leaves 1/(n + 1) of the
 * store to others. Answers have a higher limit than requests for new data. */
enum { STATE_SHARE_NEW = 7, STATE_SHARE_ANSWERS = 15 };
/* Checks whether the tenant may store so many more bytes. Returns STATUS_DENIED when it may not,
 * even if the store has room. */
enum status state_share(struct state_store *s, uint64_t tenant, uint64_t bytes, uint32_t share,
                        struct error *err);
/* Returns the tenant of an open batch; 0 = no such batch. */
uint64_t state_tenant_of_batch(struct state_store *s, int64_t batch_no);
/* These functions must run within a transaction. They count a batch's bytes: at its start, with
 * each answer (before the line's body is deleted), and until the lines are deleted. */
enum status state_share_batch(struct state_store *s, int64_t no, uint64_t tenant, uint64_t bytes,
                              struct error *err);
enum status state_share_answer(struct state_store *s, int64_t no, uint32_t i_line, uint64_t bytes,
                               struct error *err);
enum status state_share_end(struct state_store *s, int64_t no, struct error *err);
