/* Tests the runner over the CUDA backend. Passes of several sequences, padded, recorded and
 * replayed, must agree with the same passes on the CPU. A replay must have the bits of the pass
 * that was recorded. On the emulation each call of a recording is also refused once: the bits
 * must be the same, and the device must not be lost. Exit status 0 passed, 1 failures, 77 no
 * device. --small runs the same cases. */
#include "kernels/cuda/device/abi.h"
#include "kernels/cuda/rows/abi.h"
#include "tests/cuda/emulate/faults.h"
#include "tests/cuda/rig/runner_rig.h"
#include "worker/runner/logits.h"
#include "worker/runner/record.h"

/* Builds for a real device do not have these functions. */
#pragma weak emulate_refuse_capture
#pragma weak emulate_n_limits_lowered
#pragma weak emulate_set_code

static void run(struct side *s, const struct pass *p, float *out)
{
    struct error err;
    struct runner *r = s->engine->runner;
    struct logits_top tops[MOST_SEQUENCES];
    double sums[MOST_SEQUENCES];
    float *logits;
    must(runner_forward(r, &p->b, &err), &err, "forward");
    must(runner_logits(r, p->sampled, p->n_sampled, &logits, &err), &err, "logits");
    must(runner_read_logits(r, 0, p->n_sampled, &logits, &err), &err, "read");
    memcpy(out, logits, (size_t)p->n_sampled * TINY_VOCAB * sizeof *out);
    must(runner_look(r, p->n_sampled, tops, sums, &err), &err, "look");
    for (uint32_t i = 0; i < p->n_sampled; i++) {
        const float *row = out + (size_t)i * TINY_VOCAB;
        double sum = 0;
        expect(row[tops[i].id] == tops[i].best, "the best one's id");
        for (uint32_t k = 0; k < TINY_VOCAB; k++)
            sum += exp((double)row[k] - (double)tops[i].best);
        expect(fabs(sum - sums[i]) <= 1e-5 * sum, "the sum of exponentials");
    }
}

/* Runs a pass on both devices. The GPU's rows must be near the CPU's. */
static void run_both(struct side *cpu, struct side *gpu, const struct pass *p, float *got)
{
    float want[MOST_SEQUENCES * TINY_VOCAB];
    run(cpu, p, want);
    run(gpu, p, got);
    for (uint32_t i = 0; i < p->n_sampled; i++)
        expect(share_of_spread(got + i * TINY_VOCAB, want + i * TINY_VOCAB) <= NEAR,
               "a row of logits is near the CPU's");
}

/* Tests passes. `last` receives the GPU's logits of the last pass, [MOST_SEQUENCES][TINY_VOCAB]. */
static void test_passes(struct side *cpu, struct side *gpu, float *last)
{
    static struct pass p;
    static const uint32_t zeros[MOST_SEQUENCES] = {0},
                          prompts[MOST_SEQUENCES] = {20, 15, 5, 1, 30, 40};
    static const uint32_t ones[] = {1, 1, 1, 1, 1, 1};
    float got[MOST_SEQUENCES * TINY_VOCAB], again[MOST_SEQUENCES * TINY_VOCAB];
    uint32_t at[MOST_SEQUENCES];
    make_pass(&p, 6, zeros, prompts); /* 111 rows are not recorded and give tiles of many rows */
    run_both(cpu, gpu, &p, got);
    memcpy(at, prompts, sizeof at);
    /* The steps run eagerly, recorded and replayed, with other rows in each step. */
    for (uint32_t step = 0; step < 5; step++) {
        /* 3 rows are padded to 4, so one recording serves both numbers */
        uint32_t n = step < 3 ? 3 : 4;
        make_pass(&p, n, at, ones);
        run_both(cpu, gpu, &p, got);
        for (uint32_t i = 0; i < n; i++)
            at[i]++;
    }
    runner_drop_records(gpu->engine->runner);
    run(gpu, &p, again); /* the pass runs eagerly, over the keys that are in the cache */
    expect(memcmp(got, again, (size_t)p.n_sampled * TINY_VOCAB * sizeof *got) == 0,
           "a replay has other bits than its operators one by one");
    /* Here a sequence has several rows, in a size that is recorded. */
    static const uint32_t drafts[] = {3, 1, 4};
    for (int i = 0; i < 3; i++) {
        make_pass(&p, 3, at, drafts);
        run_both(cpu, gpu, &p, got);
    }
    memset(last, 0, sizeof got);
    memcpy(last, got, (size_t)p.n_sampled * TINY_VOCAB * sizeof *got);
}

/* Runs a pass eagerly, recorded and replayed, with the n-th call of the recording refused, for n
 * = 1, 2, ... until none is left. The same keys and values are written each time. */
