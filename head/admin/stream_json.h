#pragma once
/* The parts of an update on /api/stream (docs/how-to/dashboard.md) that there are many of: rows as
 * JSON arrays, written straight into a buffer, since a head has hundreds of workers and says this
 * every second. What a column means stands in docs/reference/admin-api.md and in
 * head/admin/dashboard/model.js. A buffer's limit bounds a part; a part that does not fit leaves
 * the buffer failed. Pure; loop thread. */
#include "common/base/str.h"
#include "head/admin/history.h"
#include "head/admin/request_rows.h"
#include "head/core/core.h"

#define STREAM_ROWS_MAX 1024u /* workers, and replicas, in one update */
#define STREAM_EVENTS   100u  /* events in one update */
#define STREAM_CELLS    2048u /* of the KV map, */
#define STREAM_SAMPLED  64u   /* each judged by so many of its blocks at most */

/* {"total", "rows": [...]} */
void stream_json_workers(const struct head_core *h, struct strbuf *out);
void stream_json_replicas(const struct head_core *h, struct strbuf *out);
/* From number *next on, which moves on. */
void stream_json_samples(const struct history *t, uint64_t *next, struct strbuf *out);
void stream_json_events(const struct head_core *h, uint64_t *next, struct strbuf *out);
void stream_json_requests(const struct head_core *h, const struct live_requests *l,
                          const struct request_page *p, struct strbuf *out);
/* The KV map of the live replica of this id, else of the first one; "null" where none is. */
void stream_json_kv(const struct head_core *h, uint64_t replica_id, uint32_t i_kv,
                    struct strbuf *out);
