/* Tests the collectives of ranks on GPUs (kernels/cuda/comm/nccl*.c) over the stand-in for NCCL:
 * their results, and their behaviour when a rank is killed. The test runs on a device or on the
 * emulation; several ranks share one device. nccl_test.c tests the real library. Usage:
 * comm_test LIBRARY [CASE] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "kernels/cuda/device/graph.h"
#include "tests/cuda/rig/comm_cases.h"

enum { LEAVE_MS = 400, MOST_MS = 10000 };

/* When the ranks call different collectives, they must get an error, not wrong numbers. */
static bool mismatch(struct rank *r)
{
    struct error err = {0};
    void *device;
    RANK_CHECK(r, rank_join(r, 0, r->n, 1, NULL));
    RANK_TRY(r, gpu_alloc(r->device, 4096, &device, why));
    enum status s = r->comm->ops->sum_floats(r->comm, device, r->i == 0 ? 10 : 11, &err);
    if (s == STATUS_OK)
        s = r->comm->ops->wait(r->comm, NULL, NULL, &err);
    RANK_CHECK(r, s == STATUS_INVALID && strstr(err.text, "different collectives"));
    gpu_release(r->device, device);
    return true;
}

/* ---- recorded collectives ---- */

enum { RECORDED = 3000, REPLAYS = 3 };

struct recorded {
    void *bf16, *floats, *bytes;
    struct gpu_graph *graph;
};

static bool enqueue_all(struct rank *r, const struct recorded *a)
{
    const struct gpu_comm_ops *ops = r->comm->ops;
    RANK_TRY(r, ops->sum_bf16(r->comm, a->bf16, RECORDED, why));
    RANK_TRY(r, ops->sum_floats(r->comm, a->floats, RECORDED, why));
    RANK_TRY(r, ops->broadcast(r->comm, 1, a->bytes, RECORDED, why));
    return true;
}

/* Runs the collectives once, since a first call connects, then records them. */
static bool record(struct rank *r, struct recorded *a)
{
    RANK_TRY(r, gpu_alloc(r->device, 2 * RECORDED, &a->bf16, why));
    RANK_TRY(r, gpu_alloc(r->device, 4 * RECORDED, &a->floats, why));
    RANK_TRY(r, gpu_alloc(r->device, RECORDED, &a->bytes, why));
    if (!enqueue_all(r, a))
        return false;
    RANK_TRY(r, r->comm->ops->wait(r->comm, NULL, NULL, why));
    RANK_TRY(r, gpu_graph_begin(r->stream, why));
    if (!enqueue_all(r, a))
        return false;
    RANK_TRY(r, gpu_graph_end(r->stream, &a->graph, why));
    return true;
}

/* Replays the recording with other numbers in the same memory each time. */
static bool replay(struct rank *r, const struct recorded *a, uint32_t turn)
{
    float floats[RECORDED];
    uint8_t bytes[RECORDED];
    for (uint32_t i = 0; i < RECORDED; i++) {
        floats[i] = (float)(i * (turn + 1) + r->i);
        bytes[i] = (uint8_t)(i + 16 * turn + r->i);
    }
    RANK_TRY(r, gpu_copy_to_device(r->stream, a->floats, floats, sizeof floats, why));
    RANK_TRY(r, gpu_copy_to_device(r->stream, a->bytes, bytes, sizeof bytes, why));
    RANK_TRY(r, gpu_graph_launch(r->stream, a->graph, why));
    RANK_TRY(r, gpu_copy_from_device(r->stream, floats, a->floats, sizeof floats, why));
    RANK_TRY(r, gpu_copy_from_device(r->stream, bytes, a->bytes, sizeof bytes, why));
    RANK_TRY(r, r->comm->ops->wait(r->comm, NULL, NULL, why));
    for (uint32_t i = 0; i < RECORDED; i++) {
        RANK_CHECK(r, floats[i] == (float)(2 * i * (turn + 1) + 1));
        RANK_CHECK(r, bytes[i] == (uint8_t)(i + 16 * turn + 1));
    }
    return true;
}

static void forget(struct rank *r, struct recorded *a)
{
    gpu_graph_free(a->graph);
    gpu_release(r->device, a->bf16);
    gpu_release(r->device, a->floats);
    gpu_release(r->device, a->bytes);
}

static bool recorded(struct rank *r)
{
    struct recorded a = {0};
    RANK_CHECK(r, rank_join(r, 0, 2, 1, NULL));
    if (!record(r, &a))
        return false;
    for (uint32_t turn = 0; turn < REPLAYS; turn++)
        if (!replay(r, &a, turn))
            return false;
    forget(r, &a);
    return true;
}

