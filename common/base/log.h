#pragma once
/* Writes log events to stderr, one event a line, in logfmt or JSON. The stable event name comes
 * first.
 *   log_info("request_finished", "id=%s ttft_ms=%.1f tokens=%d", id, ttft, n);
 * Fields are written as logfmt `key=value`. The caller passes a value with blanks through
 * log_quote. In JSON a field is a number when its format is one number ("tokens=%d"), otherwise
 * a text. So an id of digits only, an epoch "1.10" or a hexadecimal number never changes its
 * type.
 * Levels: error = a person must act, warn = degraded, info = lifecycle, debug = per step
 * (compiled in, off by default). Log an error where it is handled, not where it is raised. The
 * functions are thread-safe: each line is one write(2). */
#include <stdarg.h>
#include <stdbool.h>

#include "common/base/status.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_LEVEL_COUNT };
enum log_format { LOG_LOGFMT, LOG_JSON, LOG_FORMAT_COUNT };

/* `process` names the writer in every line ("head", "worker-1"). Call this once, before other
 * threads start. */
void log_init(const char *process, enum log_level level, enum log_format format);
bool log_enabled(enum log_level level);
void log_event(enum log_level level, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);
void log_event_v(enum log_level level, const char *event, const char *fmt, va_list ap)
    PRINTF_LIKE(3, 0);
const char *log_process(void);
/* Returns true when log lines are JSON. Everything else that a program prints must then be an
 * event too. */
bool log_is_json(void);

#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_event(LOG_DEBUG, __VA_ARGS__);                                                     \
    } while (0)
#define log_info(...)  log_event(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_event(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_event(LOG_ERROR, __VA_ARGS__)

/* Returns `s` quoted and escaped for a logfmt value, in one of 4 rotating thread-local buffers. */
const char *log_quote(const char *s);