static void test_refusals(struct side *gpu)
{
    enum { MANY = 100000 };
    static struct pass p;
    static const uint32_t at[] = {20, 15, 5}, ones[] = {1, 1, 1};
    float want[MOST_SEQUENCES * TINY_VOCAB], got[MOST_SEQUENCES * TINY_VOCAB];
    struct error err;
    unsigned n_calls;
    if (!emulate_refuse_capture)
        return;
    make_pass(&p, 3, at, ones);
    for (unsigned n = MANY; n > 0; n = n == MANY ? n_calls : n - 1) {
        runner_drop_records(gpu->engine->runner);
        (void)emulate_refuse_capture(n);
        for (int i = 0; i < 4; i++) {
            run(gpu, &p, i == 0 && n == MANY ? want : got);
            expect((i == 0 && n == MANY) || memcmp(got, want, sizeof *got * 3 * TINY_VOCAB) == 0,
                   "other bits where a recording was refused");
        }
        unsigned left = emulate_refuse_capture(0);
        n_calls = MANY - left; /* number of calls of the first round */
        expect(n == MANY ? n_calls > 10 : left == 0, "the refusal did not take place");
        expect(gpu->device->ops->pass.sync(gpu->device, &err) == STATUS_OK, "a refusal is no loss");
    }
}

/* Kernels must begin early if the code that runs can wait and early launches are not forbidden. */
static void test_early_launches(void)
{
    static const struct {
        int ptx_version;
        bool wanted;
        const char *forbidden; /* value of COX_NO_EARLY_LAUNCH */
        bool want;
    } cases[] = {{90, true, NULL, true},  {80, true, NULL, false},   {90, false, NULL, false},
                 {90, true, "1", false},  {90, true, "true", false}, {90, true, "0", true},
                 {90, true, "off", true}, {90, true, "", true},      {80, true, "0", false}};
    if (emulate_set_code)
        /* the caller's value need not be restored, because these are the last launches */
        (void)unsetenv("COX_NO_EARLY_LAUNCH");
    for (size_t i = 0; emulate_set_code && i < sizeof cases / sizeof *cases; i++) {
        struct gpu_device *d;
        struct error err;
        emulate_set_code(cases[i].ptx_version);
        if (cases[i].forbidden)
            (void)setenv("COX_NO_EARLY_LAUNCH", cases[i].forbidden, 1);
        must(gpu_device_open(0, &d, &err), &err, "device");
        expect(gpu_launch_early(d, cases[i].wanted) == cases[i].want,
               "whether kernels begin early");
        gpu_device_close(d);
        (void)unsetenv("COX_NO_EARLY_LAUNCH");
        emulate_set_code(90);
    }
}

/* Shapes that an operator would refuse in every pass must be reported before the model is
 * loaded. */
static void test_shapes(const struct device *d)
{
    static const struct {
        struct scratch_shape shape;
        enum status want;
    } cases[] = {
        {{.hidden = 4096, .head_dim = 256, .v_dim = 256}, STATUS_OK},
        {{.hidden = 4096, .head_dim = 264, .v_dim = 264}, STATUS_UNSUPPORTED},
        {{.hidden = 4096, .head_dim = 576, .v_dim = 512, .is_latent = true}, STATUS_OK},
        {{.hidden = 4096, .head_dim = 640, .v_dim = 576, .is_latent = true}, STATUS_UNSUPPORTED},
        {{.hidden = CUDA_NORM_MAX_DIM + 8, .head_dim = 64, .v_dim = 64}, STATUS_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err;
        expect(d->ops->check(d, &cases[i].shape, &err) == cases[i].want, "which shapes are taken");
    }
}

int main(void)
{
    struct side cpu = {0}, gpu = {0};
    char folder[] = "/tmp/cox-runner-XXXXXX", path[64];
    open_sides(&cpu, &gpu, folder);
    static float last[2][2][MOST_SEQUENCES * TINY_VOCAB];
    /* the loop runs one KV group and two, with the block layouts `block` and `layer` */
    for (int i = 0; i < 4; i++) {
        const int windows = i % 2, layers = i / 2;
        (void)setenv("COX_KV_LAYOUT", layers ? "layer" : "block", 1);
        if (windows)
            tiny_window_model_write(folder, 7);
        else
            tiny_model_write(folder, 7);
        open_engine(&cpu, folder, 0);
        open_engine(&gpu, folder, 0);
        test_passes(&cpu, &gpu, last[layers][windows]);
        if (!layers)
            test_refusals(&gpu);
        engine_close(cpu.engine);
        engine_close(gpu.engine);
    }
    expect(memcmp(last[0], last[1], sizeof last[0]) == 0, "other bits by the layout of blocks");
    test_shapes(gpu.device);
    test_early_launches();
    expect(!emulate_n_limits_lowered || emulate_n_limits_lowered() == 0,
           "a kernel's limit of shared memory was made smaller behind a recording");
    gpu.device->ops->close(gpu.device);
    cpu.device->ops->close(cpu.device);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    (void)unlink(path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    (void)unlink(path);
    (void)rmdir(folder);
    printf("runner_test: %u checks, %u failures\n", n_checks, n_failures);
    return n_failures > 0;
}
