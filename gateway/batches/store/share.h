#pragma once
/* Each tenant's share of the store. */
#include "gateway/batches/store/state.h"

/* How many times as much as it leaves free a tenant may have: n leaves 1/(n + 1) of the store to
 * others. Answers may go further than what asks for them. */
enum { STATE_SHARE_NEW = 7, STATE_SHARE_ANSWERS = 15 };
/* May the tenant have so many bytes more? STATUS_DENIED: no; the store itself may have room. */
enum status state_share(struct state_store *s, uint64_t tenant, uint64_t bytes, uint32_t share,
                        struct error *err);
/* The tenant of an open batch; 0 where there is none. */
uint64_t state_tenant_of_batch(struct state_store *s, int64_t batch_no);
/* Inside a transaction: a batch's bytes from its start, with each answer (before its line's body
 * goes), until its lines go. */
enum status state_share_batch(struct state_store *s, int64_t no, uint64_t tenant, uint64_t bytes,
                              struct error *err);
enum status state_share_answer(struct state_store *s, int64_t no, uint32_t i_line, uint64_t bytes,
                               struct error *err);
enum status state_share_end(struct state_store *s, int64_t no, struct error *err);
