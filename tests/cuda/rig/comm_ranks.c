#include "tests/cuda/rig/comm_ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { CASE_SECONDS = 60 };

bool rank_is(struct rank *r, int line, bool holds, const char *what, const struct error *err)
{
    if (!holds)
        fprintf(stderr, "line %d: rank %u of %u: %s: %s\n", line, r->i, r->n, what,
                err ? err->text : "no");
    return holds;
}

bool rank_id(struct rank *r, uint32_t epoch, uint8_t out[GPU_COMM_ID_BYTES])
{
    struct ranks_shared *s = r->shared;
    if (r->i == 0 && !atomic_load(&s->has_id[epoch])) {
        RANK_TRY(r, r->comm->ops->make_id(r->comm, s->ids[epoch], why));
        atomic_store(&s->has_id[epoch], 1);
    }
    while (!atomic_load(&s->has_id[epoch]))
        usleep(100);
    memcpy(out, s->ids[epoch], GPU_COMM_ID_BYTES);
    return true;
}

bool rank_join(struct rank *r, uint32_t epoch, uint32_t tp, uint32_t pp, struct error *err)
{
    uint8_t id[GPU_COMM_ID_BYTES];
    if (!rank_id(r, epoch, id))
        return false;
    const struct gpu_comm_group g = {
        .tp = tp, .pp = pp, .rank = r->i % tp, .stage = r->i / tp, .id = id, .n_id = sizeof id};
    return r->comm->ops->join(r->comm, &g, err) == STATUS_OK;
}

static bool rank_main(const struct ranks_case *c, struct ranks_shared *shared, uint32_t i)
{
    struct rank r = {
        .shared = shared, .i = i, .n = c->n, .options = c->options, .any_order = c->any_order};
    RANK_TRY(&r, gpu_device_open(c->devices_of_their_own ? i : 0, &r.device, why));
    RANK_TRY(&r, gpu_stream_new(r.device, &r.stream, why));
    r.options.stream = r.stream;
    if (c->only_0_gives_up && i > 0)
        r.options.join_timeout_ms = 0;
    r.options.no_one_shot = !c->one_shot || (c->off_on_1 && i == 1);
    RANK_TRY(&r, gpu_comm_open(&r.options, &r.comm, why));
    bool ok = c->fn(&r);
    /* A rank that exits counts as lost for ranks that still wait for data, so all ranks wait
     * here. */
    atomic_fetch_add(&shared->n_done, 1);
    while (ok && atomic_load(&shared->n_done) < c->n)
        usleep(100);
    uint32_t ms;
    struct error err = {0};
    if (ok && r.comm)
        ok = rank_is(&r, __LINE__, r.comm->ops->leave(r.comm, &ms, &err) == GPU_COMM_LEFT, "leave",
                     &err);
    if (ok && r.comm)
        r.comm->ops->close(r.comm);
    gpu_stream_free(r.stream);
    gpu_device_close(r.device);
    return ok;
}

static pid_t start_rank(const struct ranks_case *c, struct ranks_shared *shared, uint32_t i)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    alarm(CASE_SECONDS); /* the alarm ends a rank that waits for ever, which is a failure */
    if (c->loss)
        setenv("FAKENCCL_LOSS", c->loss, 1);
    if (c->version)
        setenv("FAKENCCL_VERSION", c->version, 1);
    if (c->lacks && i == 1)
        putenv((char *)c->lacks);
    bool ok = rank_main(c, shared, i);
    fflush(stdout);
    _exit(ok ? 0 : 1);
}

/* Acts as the supervisor of rank 1: kills and restarts the rank. */
static bool kill_and_restart(const struct ranks_case *c, struct ranks_shared *shared, pid_t *pid)
{
    int status;
    while (atomic_load(&shared->at[1]) != 1) {
        if (waitpid(*pid, &status, WNOHANG) != 0)
            return false;
        usleep(100);
    }
    usleep(20000); /* the delay lets the other ranks enter the collective that waits for rank 1 */
    kill(*pid, SIGKILL);
    atomic_store(&shared->killed_ns, clock_mono_ns());
    waitpid(*pid, &status, 0);
    atomic_store(&shared->killed, 1);
    atomic_store(&shared->at[1], 2);
    *pid = start_rank(c, shared, 1);
    return true;
}

bool ranks_run(const struct ranks_case *c)
{
    pid_t pids[RANKS_MAX];
    struct ranks_shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    for (uint32_t i = 0; i < c->n; i++)
        pids[i] = start_rank(c, shared, i);
    bool ok = !c->kills || kill_and_restart(c, shared, &pids[1]);
    for (uint32_t i = 0; i < c->n; i++) {
        int status = 0;
        waitpid(pids[i], &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "%s: rank %u ended with status %#x\n", c->name, i, (unsigned)status);
            ok = false;
        }
    }
    printf("%-34s %s", c->name, ok ? "ok" : "FAILED");
    uint64_t killed = atomic_load(&shared->killed_ns), ready = atomic_load(&shared->ready_ns);
    if (killed && ready)
        printf("   %.0f ms from the kill to the new group",
               (double)(ready - killed) / (double)NS_PER_MS);
    printf("\n");
    munmap(shared, sizeof *shared);
    return ok;
}
