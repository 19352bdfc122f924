#pragma once
/* Writes the large parts of an update on /api/stream (docs/how-to/dashboard.md). Rows are JSON
 * arrays that are written straight into a buffer, since a head has hundreds of workers and
 * writes their rows every second. docs/reference/admin-api.md and head/admin/dashboard/model.js
 * define the columns. The buffer's limit bounds a part: a part that does not fit sets the
 * buffer's error. The code does no I/O and runs on the loop thread. */
#include "common/base/str.h"
#include "head/admin/history.h"
#include "head/admin/request_rows.h"
#include "head/core/core.h"

#define STREAM_ROWS_MAX 1024u /* most workers, and most replicas, in one update */
#define STREAM_EVENTS   100u  /* most events in one update */
#define STREAM_CELLS    2048u /* most cells of the KV map */
#define STREAM_SAMPLED  64u   /* most blocks that are examined for one cell */

/* Writes {"total", "rows": [...]}. */
void stream_json_workers(const struct head_core *h, struct strbuf *out);
void stream_json_replicas(const struct head_core *h, struct strbuf *out);
/* Writes rows from number *next on and advances *next. */
void stream_json_samples(const struct history *t, uint64_t *next, struct strbuf *out);
void stream_json_events(const struct head_core *h, uint64_t *next, struct strbuf *out);
void stream_json_requests(const struct head_core *h, const struct live_requests *l,
                          const struct request_page *p, struct strbuf *out);
/* Writes the KV map of the live replica with this id, or of the first live one. Writes "null"
 * when there is none. */
void stream_json_kv(const struct head_core *h, uint64_t replica_id, uint32_t i_kv,
                    struct strbuf *out);
