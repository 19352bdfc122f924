/* Holds cases in which rank 1 is killed while the other ranks wait for it in a sum. They must
 * leave the group with their weights in place, and all ranks must form a new group. The cases
 * run over the stand-in (comm_test) and over NCCL (nccl_test). */
#include <pthread.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/cuda/rig/comm_cases.h"

enum { WEIGHTS_BYTES = 1 << 16, MOST_MS = 10000, JOINED = 3 };

bool comm_leaves(struct rank *r)
{
    uint32_t ms;
    struct error err = {0};
    enum gpu_comm_end end = r->comm->ops->leave(r->comm, &ms, &err);
    return rank_is(r, __LINE__, end == GPU_COMM_LEFT && !r->comm->ops->overdue(r->comm), "leave",
                   &err);
}

/* Acts like the head's Abort, which arrives when another process has detected a rank's end. */
void *comm_interrupt_on_loss(void *arg)
{
    struct rank *r = arg;
    while (!atomic_load(&r->shared->killed))
        usleep(1000);
    r->comm->ops->interrupt(r->comm);
    return NULL;
}

static bool make_weights(struct rank *r, void **weights)
{
    uint8_t host[WEIGHTS_BYTES];
    for (size_t i = 0; i < sizeof host; i++)
        host[i] = (uint8_t)(i * 31);
    RANK_TRY(r, gpu_alloc(r->device, sizeof host, weights, why));
    RANK_TRY(r, gpu_copy_to_device(r->stream, *weights, host, sizeof host, why));
    RANK_TRY(r, gpu_stream_sync(r->stream, why));
    return true;
}

static bool weights_are_whole(struct rank *r, void *weights)
{
    uint8_t host[WEIGHTS_BYTES];
    RANK_TRY(r, gpu_copy_from_device(r->stream, host, weights, sizeof host, why));
    RANK_TRY(r, gpu_stream_sync(r->stream, why));
    for (size_t i = 0; i < sizeof host; i++)
        RANK_CHECK(r, host[i] == (uint8_t)(i * 31));
    gpu_release(r->device, weights);
    return true;
}

/* Waits until all other ranks are in the sum. The ranks of one stage do not wait for another
 * stage. */
static void be_killed(struct rank *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        while (i != 1 && atomic_load(&r->shared->at[i]) != JOINED)
            usleep(100);
    atomic_store(&r->shared->at[1], 1);
    for (;;)
        pause();
}

/* Runs the case in which rank 1 is killed while the others wait for it in a sum. */
bool comm_lose_rank_1(struct rank *r, uint32_t tp, uint32_t pp)
{
    void *x;
    struct error err = {0};
    RANK_CHECK(r, rank_join(r, 0, tp, pp, NULL));
    if (!comm_sum_once(r, tp, 1000, true))
        return false;
    if (r->i == 1)
        be_killed(r);
    atomic_store(&r->shared->at[r->i], JOINED);
    RANK_TRY(r, gpu_alloc(r->device, 4096, &x, why));
    enum status s = r->comm->ops->sum_bf16(r->comm, x, 2048, &err);
    if (s == STATUS_OK)
        s = r->comm->ops->wait(r->comm, NULL, NULL, &err);
    /* In another stage no rank waits for rank 1. There the head's interrupt reports the loss. */
    RANK_CHECK(r, s == STATUS_IO || s == STATUS_CLOSED || r->i / tp > 0);
    /* memory can be freed only when the device's work has ended */
    r->comm->ops->interrupt(r->comm);
    gpu_release(r->device, x);
    return true;
}

static bool lose_and_join(struct rank *r, uint32_t tp, uint32_t pp, bool told)
{
    void *weights;
    pthread_t thread;
    if (atomic_load(&r->shared->at[1]) != 2) {
        if (!make_weights(r, &weights))
            return false;
        if (told)
            pthread_create(&thread, NULL, comm_interrupt_on_loss, r);
        if (!comm_lose_rank_1(r, tp, pp))
            return false;
        if (told)
            pthread_join(thread, NULL);
        if (!comm_leaves(r) || !weights_are_whole(r, weights))
            return false;
    }
    RANK_CHECK(r, rank_join(r, 1, tp, pp, NULL));
    if (r->i == 0)
        atomic_store(&r->shared->ready_ns, clock_mono_ns());
    if (r->i == 0)
        RANK_CHECK(r, atomic_load(&r->shared->ready_ns) - atomic_load(&r->shared->killed_ns) <
                          MOST_MS * NS_PER_MS);
    return comm_sum_once(r, tp, 1000, true);
}

bool comm_loss_of_two(struct rank *r)
{
    return lose_and_join(r, 2, 1, false);
}

bool comm_loss_of_two_told(struct rank *r)
{
    return lose_and_join(r, 2, 1, true);
}

bool comm_loss_in_stages(struct rank *r)
{
    return lose_and_join(r, 2, 2, true);
}
