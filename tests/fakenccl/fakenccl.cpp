/* Implements a stand-in for libnccl, for tests; it is never installed. It has the calls that
 * kernels/cuda/comm/nccl*.c makes, for ranks that are processes of one host, on one device or on
 * its emulation. Data is sent through shared memory (shared.h) in three steps: copies to the
 * host, a host function in the stream, copies back. The data therefore moves in the stream's
 * order and can be captured. Sums are added in the order of ranks, in float.
 *
 * A killed peer is detected by its pidfd. FAKENCCL_LOSS sets the consequence:
 *   error  (default) the communicator has an error, and work that waits for the peer ends
 *   spin   the communicator has an error, and waiting work ends only with an abort, as kernels do
 *   hang   no error is reported, nothing ends, and ncclCommAbort does not return
 * FAKENCCL_VERSION sets the result of ncclGetVersion. */
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
#include "kernels/cuda/comm/nccl_api.h"
}

#include "tests/fakenccl/shared.h"

#ifndef CUDART_CB
#define CUDART_CB
#endif

namespace
{
enum loss { LOSS_ERROR, LOSS_SPIN, LOSS_HANG };
constexpr size_t STAGING_BYTES = 1 << 20;
/* LOOK_EVERY is the number of naps between two checks of the peers. */
constexpr unsigned SPINS = 2000, NAP_US = 50, LOOK_EVERY = 20;
constexpr int PRETENDED = 3; /* number of times that a first call reports "in progress" */

std::string last_error;

loss loss_mode()
{
    const char *v = getenv("FAKENCCL_LOSS");
    return !v                   ? LOSS_ERROR
           : !strcmp(v, "spin") ? LOSS_SPIN
           : !strcmp(v, "hang") ? LOSS_HANG
                                : LOSS_ERROR;
}

/* `state` outlives an abort, because captured host functions hold it. */
struct state {
    std::string name;
    int rank = 0, n = 0;
    shared *at = nullptr;
    int pidfds[MAX_RANKS];
    uint8_t *staging = nullptr; /* host memory of the runtime, for the stream's copies */
    std::atomic<int> async{NCCL_IN_PROGRESS};
    std::atomic<int> pretended{0};
    std::atomic<bool> peer_lost{false};
    /* shared with communicators that were split off from this one */
    std::shared_ptr<std::atomic<bool>> aborted;
    std::atomic<bool> running{false};
    bool used = false;
    uint64_t turn = 0; /* number of the collective; host functions run one after the other */
    uint64_t n_splits = 0;

    state()
    {
        for (int &fd : pidfds)
            fd = -1;
    }
    ~state()
    {
        for (int fd : pidfds)
            if (fd >= 0)
                close(fd);
        if (at)
            munmap(at, sizeof *at);
        if (staging)
            (void)cudaFreeHost(staging);
    }
};

bool look_for_lost_peers(state &s)
{
    for (int r = 0; r < s.n && !s.peer_lost; r++) {
        pollfd p = {s.pidfds[r], POLLIN, 0};
        if (p.fd >= 0 && poll(&p, 1, 0) == 1)
            s.peer_lost = true;
    }
    return s.peer_lost;
}

/* Waits until the condition is true. Returns false when it can never become true. */
template <class Condition> bool await(state &s, Condition holds)
{
    for (unsigned n = 0; !holds(); n++) {
        if (n < SPINS)
            continue;
        if (n % LOOK_EVERY == 0 && look_for_lost_peers(s) && loss_mode() != LOSS_HANG) {
            s.async = NCCL_REMOTE_ERROR;
            if (loss_mode() == LOSS_ERROR)
                return false;
        }
        if (*s.aborted && !(s.peer_lost && loss_mode() == LOSS_HANG))
            return false;
        usleep(NAP_US);
    }
    return true;
}

bool all_ranks(const state &s, const std::atomic<uint64_t> *counts, uint64_t at_least)
{
    for (int r = 0; r < s.n; r++)
        if (counts[r] < at_least)
            return false;
    return true;
}

void fail(state &s, int result, const char *text)
{
    last_error = text;
    s.async = result;
}

/* ---- forming a group ---- */

int open_pidfd(int pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Attaches to the group's shared memory. The first rank creates it; the last one removes its
 * name. */
bool attach(state &s)
{
    int fd = shm_open(s.name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(shared)) != 0) {
        fail(s, NCCL_UNHANDLED_CUDA_ERROR, "shm_open failed");
        return false;
    }
    void *at = mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) {
        fail(s, NCCL_UNHANDLED_CUDA_ERROR, "mmap failed");
        return false;
    }
    s.at = static_cast<shared *>(at);
    s.at->pids[s.rank] = (int)getpid();
    s.at->n_attached++;
    bool all = await(s, [&] { return (int)s.at->n_attached >= s.n; });
    shm_unlink(s.name.c_str());
    for (int r = 0; all && r < s.n; r++)
        if (r != s.rank)
            s.pidfds[r] = open_pidfd(s.at->pids[r]);
    return all;
}

