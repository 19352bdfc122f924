/* Handles one call of NCCL. It enters and leaves the call while an interrupt may arrive, and
 * converts the result. It also waits until the call is no longer in progress. */
#include <sched.h>
#include <time.h>

#include "common/base/clock.h"
#include "kernels/cuda/comm/nccl_state.h"

enum { SPIN_TURNS = 2000, YIELD_TURNS = 4000, NAP_NS = 20000 };

void nccl_relax(uint32_t n)
{
    if (n < SPIN_TURNS)
        return;
    if (n < YIELD_TURNS)
        (void)sched_yield();
    else
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

void nccl_bump(const struct nccl_comm *c)
{
    if (c->o.progress)
        atomic_fetch_add_explicit(c->o.progress, 1, memory_order_relaxed);
}

enum status nccl_interrupted(struct error *err)
{
    return error_set(err, STATUS_CLOSED, "interrupted");
}

/* Both accesses are sequentially consistent, so either the aborting thread detects the call, or
 * the call detects the interrupt. */
enum status nccl_enter(struct nccl_comm *c, struct error *err)
{
    atomic_store(&c->in_call, true);
    if (!atomic_load(&c->interrupted))
        return STATUS_OK;
    atomic_store(&c->in_call, false);
    return nccl_interrupted(err);
}

void nccl_exit(struct nccl_comm *c)
{
    atomic_store(&c->in_call, false);
}

enum status nccl_check(const struct nccl_comm *c, int result, const char *call, struct error *err)
{
    enum status s = result == NCCL_INVALID_ARGUMENT || result == NCCL_INVALID_USAGE ? STATUS_INVALID
                                                                                    : STATUS_IO;
    if (result == NCCL_SUCCESS)
        return STATUS_OK;
    if (result == NCCL_IN_PROGRESS)
        return STATUS_AGAIN;
    const char *last = c->api.get_last_error(NULL);
    return error_set(err, s, "NCCL's call %s failed: %s%s%.300s", call,
                     c->api.get_error_string(result), last && last[0] ? ": " : "",
                     last ? last : "");
}

enum status nccl_look(struct nccl_comm *c, struct nccl_native *const *comm, const char *call,
                      struct error *err)
{
    int result = NCCL_SUCCESS;
    TRY(nccl_enter(c, err));
    int asked = *comm ? c->api.comm_get_async_error(*comm, &result) : NCCL_SUCCESS;
    enum status s = nccl_check(c, asked, "ncclCommGetAsyncError", err);
    if (s == STATUS_OK)
        s = nccl_check(c, result, call, err);
    nccl_exit(c);
    return s;
}

enum status nccl_settle(struct nccl_comm *c, struct nccl_native *const *comm, int result,
                        const char *call, uint32_t timeout_ms, struct error *err)
{
    enum status s = nccl_check(c, result, call, err);
    uint64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
    for (uint32_t n = 0; s == STATUS_AGAIN; n++) {
        /* The clock is read before the query. If the thread is descheduled between the two, the
         * loop queries once more before it gives up. */
        uint64_t now = clock_mono_ns();
        s = nccl_look(c, comm, call, err);
        if (s == STATUS_AGAIN && now > until)
            return error_set(
                err, STATUS_TIMEOUT,
                "NCCL's call %s did not finish within %u ms. See the logs of the other ranks", call,
                timeout_ms);
        nccl_bump(c);
        nccl_relax(n);
    }
    return s;
}
