/* Tests cuda_route against the CPU backend. The experts must be the same for the same logits,
 * and shares must agree within the last bits of an exponential. The test runs on a device and
 * over the emulation. Exit status 77 means that there is no device. */
#include <float.h>
#include <math.h>

#include "kernels/cuda/moe/abi.h"
#include "tests/cuda/rig/gpu_rig.h"

struct route_case {
    const char *name;
    uint32_t n_rows;
    struct route_params p; /* all fields except the pointers are set */
    bool has_bias, is_float, is_odd;
};

static const struct route_case cases[] = {
    {"softmax", 9, {.n_experts = 64, .n_chosen = 6, .factor = 1}, false, true, false},
    {"softmax, bfloat16", 33, {.n_experts = 64, .n_chosen = 6, .factor = 2}, false, false, false},
    {"normalised",
     5,
     {.n_experts = 128, .n_chosen = 8, .normalise = true, .factor = 1},
     false,
     true,
     false},
    {"of the chosen",
     6,
     {.n_experts = 32, .n_chosen = 4, .scores = ROUTE_SOFTMAX_OF_CHOSEN, .factor = 1},
     false,
     false,
     false},
    {"groups by two, with a bias",
     7,
     {.n_experts = 256,
      .n_chosen = 8,
      .n_groups = 8,
      .n_groups_chosen = 4,
      .scores = ROUTE_SIGMOID,
      .groups_by_two = true,
      .normalise = true,
      .factor = 2.5f},
     true,
     true,
     false},
    {"groups by the best",
     7,
     {.n_experts = 160,
      .n_chosen = 6,
      .n_groups = 8,
      .n_groups_chosen = 3,
      .scores = ROUTE_SOFTMAX,
      .factor = 16},
     false,
     true,
     false},
    {"more groups than lanes",
     3,
     {.n_experts = 120,
      .n_chosen = 40,
      .n_groups = 60,
      .n_groups_chosen = 37,
      .scores = ROUTE_SIGMOID,
      .factor = 1},
     true,
     true,
     false},
    {"one expert", 3, {.n_experts = 1, .n_chosen = 1, .factor = 1}, false, false, false},
    {"all of a few", 3, {.n_experts = 5, .n_chosen = 5, .factor = 1}, false, true, false},
    {"many", 2, {.n_experts = 4096, .n_chosen = 64, .factor = 1}, false, true, false},
    {"numbers that are none",
     24,
     {.n_experts = 40, .n_chosen = 7, .scores = ROUTE_SIGMOID, .factor = 1},
     true,
     true,
     true},
    {"numbers that are none, softmax",
     24,
     {.n_experts = 40, .n_chosen = 7, .normalise = true, .factor = 1},
     false,
     true,
     true},
    {"numbers that are none, groups",
     24,
     {.n_experts = 40,
      .n_chosen = 7,
      .n_groups = 8,
      .n_groups_chosen = 3,
      .groups_by_two = true,
      .scores = ROUTE_SOFTMAX_OF_CHOSEN,
      .factor = 1},
     true,
     true,
     true},
};

static float random_float(struct rig *r)
{
    /* the number is in [-1, 1) */
    return ((float)rng_below(&r->rng, 1u << 24) - 0x1p23f) * 0x1p-23f;
}

/* Returns a random logit. Half of them are whole numbers, so that logits tie. With is_odd, some
 * are NaN, infinite or extreme. */
static float make_logit(struct rig *r, const struct route_case *c)
{
    static const float odd[] = {NAN, -INFINITY, INFINITY, -FLT_MAX, FLT_MAX, -0.0f};
    if (c->is_odd && rng_below(&r->rng, 6) == 0)
        return odd[rng_below(&r->rng, 6)];
    const float v = random_float(r) * 8;
    return rng_below(&r->rng, 2) ? rintf(v) : c->is_float ? v : from_bf16(to_bf16(v));
}

static void compare(struct rig *r, const struct route_case *c, const uint32_t *ids,
                    const float *shares, const uint32_t *want_ids, const float *want_shares)
{
    for (uint32_t i = 0; i < c->n_rows * c->p.n_chosen; i++) {
        if (ids[i] != want_ids[i])
            return failed(r, "expert", ids[i], want_ids[i], i);
        const double v = (double)shares[i], w = (double)want_shares[i];
        if (isnan(w) ? !isnan(v) : !(v == w || fabs(v - w) <= 1e-6 * fabs(w)))
            return failed(r, "share", v, w, i);
    }
}

static void run(struct rig *r, const struct route_case *c)
{
    struct error err = {0};
    const uint32_t n = c->p.n_experts, stride = n + 3, n_out = c->n_rows * c->p.n_chosen;
    float *logits = mem_array((uint64_t)c->n_rows * stride, sizeof *logits);
    uint16_t *narrow = mem_array((uint64_t)c->n_rows * stride, sizeof *narrow);
    float *bias = mem_array(n, sizeof *bias);
    uint32_t *ids = mem_array(n_out, sizeof *ids), *want_ids = mem_array(n_out, sizeof *want_ids);
    float *shares = mem_array(n_out, sizeof *shares);
    float *want_shares = mem_array(n_out, sizeof *want_shares);
    for (uint32_t i = 0; i < n; i++)
        bias[i] = random_float(r);
    for (uint64_t i = 0; i < (uint64_t)c->n_rows * stride; i++) {
        logits[i] = make_logit(r, c);
        narrow[i] = to_bf16(logits[i]);
    }
    struct route_params p = c->p;
    p.n_rows = c->n_rows;
    p.logits = (struct view){logits, stride};
    p.bias = c->has_bias ? bias : NULL;
    p.ids = want_ids;
    p.shares = want_shares;
    r->cpu->ops->math.route(r->cpu, &p);
    const uint64_t n_logits = (uint64_t)c->n_rows * stride;
    p.logits.data =
        c->is_float ? on_device(r, logits, n_logits * 4) : on_device(r, narrow, n_logits * 2);
    p.bias = c->has_bias ? on_device(r, bias, n * sizeof *bias) : NULL;
    p.ids = on_device(r, NULL, n_out * sizeof *ids);
    p.shares = on_device(r, NULL, n_out * sizeof *shares);
    must(cuda_route(r->stream, &p, c->is_float, &err), &err, c->name);
    from_device(r, ids, p.ids, n_out * sizeof *ids);
    from_device(r, shares, p.shares, n_out * sizeof *shares);
    compare(r, c, ids, shares, want_ids, want_shares);
    void *device[] = {p.logits.data, (void *)(uintptr_t)p.bias, p.ids, p.shares};
    void *host[] = {logits, narrow, bias, ids, want_ids, shares, want_shares};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        gpu_release(r->gpu, device[i]);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        mem_free(host[i]);
    r->n_cases++;
}

int main(void)
{
    struct rig r = {.name = "route"};
    const int rc = rig_open(&r);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r.name = cases[i].name;
        run(&r, &cases[i]);
    }
    struct error err = {0};
    const struct route_params many = {.n_rows = 1, .n_experts = 1u << 20, .n_chosen = 1};
    if (cuda_route(r.stream, &many, true, &err) != STATUS_UNSUPPORTED)
        failed(&r, "more experts than fit were taken", 0, 0, 0);
    const struct route_params none = {.n_rows = 0, .n_experts = 8, .n_chosen = 2};
    must(cuda_route(r.stream, &none, true, &err), &err, "no rows");
    printf("route_test: %u cases, %u failures\n", r.n_cases, r.n_failures);
    rig_close(&r);
    return r.n_failures ? 1 : 0;
}
