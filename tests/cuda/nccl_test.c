/* Tests the collectives of ranks on GPUs over the real NCCL: one rank, and two, four and eight
 * ranks if there are as many devices (one process each). NCCL may add in any order. In the last
 * cases rank 1 is killed during a sum. Usage: nccl_test [LIBRARY] */
#include <stdio.h>
#include <unistd.h>

#include "tests/cuda/rig/comm_cases.h"

/* An object that has left its group must be able to join another group. */
static bool again(struct rank *r)
{
    uint32_t ms;
    struct error err = {0};
    RANK_CHECK(r, rank_join(r, 0, r->n, 1, NULL));
    if (!comm_sum_once(r, r->n, 1000, true))
        return false;
    RANK_CHECK(r, r->comm->ops->leave(r->comm, &ms, &err) == GPU_COMM_LEFT);
    RANK_CHECK(r, rank_join(r, 1, r->n, 1, NULL));
    return comm_sum_once(r, r->n, 1000, false);
}

static bool joins_alone(struct rank *r)
{
    struct error err = {0};
    uint32_t ms;
    if (r->i == 0) {
        r->comm->ops->interrupt(r->comm);
        RANK_CHECK(r, !rank_join(r, 0, r->n, 1, &err) && err.status == STATUS_CLOSED);
        RANK_CHECK(r, r->comm->ops->leave(r->comm, &ms, &err) == GPU_COMM_LEFT);
    }
    RANK_CHECK(r, rank_join(r, 1, r->n, 1, NULL));
    return true;
}

static const struct ranks_case cases[] = {
    {.name = "NCCL: sums of one", .n = 1, .fn = comm_sums},
    {.name = "NCCL: a broadcast to oneself", .n = 1, .fn = comm_broadcasts},
    {.name = "NCCL: left and joined", .n = 1, .fn = again},
    {.name = "NCCL: interrupted", .n = 1, .fn = joins_alone},
    {.name = "NCCL: sums of two", .n = 2, .fn = comm_sums},
    {.name = "NCCL: columns of two", .n = 2, .fn = comm_gathers},
    {.name = "NCCL: left and joined by two", .n = 2, .fn = again},
    {.name = "NCCL: one-shot sums of two", .n = 2, .fn = comm_sums, .one_shot = true},
    {.name = "NCCL: one-shot, left and joined", .n = 2, .fn = again, .one_shot = true},
    {.name = "NCCL: one-shot sums of four", .n = 4, .fn = comm_sums, .one_shot = true},
    {.name = "NCCL: sums of four", .n = 4, .fn = comm_sums},
    {.name = "NCCL: broadcasts", .n = 4, .fn = comm_broadcasts},
    {.name = "NCCL: two stages of two", .n = 4, .fn = comm_stages_of_two},
    {.name = "NCCL: sums of eight", .n = 8, .fn = comm_sums},
    {.name = "NCCL: one-shot sums of eight", .n = 8, .fn = comm_sums, .one_shot = true},
    {.name = "NCCL: killed and told", .n = 2, .fn = comm_loss_of_two_told, .kills = true},
    {.name = "NCCL: one-shot, killed and told",
     .n = 2,
     .fn = comm_loss_of_two_told,
     .one_shot = true,
     .kills = true},
    {.name = "NCCL: killed in two stages", .n = 4, .fn = comm_loss_in_stages, .kills = true},
};

/* Loading the library must need no device. */
static bool loads(const char *library)
{
    const struct gpu_comm_options o = {.library = library};
    uint8_t id[GPU_COMM_ID_BYTES];
    struct gpu_comm *c;
    struct error err = {0};
    bool ok = gpu_comm_open(&o, &c, &err) == STATUS_OK;
    if (ok)
        ok = c->ops->make_id(c, id, &err) == STATUS_OK;
    printf("%-34s %s %s\n", "NCCL: loaded, an id made", ok ? "ok  " : "FAILED",
           ok ? c->ops->describe(c) : err.text);
    if (c)
        c->ops->close(c);
    return ok;
}

int main(int argc, char **argv)
{
    bool ok = loads(argc > 1 ? argv[1] : NULL);
    uint32_t n_devices = comm_devices();
    if (n_devices == 0)
        return ok ? 77 : 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ranks_case c = cases[i];
        c.options.library = argc > 1 ? argv[1] : NULL;
        c.devices_of_their_own = c.any_order = true;
        if (c.n <= n_devices)
            ok = ranks_run(&c) && ok;
        else
            printf("%-34s needs %u devices, here are %u\n", c.name, c.n, n_devices);
    }
    return ok ? 0 : 1;
}
