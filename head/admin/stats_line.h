#pragma once
/* The line that people of vLLM watch: throughput, queues and cache, every few seconds while
 * something runs. Event `stats`, in vLLM's words as its text; in JSON the numbers are fields too.
 * No clock of its own. */
#include "common/options/head.h"
#include "head/core/core.h"

struct stats_line {
    enum stats_format format;
    uint64_t interval_ns; /* 0: never */
    uint64_t at_ns;       /* of the last look */
    struct head_stats last;
    double hit_rate; /* of the last interval that asked the prefix cache, 0 to 1 */
};

/* interval_s < 0: the format's own. */
void stats_line_init(struct stats_line *l, enum stats_format format, double interval_s,
                     uint64_t now_ns);
bool stats_line_is_due(const struct stats_line *l, uint64_t now_ns);
/* Logs what has been since the last call, or nothing when nothing has. */
void stats_line_log(struct stats_line *l, const struct head_stats *s, uint64_t now_ns);

/* The texts; out is empty when there is nothing to say. */
void stats_line_text(const struct stats_line *l, const struct head_stats *s, uint64_t now_ns,
                     struct strbuf *out);
void stats_line_speculation(const struct stats_line *l, const struct head_stats *s, uint64_t now_ns,
                            struct strbuf *out);
