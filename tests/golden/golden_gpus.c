/* Runs ranks on GPUs in processes. The processes share memory with counters, the communicators'
 * id, and a buffer of logits. A process that waits for a failed process ends with it. */
#include "tests/golden/golden_gpus.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "tests/golden/golden_file.h"
#include "worker/collectives/gpu.h"
#include "worker/runner/record.h"

/* SHARED_FLOATS is the size of the buffer of logits: more than 16 rows of the largest
 * vocabulary. */
enum { SHARED_FLOATS = 8 << 20 };

/* `area` is the memory that all processes share. */
struct area {
    /* for each rank, the number of meetings at which it has arrived */
    _Atomic uint64_t arrived[COMM_MAX_RANKS];
    uint8_t id[GPU_COMM_ID_BYTES];
    float floats[SHARED_FLOATS];
};

struct golden_gpus {
    struct collectives_gpu *gpus;
};

static struct area *area;
static struct comm_place place = {.tp = 1, .pp = 1};
static uint64_t turn;
static const char *library;
static const struct device *device;
static pid_t children[COMM_MAX_RANKS];

static void meet(void)
{
    const uint32_t n = comm_place_world(&place);
    atomic_store(&area->arrived[comm_place_position(&place)], ++turn);
    for (uint32_t r = 0; r < n; r++)
        while (atomic_load(&area->arrived[r]) < turn)
            usleep(50);
}

/* Handles the end of a child. A child that ends before golden_gpus_end has failed. The other
 * processes would wait for it, so the parent ends. */
static void on_child(int number)
{
    static const char text[] = "a rank has failed\n";
    int status;
    while (waitpid(-1, &status, WNOHANG) > 0)
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            (void)!write(STDERR_FILENO, text, sizeof text - 1);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
}

static void become(uint32_t position)
{
    place.rank = position % place.tp;
    place.stage = position / place.tp;
    (void)signal(SIGCHLD, SIG_DFL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!freopen("/dev/null", "w", stdout))
        _exit(1);
}

void golden_gpus_fork(uint32_t tp, uint32_t pp, const char *nccl)
{
    place = (struct comm_place){.tp = tp, .pp = pp};
    library = nccl;
    if (comm_place_world(&place) > COMM_MAX_RANKS)
        golden_die("--tp %u --pp %u: at most %u ranks", tp, pp, (unsigned)COMM_MAX_RANKS);
    area = mmap(NULL, sizeof *area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        golden_die("no memory between the ranks");
    (void)signal(SIGCHLD, on_child);
    fflush(stdout);
    for (uint32_t i = 1; i < comm_place_world(&place); i++) {
        children[i] = fork();
        if (children[i] < 0)
            golden_die("rank %u: no process", i);
        if (children[i] == 0) {
            become(i);
            return;
        }
    }
}

uint32_t golden_gpus_position(void)
{
    return comm_place_position(&place);
}

struct comm_place golden_gpus_place(void)
{
    return place;
}

void golden_gpus_use(struct device *d)
{
    device = d;
}

bool golden_gpus_has(const struct device *d)
{
    return d && d == device && comm_place_world(&place) > 1;
}

/* Ends the processes. All processes meet first. After that, the failure of one process does not
 * block another. */
int golden_gpus_end(int status)
{
    if (comm_place_world(&place) == 1)
        return status;
    meet();
    if (comm_place_position(&place) > 0)
        _exit(0);
    (void)signal(SIGCHLD, SIG_DFL);
    for (uint32_t i = 1; i < comm_place_world(&place); i++)
        (void)waitpid(children[i], NULL, 0);
    return status;
}

/* ---- ranks ---- */

enum status golden_gpus_open(struct golden_gpus **out, struct error *err)
{
    struct golden_gpus *g = mem_zalloc(sizeof *g);
    const struct collectives_gpu_options o = {.device = (struct device *)(uintptr_t)device,
                                              .library = library};
    enum status s = collectives_gpu_open(&o, &g->gpus, err);
    if (s != STATUS_OK) {
        mem_free(g);
        return s;
    }
    *out = g;
    return STATUS_OK;
}

struct collectives *golden_gpus_collectives(struct golden_gpus *g)
{
    return collectives_gpu_base(g->gpus);
}

enum status golden_gpus_join(struct golden_gpus *g, struct error *err)
{
    if (comm_place_position(&place) == 0)
        TRY(collectives_gpu_make_id(g->gpus, area->id, err));
    meet();
    return collectives_gpu_join(g->gpus, &place, (struct bytes){area->id, sizeof area->id}, err);
}

/* Gives the logits to all processes. Before the first meeting no process writes, because others
 * may still read the last turn's data. After the second meeting all may read. */
float *golden_gpus_share(const float *own, size_t n)
{
    if (n > SHARED_FLOATS)
        golden_die("%zu logits at once: there is room for %u", n, (unsigned)SHARED_FLOATS);
    meet();
    if (own)
        memcpy(area->floats, own, n * sizeof *own);
    meet();
    return area->floats;
}

void golden_gpus_leave(struct golden_gpus *g, struct engine *e)
{
    struct error err = {0};
    if (!g)
        return;
    meet(); /* ranks that are not done would lose a rank that left early */
    if (collectives_gpu_drain(g->gpus) && e)
        runner_drop_records(e->runner);
    if (collectives_gpu_leave(g->gpus, &err) != STATUS_OK)
        golden_die("%s", err.text);
    collectives_gpu_close(g->gpus);
    mem_free(g);
}