/* ---- over peer memory ---- */

/* Sums up to the size limit, larger sums, and sums that only NCCL takes, must be right. Either
 * all ranks use one-shot sums or none does. */
static bool one_shot_sums(struct rank *r)
{
    RANK_CHECK(r, rank_join(r, 0, r->n, 1, NULL));
    const size_t most = r->comm->one_shot_bytes / 2, sizes[] = {8, 1001, 65536, most, most + 8};
    RANK_CHECK(r, most >= 65536);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!comm_sum_once(r, r->n, sizes[i], true))
            return false;
    return comm_sum_once(r, r->n, 4096, false);
}

static bool one_shot_in_stages(struct rank *r)
{
    RANK_CHECK(r, rank_join(r, 0, 2, 2, NULL));
    RANK_CHECK(r, r->comm->one_shot_bytes > 0);
    return comm_sum_once(r, 2, 5000, true);
}

static bool refused_by_one(struct rank *r)
{
    RANK_CHECK(r, rank_join(r, 0, r->n, 1, NULL));
    RANK_CHECK(r, r->comm->one_shot_bytes == 0 && r->comm->one_shot_why[0] != '\0');
    return comm_sum_once(r, r->n, 4096, true);
}

/* ---- interrupts and deadlines ---- */

static void *interrupt_soon(void *arg)
{
    struct rank *r = arg;
    usleep(50000);
    r->comm->ops->interrupt(r->comm);
    return NULL;
}

/* An interrupt must end a join that waits. The peer joins only the second group. */
static bool interrupted_join(struct rank *r)
{
    struct error err = {0};
    pthread_t thread;
    if (r->i == 0) {
        pthread_create(&thread, NULL, interrupt_soon, r);
        RANK_CHECK(r, !rank_join(r, 0, 2, 1, &err) && err.status == STATUS_CLOSED);
        RANK_CHECK(r, !rank_join(r, 1, 2, 1, &err) && err.status == STATUS_CLOSED);
        pthread_join(thread, NULL);
        if (!comm_leaves(r))
            return false;
    }
    RANK_CHECK(r, rank_join(r, 2, 2, 1, NULL));
    return comm_sum_once(r, 2, 100, false);
}

/* The second group's id exists at once, so that rank 1 waits in that group. The time limit of
 * rank 0 then covers rank 0's own work, not the delay of a peer on a busy machine. */
static bool late_join(struct rank *r)
{
    struct error err = {0};
    uint8_t id[GPU_COMM_ID_BYTES];
    if (r->i == 0) {
        if (!rank_id(r, 1, id))
            return false;
        RANK_CHECK(r, !rank_join(r, 0, 2, 1, &err) && err.status == STATUS_TIMEOUT);
        if (!comm_leaves(r))
            return false;
    }
    err = (struct error){0};
    bool joined = rank_join(r, 1, 2, 1, &err);
    if (!rank_is(r, __LINE__, joined, "join the second group", &err))
        return false;
    return comm_sum_once(r, 2, 100, false);
}

static enum status never(void *ctx, struct error *err)
{
    return STATUS_AGAIN;
}

static bool waits(struct rank *r)
{
    struct error err = {0};
    pthread_t thread;
    RANK_CHECK(r, rank_join(r, 0, 2, 1, NULL));
    RANK_CHECK(r, !rank_join(r, 1, 2, 1, &err) && err.status == STATUS_INVALID);
    RANK_CHECK(r, r->comm->ops->wait(r->comm, never, NULL, &err) == STATUS_TIMEOUT);
    if (!comm_sum_once(r, 2, 10, false))
        return false;
    pthread_create(&thread, NULL, interrupt_soon, r);
    RANK_CHECK(r, r->comm->ops->wait(r->comm, never, NULL, &err) == STATUS_CLOSED);
    pthread_join(thread, NULL);
    RANK_CHECK(r, r->comm->ops->sum_floats(r->comm, NULL, 1, &err) == STATUS_CLOSED);
    return true;
}

/* ---- loss ---- */

/* A recording must be dropped when the stream has ended, before the group is left. */
static bool loss_of_recorded(struct rank *r)
{
    struct recorded a = {0};
    struct error err = {0};
    pthread_t thread;
    if (atomic_load(&r->shared->at[1]) != 2) {
        pthread_create(&thread, NULL, comm_interrupt_on_loss, r);
        RANK_CHECK(r, rank_join(r, 0, 2, 1, NULL));
        if (!record(r, &a) || !replay(r, &a, 0))
            return false;
        if (r->i == 1) {
            atomic_store(&r->shared->at[1], 1);
            pause();
        }
        RANK_TRY(r, gpu_graph_launch(r->stream, a.graph, why));
        enum status s = r->comm->ops->wait(r->comm, NULL, NULL, &err);
        RANK_CHECK(r, s == STATUS_IO || s == STATUS_CLOSED);
        RANK_CHECK(r, r->comm->ops->drain(r->comm, &err) == GPU_COMM_LEFT);
        forget(r, &a);
        pthread_join(thread, NULL);
        if (!comm_leaves(r))
            return false;
    }
    RANK_CHECK(r, rank_join(r, 1, 2, 1, NULL));
    if (!record(r, &a) || !replay(r, &a, 1))
        return false;
    forget(r, &a);
    return true;
}

