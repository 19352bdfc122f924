#pragma once
/* Sends copies of requests to another model and drops the answers, so that a new version gets real
 * load before any client depends on it. The number of open copies and their bytes are bounded;
 * requests beyond that are not copied. A copy counts for no key. Only the loop thread calls these
 * functions. */
#include "common/base/metrics.h"
#include "gateway/serving/start.h"

struct mirror {
    uint32_t n_open;
    uint64_t bytes;
    struct metric *outcomes[3]; /* answered, failed, skipped */
};

void mirror_init(struct mirror *m, struct metrics *registry);
/* Sends a copy of an admitted request to q->mirror, unless there is no room. `mirror` is a struct
 * mirror, which must outlive all requests. */
void mirror_send(void *mirror, const struct serving_request *q);
