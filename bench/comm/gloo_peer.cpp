#include "bench/comm/gloo_peer.h"

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

const bool gloo_peer_built = true;

struct gloo_peer {
    /* the pairs of `sync` poll in the caller's thread */
    std::shared_ptr<gloo::Context> context, sync;
    std::vector<float> scratch;
    /* gloo's older algorithms are objects, each for one buffer. */
    std::map<std::tuple<int, void *, size_t>, std::unique_ptr<gloo::Algorithm>> made;
};

static std::shared_ptr<gloo::Context> connect(gloo::rendezvous::Store &files, const char *name,
                                              int rank, int n_ranks, bool sync)
{
    gloo::transport::tcp::attr attr("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(attr);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, n_ranks);
    gloo::rendezvous::PrefixStore store(name, files);
    context->connectFullMesh(store, device);
    for (int r = 0; sync && r < n_ranks; r++)
        if (r != rank)
            context->getPair(r)->setSync(true, true);
    return context;
}

template <typename F> static bool guarded(const char *what, F f)
{
    try {
        f();
        return true;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "gloo: %s: %s\n", what, e.what());
        return false;
    }
}

struct gloo_peer *gloo_peer_open(const char *folder, uint32_t rank, uint32_t n_ranks)
{
    auto p = std::make_unique<gloo_peer>();
    bool good = guarded("connecting", [&] {
        gloo::rendezvous::FileStore files(folder);
        p->context = connect(files, "async", (int)rank, (int)n_ranks, false);
        p->sync = connect(files, "sync", (int)rank, (int)n_ranks, true);
    });
    return good ? p.release() : nullptr;
}

void gloo_peer_close(struct gloo_peer *p)
{
    delete p;
}

static void run_once_made(gloo_peer *p, std::tuple<int, void *, size_t> key,
                          std::unique_ptr<gloo::Algorithm> (*make)(gloo_peer *, int, float *,
                                                                   size_t))
{
    auto &algorithm = p->made[key];
    if (!algorithm)
        algorithm = make(p, std::get<0>(key), (float *)std::get<1>(key), std::get<2>(key));
    algorithm->run();
}

static void all_reduce_ordered(gloo_peer *p, float *x, size_t n)
{
    p->scratch.resize(n * (size_t)p->context->size);
    gloo::AllgatherOptions o(p->context);
    o.setInput(x, n);
    o.setOutput(p->scratch.data(), p->scratch.size());
    gloo::allgather(o);
    const float *parts = p->scratch.data();
    for (size_t i = 0; i < n; i++)
        x[i] = parts[i];
    for (int r = 1; r < p->context->size; r++)
        for (size_t i = 0; i < n; i++)
            x[i] += parts[(size_t)r * n + i];
}

bool gloo_peer_all_reduce(struct gloo_peer *p, enum gloo_way way, float *x, size_t n)
{
    return guarded("all-reduce", [&] {
        if (way == GLOO_ORDERED)
            return all_reduce_ordered(p, x, n);
        if (way == GLOO_SYNC)
            return run_once_made(p, {-1, x, n}, [](gloo_peer *q, int, float *y, size_t m) {
                return std::unique_ptr<gloo::Algorithm>(new gloo::AllreduceHalvingDoubling<float>(
                    q->sync, std::vector<float *>{y}, (int)m));
            });
        gloo::AllreduceOptions o(p->context);
        o.setAlgorithm(way == GLOO_RING ? gloo::AllreduceOptions::Algorithm::RING
                                        : gloo::AllreduceOptions::Algorithm::BCUBE);
        o.setOutput(x, n);
        o.setReduceFunction(
            [](void *a, const void *b, const void *c, size_t m) { gloo::sum<float>(a, b, c, m); });
        gloo::allreduce(o);
    });
}

bool gloo_peer_gather(struct gloo_peer *p, uint32_t root, float *own, float *out, size_t n)
{
    return guarded("gather", [&] {
        gloo::GatherOptions o(p->context);
        o.setInput(own, n);
        if (p->context->rank == (int)root)
            o.setOutput(out, n * (size_t)p->context->size);
        o.setRoot((int)root);
        gloo::gather(o);
    });
}

bool gloo_peer_broadcast(struct gloo_peer *p, enum gloo_way way, uint32_t root, float *x, size_t n)
{
    return guarded("broadcast", [&] {
        if (way == GLOO_SYNC)
            return run_once_made(p, {(int)root, x, n}, [](gloo_peer *q, int r, float *y, size_t m) {
                return std::unique_ptr<gloo::Algorithm>(
                    new gloo::BroadcastOneToAll<float>(q->sync, std::vector<float *>{y}, m, r));
            });
        gloo::BroadcastOptions o(p->context);
        o.setOutput(x, n);
        o.setRoot((int)root);
        gloo::broadcast(o);
    });
}
