/* Detects a device that fails or hangs, and an abort of the collectives that does not end. In
 * each case the process must end. */
#include "worker/executor/device_loss.h"

#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/executor/ranks.h"

void executor_note_lost(struct executor_model *x, const struct error *why)
{
    if (atomic_load(&x->loss.is_lost))
        return;
    x->loss.why = *why;
    atomic_store(&x->loss.is_lost, true);
}

/* Records that the device is lost. STATUS_UNSUPPORTED means that the device lacks an operator of
 * the model. This fails again after a restart, so the worker is not restarted. */
static void lose_device(struct executor_model *x, const struct error *why)
{
    log_error(why->status == STATUS_UNSUPPORTED ? "operator_unsupported" : "device_lost",
              "error=%s", log_quote(why->text));
    executor_note_lost(x, why);
}

/* Waits until the device is idle or lost. It polls, because cudaStreamSynchronize does not
 * return when the device hangs. STATUS_LIMIT means that a step exceeded a limit. It is reported
 * once and does not mean a lost device. */
void executor_await_device(struct executor_model *x)
{
    const struct timespec pause = {.tv_nsec = 20000};
    uint64_t now = clock_mono_ns(), until = now + x->loss.stuck_ns;
    enum status s;
    struct error why;
    if (!x->device->query || atomic_load(&x->loss.is_lost))
        return;
    while ((s = x->device->query(x, &why)) == STATUS_LIMIT || (s == STATUS_AGAIN && now < until)) {
        executor_bump(&x->base);
        (void)nanosleep(&pause, NULL);
        /* the time is read before the query, so the query is repeated after a lost time slice */
        now = clock_mono_ns();
    }
    if (s == STATUS_AGAIN)
        error_set(&why, STATUS_TIMEOUT,
                  "the device hangs: it did not finish its work within %.0f s",
                  (double)x->loss.stuck_ns / NS_PER_S);
    if (s != STATUS_OK)
        lose_device(x, &why);
}

/* Checks after a step whether the device is lost. With several ranks on GPUs the end of the
 * group reports the loss. A wait here could block. */
void executor_look_at_device(struct executor_model *x, enum status s, const struct error *err)
{
    bool may_be = s != STATUS_OK && s != STATUS_PROTOCOL && s != STATUS_CLOSED;
    if (!may_be || x->ranks.in->is_on_device || atomic_load(&x->loss.is_lost))
        return;
    if (s == STATUS_TIMEOUT && x->device_sampler)
        lose_device(x, err);
    else
        executor_await_device(x);
}

/* Returns true when the compute thread is in a call that neither an interrupt nor a deadline
 * ends, such as a copy to the host or a launch. */
static bool is_stuck(const struct executor_model *x)
{
    uint64_t entered = atomic_load(&x->loss.entered_ns),
             told = atomic_load(&x->loss.interrupted_ns);
    uint64_t from = entered > told ? entered : told;
    return x->device_sampler && entered != 0 && told != 0 &&
           clock_mono_ns() > from + x->loss.stuck_ns;
}

bool executor_lost(const struct executor *e, struct error *why)
{
    const struct executor_model *x = (const struct executor_model *)e;
    if (atomic_load(&x->loss.is_lost)) {
        *why = x->loss.why;
        return true;
    }
    if (is_stuck(x)) {
        (void)error_set(
            why, STATUS_TIMEOUT,
            "the device hangs: the current step has not returned %.0f s after it should have ended",
            (double)x->loss.stuck_ns / NS_PER_S);
        return true;
    }
    if (!x->ranks.ops->is_overdue || !x->ranks.ops->is_overdue(x))
        return false;
    (void)error_set(why, STATUS_IO, "the device hangs: the abort of the collectives does not end");
    return true;
}