/* When NCCL hangs and even an abort does not return, the process must exit, and `overdue` must
 * report that in time. */
static bool idle_hang(struct rank *r)
{
    uint32_t ms;
    struct error err = {0};
    if (atomic_load(&r->shared->at[1]) == 2)
        _exit(0);
    RANK_CHECK(r, rank_join(r, 0, 2, 1, NULL));
    if (r->i == 1) {
        atomic_store(&r->shared->at[1], 1);
        pause();
    }
    while (!atomic_load(&r->shared->killed))
        usleep(1000);
    RANK_CHECK(r, r->comm->ops->leave(r->comm, &ms, &err) == GPU_COMM_STUCK);
    RANK_CHECK(r, ms >= LEAVE_MS && ms < MOST_MS);
    /* the test waits until the abort is overdue or the alarm ends it */
    while (!r->comm->ops->overdue(r->comm))
        usleep(1000);
    _exit(0);
}

/* Polls `overdue`, as the event loop's thread of a worker does while the compute thread may be
 * stuck. */
static void *end_when_overdue(void *arg)
{
    struct rank *r = comm_interrupt_on_loss(arg) ? NULL : arg;
    while (r && !r->comm->ops->overdue(r->comm))
        usleep(1000);
    _exit(0);
    return NULL;
}

static bool busy_hang(struct rank *r)
{
    uint32_t ms;
    struct error err = {0};
    pthread_t thread;
    if (atomic_load(&r->shared->at[1]) == 2)
        _exit(0);
    pthread_create(&thread, NULL, end_when_overdue, r);
    if (!comm_lose_rank_1(r, 2, 1))
        return false;
    RANK_CHECK(r, r->comm->ops->leave(r->comm, &ms, &err) == GPU_COMM_STUCK);
    _exit(0);
}

/* ---- the library ---- */

static bool library_is(struct rank *r, const char *library, const char *version, const char *text)
{
    struct gpu_comm *c;
    struct error err = {0};
    struct gpu_comm_options o = r->options;
    if (version)
        setenv("FAKENCCL_VERSION", version, 1);
    if (library)
        o.library = library;
    enum status s = gpu_comm_open(&o, &c, &err);
    return rank_is(r, __LINE__, s == STATUS_UNSUPPORTED && !c && strstr(err.text, text), text,
                   &err);
}

static bool libraries(struct rank *r)
{
    struct error err = {0};
    const struct gpu_comm_group g = {.tp = 1, .pp = 1, .id = (const uint8_t *)"x", .n_id = 1};
    RANK_CHECK(r, r->comm->ops->join(r->comm, &g, &err) == STATUS_INVALID);
    RANK_CHECK(r, strstr(r->comm->ops->describe(r->comm), "NCCL 2.28.9"));
    return library_is(r, "libm.so.6", NULL, "lacks the function ncclGetVersion") &&
           library_is(r, "libnowhere.so", NULL, "libnowhere.so") &&
           library_is(r, NULL, "21701", "is NCCL 2.17");
}

/* ---- cases ---- */