std::shared_ptr<state> make_state(const std::string &name, int rank, int n,
                                  std::shared_ptr<std::atomic<bool>> aborted)
{
    auto s = std::make_shared<state>();
    void *staging = nullptr;
    s->name = name;
    s->rank = rank;
    s->n = n;
    s->aborted = aborted;
    if (cudaMallocHost(&staging, STAGING_BYTES) != cudaSuccess)
        return nullptr;
    s->staging = static_cast<uint8_t *>(staging);
    return s;
}
} // namespace

struct nccl_native {
    std::shared_ptr<state> s;
    std::thread work; /* runs the call that is in progress */
    cudaStream_t stream = nullptr;
};

namespace
{
thread_local int group_depth;
thread_local std::vector<nccl_native *> group_aborts;

/* Returns the number of members of `color`. *rank is this rank's place in the order of the
 * members' keys. */
int find_members(const state &s, uint64_t turn, int color, int *rank)
{
    int n = 0, own = s.rank;
    *rank = 0;
    for (int r = 0; r < s.n; r++) {
        const shared::split &p = s.at->splits[turn % 2][r], &me = s.at->splits[turn % 2][own];
        if (p.color != color)
            continue;
        n++;
        *rank += p.key < me.key || (p.key == me.key && r < own);
    }
    return n;
}

void split(nccl_native *parent, int color, int key, nccl_native **out)
{
    state &s = *parent->s;
    uint64_t turn = ++s.n_splits;
    shared::split &own = s.at->splits[turn % 2][s.rank];
    int rank;
    own.color = color;
    own.key = key;
    s.at->split_turns[s.rank] = turn;
    if (!await(s, [&] { return all_ranks(s, s.at->split_turns, turn); }))
        return;
    int n = find_members(s, turn, color, &rank);
    if (color >= 0) {
        auto name = s.name + "-" + std::to_string(turn) + "-" + std::to_string(color);
        auto child = make_state(name, rank, n, s.aborted);
        if (!child || !attach(*child))
            return;
        child->async = NCCL_SUCCESS;
        *out = new nccl_native;
        (*out)->s = child;
    }
    int in_progress = NCCL_IN_PROGRESS;
    s.async.compare_exchange_strong(in_progress, NCCL_SUCCESS);
}

/* ---- collectives, in rounds that fit the staging area ---- */

struct round {
    std::shared_ptr<state> s;
    enum kind { SUM, BROADCAST } kind;
    size_t n_bytes;
    int type, root;
    bool captured;
};

float to_float(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t to_bfloat16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T, class Read, class Write>
void add_slots(state &s, size_t n_bytes, Read read, Write write)
{
    T *out = reinterpret_cast<T *>(s.staging);
    for (size_t i = 0; i < n_bytes / sizeof(T); i++) {
        float sum = read(reinterpret_cast<const T *>(s.at->slots[0])[i]);
        for (int r = 1; r < s.n; r++)
            sum += read(reinterpret_cast<const T *>(s.at->slots[r])[i]);
        out[i] = write(sum);
    }
}

bool ranks_agree(state &s, const round &r)
{
    for (int i = 0; i < s.n; i++)
        if (s.at->headers[i].kind != r.kind || s.at->headers[i].n_bytes != r.n_bytes ||
            s.at->headers[i].root != r.root) {
            fail(s, NCCL_INVALID_USAGE, "the ranks called different collectives");
            return false;
        } else if (s.at->headers[i].captured != r.captured) { /* see NCCL's manual, "CUDA Graphs" */
            fail(s, NCCL_INVALID_USAGE, "a collective is of a graph on some ranks alone");
            return false;
        }
    return true;
}

void exchange(state &s, const round &r)
{
    uint64_t turn = ++s.turn;
    bool sum = r.kind == round::SUM;
    if (!await(s, [&] { return all_ranks(s, s.at->done, turn - 1); }))
        return;
    s.at->headers[s.rank] = {(int)r.kind, r.root, r.n_bytes, r.captured};
    if (sum || s.rank == r.root)
        memcpy(s.at->slots[s.rank], s.staging, r.n_bytes);
    s.at->posted[s.rank] = turn;
    if (!await(s, [&] { return all_ranks(s, s.at->posted, turn); }) || !ranks_agree(s, r))
        return;
    if (!sum)
        memcpy(s.staging, s.at->slots[r.root], r.n_bytes);
    else if (r.type == NCCL_BFLOAT16)
        add_slots<uint16_t>(s, r.n_bytes, to_float, to_bfloat16);
    else
        add_slots<float>(
            s, r.n_bytes, [](float f) { return f; }, [](float f) { return f; });
    s.at->done[s.rank] = turn;
}

/* Runs a round. A communicator that has failed or is aborted runs no more rounds. */
template <class Round, class Run> void run_round(void *arg, Run run)
{
    Round *r = static_cast<Round *>(arg);
    state &s = *r->s;
    s.running = true;
    if ((s.async == NCCL_SUCCESS || s.async == NCCL_IN_PROGRESS) && !*s.aborted)
        run(s, *r);
    s.running = false;
    if (!r->captured)
        delete r;
}

void CUDART_CB run_collective(void *arg)
{
    run_round<round>(arg, exchange);
}

bool is_captured(cudaStream_t stream)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

/* Reports the result of an enqueued call. The first call reports "in progress" for a while, like
 * a call that connects. */
int enqueued(nccl_native *c, cudaStream_t stream, cudaError_t e)
{
    c->stream = stream;
    if (e != cudaSuccess) {
        last_error = std::string("CUDA: ") + cudaGetErrorString(e);
        return NCCL_UNHANDLED_CUDA_ERROR;
    }
    if (c->s->used)
        return c->s->async == NCCL_IN_PROGRESS ? NCCL_SUCCESS : (int)c->s->async;
    c->s->used = true;
    c->s->pretended = PRETENDED;
    return NCCL_IN_PROGRESS;
}

cudaError_t enqueue_round(nccl_native *c, const void *from, void *to, const round &what,
                          cudaStream_t stream)
{
    auto *r = new round(what);
    uint8_t *staging = c->s->staging;
    bool reads = r->kind == round::SUM || c->s->rank == r->root;
    cudaError_t e = cudaSuccess;
    r->captured = is_captured(stream);
    if (reads)
        e = cudaMemcpyAsync(staging, from, r->n_bytes, cudaMemcpyDeviceToHost, stream);
    if (e == cudaSuccess)
        e = cudaLaunchHostFunc(stream, run_collective, r);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(to, staging, what.n_bytes, cudaMemcpyHostToDevice, stream);
    return e;
}

int collective(nccl_native *c, const void *from, void *to, size_t n_bytes, round what,
               cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    if (group_depth > 0)
        return NCCL_INVALID_USAGE; /* the worker does not use this case */
    for (size_t at = 0; at < n_bytes && e == cudaSuccess; at += SLOT_BYTES) {
        what.s = c->s;
        what.n_bytes = n_bytes - at < SLOT_BYTES ? n_bytes - at : SLOT_BYTES;
        e = enqueue_round(c, static_cast<const uint8_t *>(from) + at,
                          static_cast<uint8_t *>(to) + at, what, stream);
    }
    return enqueued(c, stream, e);
}

/* ---- sending and receiving: all pieces of a group at once, in turns ---- */

struct piece {
    int peer;
    bool send;
    uint8_t *device;
    size_t n_bytes, staged_at, n_done;
};
struct passing {
    std::shared_ptr<state> s;
    std::vector<piece> pieces;
    bool captured;
};
thread_local std::vector<piece> group_pieces;
thread_local nccl_native *group_comm;
thread_local cudaStream_t group_stream;

/* Returns true when data has moved. */
bool pass_on(state &s, piece &p)
{
    mailbox &m = p.send ? s.at->mail[s.rank][p.peer] : s.at->mail[p.peer][s.rank];
    uint8_t *at = s.staging + p.staged_at + p.n_done;
    size_t left = p.n_bytes - p.n_done;
    if (p.send ? m.sent != m.taken : m.sent == m.taken)
        return false;
    if (p.send) {
        m.n_bytes = left < MAIL_BYTES ? left : MAIL_BYTES;
        memcpy(m.data, at, m.n_bytes);
        p.n_done += m.n_bytes;
        m.sent++;
        return true;
    }
    size_t n = m.n_bytes - m.n_taken < left ? m.n_bytes - m.n_taken : left;
    memcpy(at, m.data + m.n_taken, n);
    p.n_done += n;
    m.n_taken += n;
    if (m.n_taken == m.n_bytes) {
        m.n_taken = 0;
        m.taken++;
    }
    return true;
}

/* Makes one turn over all pieces. Pieces to or from one rank are sent one after the other. */
bool pass_turn(state &s, std::vector<piece> &pieces)
{
    bool busy[2][MAX_RANKS] = {}, left = false;
    for (piece &p : pieces) {
        if (p.n_done == p.n_bytes)
            continue;
        left = true;
        if (!busy[p.send][p.peer])
            (void)pass_on(s, p);
        busy[p.send][p.peer] = true;
    }
    return !left;
}

void CUDART_CB run_passing(void *arg)
{
    run_round<passing>(arg, [](state &s, passing &r) {
        for (piece &p : r.pieces)
            p.n_done = 0; /* a graph may run the piece again */
        (void)await(s, [&] { return pass_turn(s, r.pieces); });
    });
}

cudaError_t enqueue_passing(nccl_native *c, const std::vector<piece> &pieces, cudaStream_t stream)
{
    auto *r = new passing{c->s, pieces, is_captured(stream)};
    cudaError_t e = cudaSuccess;
    for (const piece &p : pieces)
        if (p.send && e == cudaSuccess)
            e = cudaMemcpyAsync(c->s->staging + p.staged_at, p.device, p.n_bytes,
                                cudaMemcpyDeviceToHost, stream);
    if (e == cudaSuccess)
        e = cudaLaunchHostFunc(stream, run_passing, r);
    for (const piece &p : pieces)
        if (!p.send && e == cudaSuccess)
            e = cudaMemcpyAsync(p.device, c->s->staging + p.staged_at, p.n_bytes,
                                cudaMemcpyHostToDevice, stream);
    return e;
}

/* Sends rounds of as many pieces, or parts of one, as fit the staging area. */
int pass_group()
{
    std::vector<piece> all, now;
    cudaError_t e = cudaSuccess;
    size_t used = 0;
    all.swap(group_pieces);
    for (piece p : all)
        while (p.n_bytes > 0 && e == cudaSuccess) {
            piece part = p;
            part.n_bytes = p.n_bytes < STAGING_BYTES - used ? p.n_bytes : STAGING_BYTES - used;
            part.staged_at = used;
            used += part.n_bytes;
            p.device += part.n_bytes;
            p.n_bytes -= part.n_bytes;
            now.push_back(part);
            if (used == STAGING_BYTES) {
                e = enqueue_passing(group_comm, now, group_stream);
                now.clear();
                used = 0;
            }
        }
    if (!now.empty() && e == cudaSuccess)
        e = enqueue_passing(group_comm, now, group_stream);
    return all.empty() ? NCCL_SUCCESS : enqueued(group_comm, group_stream, e);
}

int pass(nccl_native *c, const void *at, size_t n_bytes, int peer, bool send, cudaStream_t stream)
{
    if (peer < 0 || peer >= c->s->n || peer == c->s->rank ||
        (!group_pieces.empty() && c != group_comm))
        return NCCL_INVALID_ARGUMENT;
    group_comm = c;
    group_stream = stream;
    group_pieces.push_back(
        {peer, send, static_cast<uint8_t *>(const_cast<void *>(at)), n_bytes, 0, 0});
    return group_depth > 0 ? NCCL_SUCCESS : pass_group();
}

size_t type_bytes(int type)
{
    return type == NCCL_FLOAT32 ? 4 : type == NCCL_BFLOAT16 ? 2 : 1;
}

/* ---- aborting ---- */

void mark(nccl_native *c)
{
    if (look_for_lost_peers(*c->s) && loss_mode() == LOSS_HANG)
        for (;;)
            pause();
    *c->s->aborted = true;
}

void release(nccl_native *c)
{
    if (c->work.joinable())
        c->work.join();
    while (c->s->running)
        usleep(NAP_US);
    if (c->stream)
        (void)cudaStreamSynchronize(c->stream);
    shm_unlink(c->s->name.c_str());
    delete c;
}
} // namespace

#define API extern "C" __attribute__((visibility("default")))

API int ncclGetVersion(int *version)
{
    const char *v = getenv("FAKENCCL_VERSION");
    *version = v ? atoi(v) : 22809;
    return NCCL_SUCCESS;
}

API int ncclGetUniqueId(nccl_id *id)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return NCCL_UNHANDLED_CUDA_ERROR;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/fakenccl-%016lx%016lx", (unsigned long)random[0],
             (unsigned long)random[1]);
    return NCCL_SUCCESS;
}

