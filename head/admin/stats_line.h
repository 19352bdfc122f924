#pragma once
/* Writes a log line every few seconds while requests run: throughput, queues and cache, as in
 * vLLM's log. The line is the event `stats` with vLLM's text. In JSON the numbers are also
 * separate fields. The caller passes the time. */
#include "common/options/head.h"
#include "head/core/core.h"

struct stats_line {
    enum stats_format format;
    uint64_t interval_ns; /* interval of the line; 0 = never */
    uint64_t at_ns;       /* time of the last call */
    struct head_stats last;
    double hit_rate; /* prefix cache hit rate of the last interval with lookups, 0 to 1 */
};

/* Initializes the line's state. An interval_s below 0 selects the default of the log format. */
void stats_line_init(struct stats_line *l, enum stats_format format, double interval_s,
                     uint64_t now_ns);
bool stats_line_is_due(const struct stats_line *l, uint64_t now_ns);
/* Logs the activity since the last call, or nothing when there was no activity. */
void stats_line_log(struct stats_line *l, const struct head_stats *s, uint64_t now_ns);

/* The functions below write the texts of the line. `out` stays empty when there is nothing to
 * report. */
void stats_line_text(const struct stats_line *l, const struct head_stats *s, uint64_t now_ns,
                     struct strbuf *out);
void stats_line_speculation(const struct stats_line *l, const struct head_stats *s, uint64_t now_ns,
                            struct strbuf *out);