static const struct ranks_case cases[] = {
    {.name = "libraries", .n = 1, .fn = libraries},
    {.name = "sums of one", .n = 1, .fn = comm_sums},
    {.name = "sums of two", .n = 2, .fn = comm_sums},
    {.name = "sums of four", .n = 4, .fn = comm_sums},
    {.name = "sums of eight", .n = 8, .fn = comm_sums},
    {.name = "columns of two", .n = 2, .fn = comm_gathers},
    {.name = "columns of four", .n = 4, .fn = comm_gathers},
    {.name = "columns of eight", .n = 8, .fn = comm_gathers},
    {.name = "broadcasts", .n = 4, .fn = comm_broadcasts},
    {.name = "two stages of two", .n = 4, .fn = comm_stages_of_two},
    {.name = "recorded and replayed", .n = 2, .fn = recorded},
    {.name = "other sizes", .n = 2, .fn = mismatch},
    {.name = "an interrupted join", .n = 2, .fn = interrupted_join},
    {.name = "a join that nobody comes to",
     .n = 2,
     .fn = late_join,
     .only_0_gives_up = true,
     .options = {.join_timeout_ms = 2000}},
    {.name = "waits that end", .n = 2, .fn = waits, .options = {.wait_timeout_ms = 2000}},
    {.name = "a rank killed", .n = 2, .fn = comm_loss_of_two, .kills = true},
    {.name = "killed, kernels that spin",
     .n = 2,
     .fn = comm_loss_of_two_told,
     .loss = "spin",
     .kills = true},
    {.name = "killed, in two stages",
     .n = 4,
     .fn = comm_loss_in_stages,
     .loss = "spin",
     .kills = true},
    {.name = "killed, before grouped aborts",
     .n = 4,
     .fn = comm_loss_in_stages,
     .loss = "spin",
     .version = "21903",
     .kills = true},
    {.name = "killed, in a replay", .n = 2, .fn = loss_of_recorded, .loss = "spin", .kills = true},
    {.name = "one-shot sums of two", .n = 2, .fn = one_shot_sums, .one_shot = true},
    {.name = "one-shot sums of four", .n = 4, .fn = one_shot_sums, .one_shot = true},
    {.name = "one-shot sums of eight", .n = 8, .fn = one_shot_sums, .one_shot = true},
    {.name = "one-shot sums in two stages", .n = 4, .fn = one_shot_in_stages, .one_shot = true},
    {.name = "one-shot sums, recorded", .n = 2, .fn = recorded, .one_shot = true},
    {.name = "one-shot sums, off on one rank",
     .n = 4,
     .fn = refused_by_one,
     .one_shot = true,
     .off_on_1 = true},
    {.name = "one-shot sums, a rank killed",
     .n = 2,
     .fn = comm_loss_of_two,
     .one_shot = true,
     .kills = true},
    {.name = "one-shot sums, killed and told",
     .n = 2,
     .fn = comm_loss_of_two_told,
     .loss = "spin",
     .one_shot = true,
     .kills = true},
    {.name = "one-shot sums, killed in stages",
     .n = 4,
     .fn = comm_loss_in_stages,
     .loss = "spin",
     .one_shot = true,
     .kills = true},
    {.name = "one-shot sums, killed in a replay",
     .n = 2,
     .fn = loss_of_recorded,
     .loss = "spin",
     .one_shot = true,
     .kills = true},
    {.name = "killed, an abort that hangs",
     .n = 2,
     .fn = idle_hang,
     .loss = "hang",
     .kills = true,
     .options = {.leave_timeout_ms = LEAVE_MS}},
    {.name = "killed, a sum that hangs",
     .n = 2,
     .fn = busy_hang,
     .loss = "hang",
     .kills = true,
     .options = {.leave_timeout_ms = LEAVE_MS}},
};

/* `emulated_cases` are the cases that only the emulation runs. */
static const struct ranks_case emulated_cases[] = {
    {.name = "one-shot sums, no memory is opened",
     .n = 2,
     .fn = refused_by_one,
     .one_shot = true,
     .lacks = "COX_EMULATE_NO_IPC=1"},
    {.name = "one-shot sums, no memory is there",
     .n = 2,
     .fn = refused_by_one,
     .one_shot = true,
     .lacks = "COX_EMULATE_FAIL_ALLOC=2"},
};

/* Finds the library beside the program. */
static void find_library(bool emulated, char *buf, size_t size)
{
    const char *name = emulated ? "libfakenccl_emulated.so" : "libfakenccl.so";
    ssize_t n = readlink("/proc/self/exe", buf, size - 1);
    buf[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(buf, '/');
    size_t at = slash ? (size_t)(slash + 1 - buf) : 0;
    snprintf(buf + at, size - at, "%s", name);
}

static bool run_cases(const struct ranks_case *all, size_t n, const char *name, const char *library)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        struct ranks_case c = all[i];
        c.options.library = library;
        if (!name || strcmp(name, c.name) == 0)
            ok = ranks_run(&c) && ok;
    }
    return ok;
}

int main(int argc, char **argv)
{
    char library[4096];
    bool emulated = argc > 1 && strcmp(argv[1], "--small") == 0;
    find_library(emulated, library, sizeof library);
    argc -= emulated;
    argv += emulated;
    if (comm_devices() == 0)
        return 77;
    const char *name = argc > 1 ? argv[1] : NULL;
    bool ok = run_cases(cases, sizeof cases / sizeof cases[0], name, library);
    if (emulated)
        ok = run_cases(emulated_cases, sizeof emulated_cases / sizeof emulated_cases[0], name,
                       library) &&
             ok;
    return ok ? 0 : 1;
}