API const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};
    return result >= 0 && result < 8 ? texts[result] : "unknown result code";
}

API const char *ncclGetLastError(nccl_native *)
{
    return last_error.c_str();
}

API int ncclCommInitRankConfig(nccl_native **comm, int n_ranks, nccl_id id, int rank,
                               nccl_config *config)
{
    if (n_ranks < 1 || n_ranks > MAX_RANKS || rank < 0 || rank >= n_ranks ||
        strncmp(id.internal, "/fakenccl-", 10) != 0 || config->magic != NCCL_CONFIG_MAGIC ||
        config->blocking != 0)
        return NCCL_INVALID_ARGUMENT;
    id.internal[sizeof id.internal - 1] = '\0';
    auto s = make_state(id.internal, rank, n_ranks, std::make_shared<std::atomic<bool>>(false));
    if (!s)
        return NCCL_UNHANDLED_CUDA_ERROR;
    *comm = new nccl_native;
    (*comm)->s = s;
    (*comm)->work = std::thread([s] {
        if (attach(*s))
            s->async = NCCL_SUCCESS;
    });
    return NCCL_IN_PROGRESS;
}

API int ncclCommSplit(nccl_native *comm, int color, int key, nccl_native **out, nccl_config *)
{
    if (comm->work.joinable())
        comm->work.join();
    if (comm->s->async != NCCL_SUCCESS)
        return NCCL_INVALID_USAGE;
    *out = nullptr;
    comm->s->async = NCCL_IN_PROGRESS;
    comm->work = std::thread([=] { split(comm, color, key, out); });
    return NCCL_IN_PROGRESS;
}

