/* Decides when a model that was removed from a set ends.
 * Gateways look at their file twice a second, so a request may still come for PASS_MS. A head that
 * starts again knows no requests until the gateways have joined it and sent them again. So a head
 * must say for PASS_MS that nothing is open, without a pause in its answers. A head that has not
 * answered for DEAD_MS has no requests; the supervisor starts a head again after 5 s at most.
 * Invariant: one missing or old answer never ends a model. */
#include "cli/up/set/leave.h"

#include "common/base/clock.h"

enum { PASS_MS = 1500, DEAD_MS = 10000, SLOW_MS = 60000 };

static bool is_unused(const struct set_heard *h, uint64_t left_ns, uint64_t now_ns)
{
    const uint64_t last_ns = h->answered_ns > left_ns ? h->answered_ns : left_ns;
    if (!h->is_known)
        return now_ns > last_ns + DEAD_MS * NS_PER_MS;
    return h->idle_since_ns > 0 && h->answered_ns >= left_ns + PASS_MS * NS_PER_MS &&
           h->answered_ns >= h->idle_since_ns + PASS_MS * NS_PER_MS;
}

enum set_leave set_leave_decide(const struct set_heard *h, uint64_t left_ns, uint64_t now_ns)
{
    if (is_unused(h, left_ns, now_ns))
        return SET_LEAVE_END;
    if (now_ns >= left_ns + SET_LEAVE_MAX_S * NS_PER_S)
        return SET_LEAVE_LATE;
    return now_ns >= left_ns + SLOW_MS * NS_PER_MS ? SET_LEAVE_SLOW : SET_LEAVE_WAIT;
}
