#pragma once
/* Limits the share of each tenant in the store. */
#include "gateway/batches/store/state.h"

/* The limit of a tenant's data is a multiple of the space that stays free: n leaves 1/(n + 1) of
 * the store to other tenants. Answers have a higher limit than requests for new data. */
enum { STATE_SHARE_NEW = 7, STATE_SHARE_ANSWERS = 15 };
/* Checks whether the tenant may store `bytes` more. Returns STATUS_DENIED when the tenant's
 * share is used up, even if the store has free space. */
enum status state_share(struct state_store *s, uint64_t tenant, uint64_t bytes, uint32_t share,
                        struct error *err);
/* Returns the tenant of a batch; 0 = no such batch. */
uint64_t state_tenant_of_batch(struct state_store *s, int64_t batch_no);
/* These functions count a batch's bytes: at its start, with each answer (before the line's body
 * is deleted), and until the lines are deleted. They must run within a transaction. */
enum status state_share_batch(struct state_store *s, int64_t no, uint64_t tenant, uint64_t bytes,
                              struct error *err);
enum status state_share_answer(struct state_store *s, int64_t no, uint32_t i_line, uint64_t bytes,
                               struct error *err);
enum status state_share_end(struct state_store *s, int64_t no, struct error *err);
