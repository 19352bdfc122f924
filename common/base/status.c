#include "common/base/status.h"

#include <stdio.h>
#include <string.h>

#include "common/base/userinfo.h"

static const char *const names[] = {
    [STATUS_OK] = "ok",
    [STATUS_AGAIN] = "again",
    [STATUS_INVALID] = "invalid",
    [STATUS_NOT_FOUND] = "not_found",
    [STATUS_EXISTS] = "exists",
    [STATUS_NO_MEMORY] = "no_memory",
    [STATUS_LIMIT] = "limit",
    [STATUS_IO] = "io",
    [STATUS_PROTOCOL] = "protocol",
    [STATUS_VERSION] = "version",
    [STATUS_DENIED] = "denied",
    [STATUS_TIMEOUT] = "timeout",
    [STATUS_CLOSED] = "closed",
    [STATUS_UNSUPPORTED] = "unsupported",
    [STATUS_INTERNAL] = "internal",
};
_Static_assert(sizeof names / sizeof *names == STATUS_COUNT, "a status has no name");

const char *status_name(enum status s)
{
    return (unsigned)s < STATUS_COUNT ? names[s] : "unknown";
}

bool status_is_configuration(enum status s)
{
    return s == STATUS_INVALID || s == STATUS_UNSUPPORTED || s == STATUS_NOT_FOUND ||
           s == STATUS_DENIED || s == STATUS_EXISTS || s == STATUS_NO_MEMORY || s == STATUS_LIMIT;
}

enum status error_set(struct error *err, enum status s, const char *fmt, ...)
{
    if (!err)
        return s;
    va_list ap;
    va_start(ap, fmt);
    err->status = s;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    userinfo_hide(err->text);
    return s;
}

enum status error_prefix(struct error *err, enum status s, const char *fmt, ...)
{
    if (!err)
        return s;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n < 0)
        n = 0;
    size_t room = (size_t)n < sizeof old ? sizeof old - (size_t)n : 0;
    if (room > 3)
        snprintf(err->text + n, room, ": %.*s", (int)room - 3, old);
    err->status = s;
    userinfo_hide(err->text);
    return s;
}
