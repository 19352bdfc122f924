/* Runs the blocks of a grid one after the other on the calling host thread; the threads of a
 * block are fibers (switch.h). A fiber runs a thread until the thread must wait. When a thread
 * has ended, its fiber takes the next thread that has not begun, so a kernel without barriers
 * and shuffles runs on one fiber, as a plain loop. A warp continues until all of its lanes wait
 * for other warps. Threads start, and are woken, in ascending order in one block and in
 * descending order in the next. Code that is correct in one order only, because of a missing
 * barrier, therefore fails.
 * launch.h enqueues grids, stream.cpp calls run_grid, and the emulated intrinsics (device.h,
 * ptx.cuh) call meet(), barrier() and the copies. Each host thread owns an engine, which is
 * freed when that thread ends. */
#include "engine.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unordered_set>
#include <vector>

#include "switch.h"

#ifdef __SANITIZE_ADDRESS__
#include <mutex>
#include <sanitizer/asan_interface.h>
#endif

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;

namespace emulate
{
__thread unsigned thread_index;

namespace
{
/* STACK_BYTES is not a power of two; otherwise all stacks would share the same few sets of the
 * caches. */
constexpr size_t STACK_BYTES = (68 << 10) + 128, STACK_CANARY = 0x5bd1e995a7c3f00dull;
constexpr unsigned N_WARPS = MAX_THREADS / WARP, NO_THREAD = MAX_THREADS;
constexpr size_t SHARED_ALIGNMENT = 1024, PREFETCHED_BYTES = 64;
/* HOT marks functions that are called 32 times in every meeting */
#define HOT inline __attribute__((always_inline))

struct fiber {
    void *stack_pointer;
    fiber *next_free;
    char *stack;
};

struct warp {
    uint32_t ready; /* lanes that are ready but not running */
    uint32_t waiting, at_barrier, alive;
    fiber *fibers[WARP]; /* fiber of each lane; null: the lane's thread has not begun */
    uint32_t masks[WARP];
    const warp_call *calls[WARP];
    bool is_mixed; /* whether the waiting lanes wait for different meetings */
    exchange x;
};

struct copy {
    void *to;
    const void *from;
    unsigned n_bytes;
};

struct thread_copies {
    std::vector<copy> copies;
    std::vector<size_t> group_ends;       /* ends of the committed groups, oldest first */
    size_t n_done = 0, n_groups_done = 0; /* numbers of copies and groups that were waited for */
    void clear()
    {
        copies.clear();
        group_ends.clear();
        n_done = n_groups_done = 0;
    }
    void forget_done()
    {
        copies.erase(copies.begin(), copies.begin() + (ptrdiff_t)n_done);
        group_ends.erase(group_ends.begin(), group_ends.begin() + (ptrdiff_t)n_groups_done);
        for (size_t &end : group_ends)
            end -= n_done;
        n_done = n_groups_done = 0;
    }
};

struct engine {
    warp warps[N_WARPS];
    uint32_t ready_warps;
    unsigned n_threads, n_alive, n_at_barrier, n_true;
    barrier_kind kind;
    int barrier_result;
    bool descending, has_copies;
    const grid *g;
    fiber *running, *free_fibers;
    void *caller; /* stack pointer of run_grid */
    unsigned n_fibers;
    fiber fibers[MAX_THREADS];
    uint3 indices[MAX_THREADS]; /* indices of the threads of block_shape */
    dim3 block_shape;
    char *stacks, *shared;
    /* `prefetched` and `reads` are pieces that the block prefetched and read. A thread may read
     * a piece that another thread prefetches later. */
    std::unordered_set<uintptr_t> prefetched;
    std::vector<uintptr_t> reads;
    thread_copies copies[MAX_THREADS];
};

__thread engine *self;

[[noreturn]] void fiber_main();

char *map(size_t n_bytes)
{
    void *ptr = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ptr == MAP_FAILED) {
        perror("emulate: mmap");
        abort();
    }
    return static_cast<char *>(ptr);
}

struct engine_owner { /* engine_owner frees a host thread's engine when the thread ends */
    engine *e = nullptr;
    ~engine_owner()
    {
        if (!e)
            return;
#ifdef __SANITIZE_ADDRESS__
        ASAN_UNPOISON_MEMORY_REGION(e->shared, MAX_SHARED_BYTES + SHARED_ALIGNMENT);
#endif
        munmap(e->stacks, MAX_THREADS * STACK_BYTES);
        munmap(e->shared, MAX_SHARED_BYTES + SHARED_ALIGNMENT);
        delete e;
        self = nullptr;
    }
};

void where_print(const engine *e)
{
    if (e && e->g)
        fprintf(stderr, "\n  in %s, block (%u, %u, %u), thread (%u, %u, %u)", e->g->name,
                blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    fprintf(stderr, "\n");
}

/* Handles the trap of a check that the compiler inserted. Prints the place; the trap then ends
 * the process. */
void on_trap(int number)
{
    signal(number, SIG_DFL);
    fprintf(stderr, "emulate: a trap: an access that is not aligned to its size, or a bug");
    where_print(self);
}

engine *engine_get()
{
    static thread_local engine_owner owner;
    if (!owner.e) {
        owner.e = new engine();
        owner.e->block_shape = dim3(0);
        owner.e->stacks = map(MAX_THREADS * STACK_BYTES);
        owner.e->shared = map(MAX_SHARED_BYTES + SHARED_ALIGNMENT);
        self = owner.e;
        signal(SIGILL, on_trap);
    }
    return owner.e;
}

fiber *fiber_take(engine *e)
{
    if (fiber *f = e->free_fibers) {
        e->free_fibers = f->next_free;
        return f;
    }
    fiber *f = &e->fibers[e->n_fibers];
    f->stack = e->stacks + e->n_fibers++ * STACK_BYTES;
    memcpy(f->stack, &STACK_CANARY, sizeof STACK_CANARY);
    f->stack_pointer = stack_prepare(f->stack, STACK_BYTES, fiber_main);
    return f;
}

HOT unsigned pick_bit(const engine *e, uint32_t bits)
{
    return e->descending ? 31u - (unsigned)__builtin_clz(bits) : (unsigned)__builtin_ctz(bits);
}

/* Returns the next thread to run and removes it from the ready threads. Returns NO_THREAD when
 * no thread is ready. */
HOT unsigned pick(engine *e)
{
    unsigned i_warp = thread_index / WARP;
    if (!e->warps[i_warp].ready) {
        e->ready_warps &= ~(1u << i_warp);
        if (!e->ready_warps)
            return NO_THREAD;
        i_warp = pick_bit(e, e->ready_warps);
    }
    warp *w = &e->warps[i_warp];
    const unsigned lane = pick_bit(e, w->ready);
    w->ready &= ~(1u << lane);
    return i_warp * WARP + lane;
}

HOT void thread_set(engine *e, unsigned thread)
{
    thread_index = thread;
    threadIdx = e->indices[thread];
}

const char *waits_for(const engine *e, unsigned thread)
{
    const warp *w = &e->warps[thread / WARP];
    const uint32_t bit = 1u << thread % WARP;
    return !(w->alive & bit)     ? "has ended"
           : w->at_barrier & bit ? "waits at the block's barrier"
           : !(w->waiting & bit) ? "runs"
                                 : w->calls[thread % WARP]->name;
}

[[noreturn]] void die_of_deadlock(const engine *e)
{
    fprintf(stderr, "emulate: deadlock in %s, block (%u, %u, %u): nobody can go on\n", e->g->name,
            blockIdx.x, blockIdx.y, blockIdx.z);
    unsigned n = 0;
    for (unsigned first = 0, end; first < e->n_threads; first = end) {
        const warp *w = &e->warps[first / WARP];
        const char *what = waits_for(e, first);
        for (end = first + 1; end < e->n_threads && end % WARP && waits_for(e, end) == what; end++)
            ;
        if (n++ < 64)
            fprintf(stderr, "  warp %u, threads %u to %u: %s (mask %08x)\n", first / WARP, first,
                    end - 1, what, w->waiting >> first % WARP & 1 ? w->masks[first % WARP] : 0u);
    }
    abort();
}

/* Switches from the running thread, which is not ready, to the next thread. Returns when the
 * first thread is woken. */
HOT void go_on(engine *e)
{
    const unsigned next = pick(e);
    if (next == NO_THREAD)
        die_of_deadlock(e);
    fiber *from = e->running, *to = e->warps[next / WARP].fibers[next % WARP];
    if (!to)
        to = fiber_take(e);
    thread_set(e, next);
    e->running = to;
    stack_switch(&from->stack_pointer, to->stack_pointer);
}

void barrier_release(engine *e)
{
    e->barrier_result = e->kind == BARRIER_OR    ? e->n_true > 0
                        : e->kind == BARRIER_AND ? e->n_true == e->n_at_barrier
                                                 : (int)e->n_true;
    for (unsigned i = 0; i * WARP < e->n_threads; i++) {
        warp *w = &e->warps[i];
        if (w->at_barrier)
            e->ready_warps |= 1u << i;
        w->ready |= w->at_barrier;
        w->at_barrier = 0;
    }
    e->n_at_barrier = e->n_true = 0;
}

bool is_same_meeting(const warp *w, uint32_t lanes, uint32_t mask, const warp_call *call)
{
    for (; lanes; lanes &= lanes - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(lanes);
        if (w->calls[lane] != call || w->masks[lane] != mask)
            return false;
    }
    return true;
}

/* Runs the meeting of `mask` if all lanes of `mask` that have not left the kernel have arrived. */
HOT bool meeting_run(warp *w, uint32_t mask, const warp_call *call)
{
    const uint32_t lanes = mask & w->alive;
    if (lanes & ~w->waiting || (w->is_mixed && !is_same_meeting(w, lanes, mask, call)))
        return false;
    call->run(&w->x, lanes);
    w->waiting &= ~lanes;
    w->ready |= lanes;
    return true;
}

/* Makes the running lane wait for the meeting, or runs the meeting if this lane is the last. */
HOT void lane_meets(engine *e, warp *w, uint32_t mask, const warp_call *call)
{
    const unsigned lane = thread_index % WARP;
    const uint32_t bit = 1u << lane;
    if (!(mask & bit))
        die("%s: lane %u is not in its own mask %08x", call->name, lane, mask);
    w->masks[lane] = mask;
    w->calls[lane] = call;
    if (!w->waiting) {
        w->is_mixed = false;
    } else if (!w->is_mixed) {
        const unsigned other = (unsigned)__builtin_ctz(w->waiting);
        w->is_mixed = w->calls[other] != call || w->masks[other] != mask;
    }
    w->waiting |= bit;
    if (meeting_run(w, mask, call))
        w->ready &= ~bit;
    else
        go_on(e);
}

void thread_end(engine *e)
{
    warp *w = &e->warps[thread_index / WARP];
    const unsigned lane = thread_index % WARP;
    w->alive &= ~(1u << lane);
    e->n_alive--;
    if (e->has_copies)
        e->copies[thread_index].clear();
    if (e->n_at_barrier && e->n_at_barrier == e->n_alive)
        barrier_release(e);
    for (uint32_t rest = w->waiting; rest; rest &= w->waiting & (rest - 1)) {
        const unsigned first = (unsigned)__builtin_ctz(rest);
        meeting_run(w, w->masks[first], w->calls[first]);
    }
}

[[noreturn]] void fiber_main()
{
    engine *e = self;
    for (;;) { /* the thread thread_index begins here */
        fiber *f = e->running;
        e->warps[thread_index / WARP].fibers[thread_index % WARP] = f;
        e->g->thread(e->g->closure);
        thread_end(e);
        const unsigned next = pick(e);
        if (next != NO_THREAD && !e->warps[next / WARP].fibers[next % WARP]) {
            thread_set(e, next);
            continue;
        }
        if (next == NO_THREAD && e->n_alive)
            die_of_deadlock(e);
        f->next_free = e->free_fibers;
        e->free_fibers = f;
        if (next == NO_THREAD) {
            stack_switch(&f->stack_pointer, e->caller);
            continue;
        }
        e->running = e->warps[next / WARP].fibers[next % WARP];
        thread_set(e, next);
        stack_switch(&f->stack_pointer, e->running->stack_pointer);
    }
}

void indices_make(engine *e, dim3 shape)
{
    if (e->block_shape.x == shape.x && e->block_shape.y == shape.y && e->block_shape.z == shape.z)
        return;
    e->block_shape = shape;
    for (unsigned i = 0; i < shape.x * shape.y * shape.z; i++)
        e->indices[i] = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
}

void prefetches_check(engine *e)
{
    for (size_t i = 0; i < e->reads.size() && !e->prefetched.empty(); i++)
        e->prefetched.erase(e->reads[i]);
    if (!e->prefetched.empty())
        die("%zu pieces were prefetched and never read, one of them at %p", e->prefetched.size(),
            (void *)(*e->prefetched.begin() * PREFETCHED_BYTES));
    e->reads.clear();
}

void run_block(engine *e)
{
    e->n_alive = e->n_threads;
    e->n_at_barrier = e->n_true = 0;
    const unsigned n_warps = (e->n_threads + WARP - 1) / WARP;
    for (unsigned i = 0; i < n_warps; i++) {
        warp *w = &e->warps[i];
        const unsigned n_left = e->n_threads - i * WARP;
        w->alive = w->ready = n_left < WARP ? (1u << n_left) - 1 : ALL_LANES;
        w->waiting = w->at_barrier = 0;
        memset(w->fibers, 0, sizeof w->fibers);
    }
    e->ready_warps = n_warps < WARP ? (1u << n_warps) - 1 : ALL_LANES;
    e->descending = !e->descending;
    memset(e->shared, 0xff, e->g->n_shared_bytes); /* 0xff bytes are NaN in every format */
    thread_index = e->descending ? e->n_threads - 1 : 0;
    thread_set(e, pick(e));
    e->running = fiber_take(e);
    stack_switch(&e->caller, e->running->stack_pointer);
    prefetches_check(e);
}

#ifdef __SANITIZE_ADDRESS__
/* one grid at a time uses __shared__ variables, which belong to the process (device.h) */
std::mutex shared_variables;
#endif
} // namespace

void run_grid(const grid &g)
{
    engine *e = engine_get();
    if (e->g)
        die("a kernel is launched inside a kernel");
#ifdef __SANITIZE_ADDRESS__
    std::lock_guard<std::mutex> lock(shared_variables);
    ASAN_POISON_MEMORY_REGION(e->shared, MAX_SHARED_BYTES + SHARED_ALIGNMENT);
    ASAN_UNPOISON_MEMORY_REGION(e->shared, g.n_shared_bytes);
#endif
    e->g = &g;
    e->has_copies = false;
    e->n_threads = g.n_threads.x * g.n_threads.y * g.n_threads.z;
    indices_make(e, g.n_threads);
    blockDim = g.n_threads;
    gridDim = g.n_blocks;
    for (unsigned z = 0; z < g.n_blocks.z; z++)
        for (unsigned y = 0; y < g.n_blocks.y; y++)
            for (unsigned x = 0; x < g.n_blocks.x; x++) {
                blockIdx = {x, y, z};
                run_block(e);
            }
    for (unsigned i = 0; i < e->n_fibers; i++)
        if (memcmp(e->fibers[i].stack, &STACK_CANARY, sizeof STACK_CANARY) != 0)
            die("a thread's stack grew beyond %zu bytes", STACK_BYTES);
    e->g = nullptr;
}

exchange *warp_exchange()
{
    return &self->warps[thread_index / WARP].x;
}

uint64_t meet(uint32_t mask, const warp_call *call, uint64_t value, uint32_t param)
{
    engine *e = self;
    warp *w = &e->warps[thread_index / WARP];
    const unsigned lane = thread_index % WARP;
    w->x.values[lane] = value;
    w->x.params[lane] = param;
    lane_meets(e, w, mask, call);
    return w->x.results[lane];
}

int barrier(barrier_kind kind, bool predicate)
{
    engine *e = self;
    warp *w = &e->warps[thread_index / WARP];
    const uint32_t bit = 1u << thread_index % WARP;
    if (e->n_at_barrier && e->kind != kind)
        die("the block's threads wait at barriers of two kinds");
    e->kind = kind;
    e->n_true += predicate;
    e->n_at_barrier++;
    w->at_barrier |= bit;
    if (e->n_at_barrier == e->n_alive) {
        barrier_release(e);
        w->ready &= ~bit;
    } else {
        go_on(e);
    }
    return e->barrier_result;
}

uint32_t lanes_alive()
{
    return self->warps[thread_index / WARP].alive;
}

void *dynamic_shared()
{
    return self->shared;
}

void prefetch(const void *ptr)
{
    if (!is_of_device(ptr))
        die("a prefetch of %p, which is no memory of the device", ptr);
    self->prefetched.insert((uintptr_t)ptr / PREFETCHED_BYTES);
}

void prefetch_used(const void *ptr)
{
    self->reads.push_back((uintptr_t)ptr / PREFETCHED_BYTES);
}

/* Begins a copy, whose data arrives with the wait. Until then the destination holds NaN, so that
 * an early read gives NaN. */
void copy_begin(void *to, const void *from, unsigned n_bytes, bool valid)
{
    engine *e = self;
    if ((uintptr_t)to % n_bytes || (valid && (uintptr_t)from % n_bytes))
        die("an asynchronous copy of %u bytes from %p to %p is not aligned", n_bytes, from, to);
    if (valid)
        prefetch_used(from);
    e->has_copies = true;
    e->copies[thread_index].copies.push_back({to, valid ? from : nullptr, n_bytes});
    memset(to, 0xff, n_bytes);
}

void copy_commit()
{
    engine *e = self;
    thread_copies *c = &e->copies[thread_index];
    e->has_copies = true;
    c->group_ends.push_back(c->copies.size());
}

static void copy_end(const copy &k)
{
    if (!k.from)
        memset(k.to, 0, k.n_bytes);
    else if (k.n_bytes == 16)
        memcpy(k.to, k.from, 16);
    else
        memcpy(k.to, k.from, k.n_bytes);
}

void copy_wait(unsigned n_groups_left)
{
    thread_copies *c = &self->copies[thread_index];
    const size_t n_groups = c->group_ends.size();
    if (n_groups - c->n_groups_done <= n_groups_left)
        return;
    c->n_groups_done = n_groups - n_groups_left;
    for (const size_t end = c->group_ends[c->n_groups_done - 1]; c->n_done < end; c->n_done++)
        copy_end(c->copies[c->n_done]);
    if (c->n_groups_done == n_groups && c->n_done == c->copies.size())
        c->clear();
    else if (c->n_done >= 1024)
        c->forget_done();
}

void die(const char *format, ...)
{
    va_list args;
    const engine *e = self;
    fprintf(stderr, "emulate: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    where_print(e);
    abort();
}
} // namespace emulate