API int ncclCommGetAsyncError(nccl_native *comm, int *result)
{
    state &s = *comm->s;
    if (s.pretended > 0 && s.pretended-- > 0) {
        *result = NCCL_IN_PROGRESS;
        return NCCL_SUCCESS;
    }
    if (s.async == NCCL_SUCCESS && look_for_lost_peers(s) && loss_mode() != LOSS_HANG)
        s.async = NCCL_REMOTE_ERROR;
    *result = s.async;
    return NCCL_SUCCESS;
}

API int ncclCommAbort(nccl_native *comm)
{
    mark(comm);
    if (group_depth > 0)
        group_aborts.push_back(comm);
    else
        release(comm);
    return NCCL_SUCCESS;
}

API int ncclGroupStart()
{
    group_depth++;
    return NCCL_SUCCESS;
}

API int ncclGroupEnd()
{
    if (--group_depth > 0)
        return NCCL_SUCCESS;
    for (nccl_native *c : group_aborts)
        release(c);
    group_aborts.clear();
    return pass_group();
}

API int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, nccl_native *comm,
                      cudaStream_t stream)
{
    if (op != NCCL_SUM || (type != NCCL_FLOAT32 && type != NCCL_BFLOAT16))
        return NCCL_INVALID_ARGUMENT;
    return collective(comm, from, to, n * type_bytes(type),
                      {nullptr, round::SUM, 0, type, 0, false}, stream);
}

API int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, nccl_native *comm,
                      cudaStream_t stream)
{
    if (root < 0 || root >= comm->s->n)
        return NCCL_INVALID_ARGUMENT;
    return collective(comm, from, to, n * type_bytes(type),
                      {nullptr, round::BROADCAST, 0, type, root, false}, stream);
}

API int ncclSend(const void *from, size_t n, int type, int peer, nccl_native *comm,
                 cudaStream_t stream)
{
    return pass(comm, from, n * type_bytes(type), peer, true, stream);
}

API int ncclRecv(void *to, size_t n, int type, int peer, nccl_native *comm, cudaStream_t stream)
{
    return pass(comm, to, n * type_bytes(type), peer, false, stream);
}
