/* Writes log events to stderr. Every thread calls log_event through the macros of log.h; one
 * event becomes one line, in logfmt or JSON, and one write(2).
 * The format string and its values first become logfmt fields. For JSON these fields are parsed
 * again, because only the format string knows which of them are numbers. A line is bounded by
 * LOG_LINE_MAX and longer fields are cut. log_init runs before other threads start; afterwards
 * `logger` is only read, so no lock is needed. */
#include "common/base/log.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/str.h"
#include "common/base/userinfo.h"

enum { LOG_LINE_MAX = 4096, LOG_QUOTE_MAX = 1024 };

static struct {
    char process[32];
    enum log_level level;
    enum log_format format;
} logger = {.process = "cox", .level = LOG_INFO};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_init(const char *process, enum log_level level, enum log_format format)
{
    snprintf(logger.process, sizeof logger.process, "%s", process);
    logger.level = level;
    logger.format = format;
}

bool log_enabled(enum log_level level)
{
    return level >= logger.level;
}

const char *log_quote(const char *s)
{
    static _Thread_local char bufs[4][LOG_QUOTE_MAX];
    static _Thread_local unsigned next;
    char *out = bufs[next++ % 4];
    size_t n = 0;
    out[n++] = '"';
    for (; *s && n < LOG_QUOTE_MAX - 8; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            out[n++] = '\\';
            out[n++] = (char)c;
        } else if (c < 0x20 || c == 0x7F) {
            n += (size_t)snprintf(out + n, 7, "\\u%04x", c);
        } else {
            out[n++] = (char)c;
        }
    }
    out[n++] = '"';
    out[n] = '\0';
    return out;
}

static void append_time(struct strbuf *b, uint64_t wall_ns)
{
    time_t s = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;
    char text[32];
    gmtime_r(&s, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    strbuf_printf(b, "%s.%03uZ", text, (unsigned)(wall_ns / NS_PER_MS % 1000));
}

/* Returns the length of the JSON number at the start of `v` (RFC 8259), or 0 when there is none. */
static size_t json_number_len(const char *v)
{
    size_t n = v[0] == '-', digits = strspn(v + n, "0123456789");
    if (digits == 0 || (digits > 1 && v[n] == '0'))
        return 0;
    n += digits;
    if (v[n] == '.') {
        digits = strspn(v + n + 1, "0123456789");
        if (digits == 0)
            return 0;
        n += 1 + digits;
    }
    if (v[n] == 'e' || v[n] == 'E') {
        size_t sign = v[n + 1] == '+' || v[n + 1] == '-';
        digits = strspn(v + n + 1 + sign, "0123456789");
        if (digits == 0)
            return 0;
        n += 1 + sign + digits;
    }
    return n;
}

/* Returns true when "key=" in the format is followed by one conversion to a decimal number and
 * nothing else. */
static bool is_number_in(const char *fmt, const char *key, size_t n_key)
{
    for (const char *f = fmt; *f; f += strcspn(f, " "), f += *f == ' ') {
        if (strncmp(f, key, n_key) != 0 || f[n_key] != '=' || f[n_key + 1] != '%')
            continue;
        const char *v = f + n_key + 2;
        v += strspn(v, "-+#0123456789.*hlzjt");
        return *v && strchr("diufFgGeE", *v) && (v[1] == ' ' || v[1] == '\0');
    }
    return false;
}

/* Undoes log_quote, starting after the opening quote. `*used` is the number of bytes read, with
 * the closing quote. Escapes that log_quote does not write stay unchanged. */
static size_t unquote(const char *v, char *out, size_t *used)
{
    size_t i = 0, n = 0;
    while (v[i] && v[i] != '"') {
        unsigned code;
        if (v[i] == '\\' && (v[i + 1] == '"' || v[i + 1] == '\\')) {
            out[n++] = v[i + 1];
            i += 2;
        } else if (v[i] == '\\' && v[i + 1] == 'u' && sscanf(v + i + 2, "00%2x", &code) == 1 &&
                   strspn(v + i + 2, "0123456789abcdef") >= 4) {
            out[n++] = (char)code;
            i += 6;
        } else {
            out[n++] = v[i++];
        }
    }
    *used = i + (v[i] == '"');
    return n;
}

/* Appends one field as a JSON member and returns its length in `f`. A value ends at a blank
 * outside quotes. A number that C prints may still be invalid in JSON (inf), and then becomes a
 * text. */
static size_t append_json_field(struct strbuf *b, const char *f, const char *fmt)
{
    char plain[LOG_LINE_MAX];
    size_t key = strcspn(f, "= "), n, used;
    strbuf_append_c(b, ",");
    strbuf_append_json(b, (struct str){f, key});
    if (f[key] != '=') {
        strbuf_append_c(b, ":true");
        return key;
    }
    const char *v = f + key + 1;
    strbuf_append_c(b, ":");
    if (*v == '"') {
        n = unquote(v + 1, plain, &used);
        strbuf_append_json(b, (struct str){plain, n});
        return key + 2 + used;
    }
    n = strcspn(v, " ");
    if (n > 0 && is_number_in(fmt, f, key) && json_number_len(v) == n)
        strbuf_append(b, v, n);
    else
        strbuf_append_json(b, (struct str){v, n});
    return key + 1 + n;
}

static void format_json(struct strbuf *b, const char *fields, const char *fmt)
{
    while (*fields) {
        if (*fields == ' ')
            fields++;
        else
            fields += append_json_field(b, fields, fmt);
    }
}

const char *log_process(void)
{
    return logger.process;
}

bool log_is_json(void)
{
    return logger.format == LOG_JSON;
}

void log_event(enum log_level level, const char *event, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_event_v(level, event, fmt, ap);
    va_end(ap);
}

void log_event_v(enum log_level level, const char *event, const char *fmt, va_list ap)
{
    if (!log_enabled(level))
        return;
    char fields[LOG_LINE_MAX];
    vsnprintf(fields, sizeof fields, fmt, ap);
    userinfo_hide(fields); /* an address from a peer or a flag may contain a password */
    for (char *p = fields; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' '; /* an event must stay on one line, whatever a value contains */
    struct strbuf b;
    strbuf_init(&b, 4ul * LOG_LINE_MAX);
    if (logger.format == LOG_JSON) {
        strbuf_append_c(&b, "{\"ts\":\"");
        append_time(&b, clock_wall_ns());
        strbuf_printf(&b, "\",\"level\":\"%s\",\"process\":\"%s\",\"event\":\"%s\"",
                      level_names[level], logger.process, event);
        format_json(&b, fields, fmt);
        strbuf_append_c(&b, "}\n");
    } else {
        append_time(&b, clock_wall_ns());
        strbuf_printf(&b, " %-5s %s %s%s%s\n", level_names[level], logger.process, event,
                      *fields ? " " : "", fields);
    }
    /* stderr is closed, and there is no other place to report the error */
    if (write(STDERR_FILENO, b.ptr, b.len) < 0) {
    }
    strbuf_fini(&b);
}
