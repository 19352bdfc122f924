/* Counts the users of the DEALERs' shared context, and gives each ROUTER a context of its own.
 * `bus.c` opens a context for each bus and closes it after the sockets. The lock protects the
 * shared context's pointer and its count; ZeroMQ's contexts are thread-safe themselves. */
#include "common/bus/context.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <zmq.h>

static struct {
    pthread_mutex_t lock;
    void *context;
    uint32_t n_users;
} dealers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *take_shared(void)
{
    pthread_mutex_lock(&dealers.lock);
    if (!dealers.context)
        dealers.context = zmq_ctx_new();
    void *context = dealers.context;
    dealers.n_users += context != NULL;
    pthread_mutex_unlock(&dealers.lock);
    return context;
}

/* Returns the context when this was its last user, else NULL. */
static void *leave_shared(void)
{
    pthread_mutex_lock(&dealers.lock);
    void *last = --dealers.n_users == 0 ? dealers.context : NULL;
    if (last)
        dealers.context = NULL;
    pthread_mutex_unlock(&dealers.lock);
    return last;
}

enum status bus_context_open(bool is_router, void **out, struct error *err)
{
    *out = is_router ? zmq_ctx_new() : take_shared();
    if (*out)
        return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot create a ZeroMQ context: %s",
                     zmq_strerror(zmq_errno()));
}

void bus_context_close(bool is_router, void *context)
{
    if (!context)
        return;
    void *last = is_router ? context : leave_shared();
    /* A signal interrupts zmq_ctx_term but not zmq's threads, so the call is repeated. */
    while (last && zmq_ctx_term(last) != 0 && errno == EINTR)
        ;
}
