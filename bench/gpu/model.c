/* Measures models with real shapes and dummy weights on a GPU: the time of a step beside the
 * device's limits in the same run (ceilings.h). The bars are in bars.h. work.h counts the bytes
 * and operations that a step needs. Plans are passed directly to the executor, two in flight, as
 * a head sends them (drive.h).
 *
 * decode: the bytes that a step must read, divided by its time, as a fraction of the copy's
 * rate. Weights count once, and the keys and values of every context. For a mixture, the experts
 * that the rows chose count. They are counted in a pass before the rounds and in a pass after
 * the rounds.
 *
 * prefill: the operations of a prompt, divided by its time, as a fraction of cuBLASLt's rate. A
 * model that accepts fewer tokens at once gets several prompts side by side.
 *
 * passes: forward and logits of the same rows, enqueued alone, in the same rounds at the same
 * positions. The rest of a step's time is outside of these kernels: sampling, results and the
 * host. The figure is the median of the rounds' differences.
 *
 * kernels a step: nodes of the recorded passes and samples that a step replays, from the last
 * round.
 *
 * The times of a step and of a prompt are printed as well; tests/cuda/first-run/predict.py has a
 * prediction for each.
 *
 * Usage: cuda_model_bench [FOLDER...] [--tokens 8192] [--context 1024] [--batches 1,64] [--steps
 * 64] [--seconds N] Without a FOLDER, the shapes of the table below are measured. Figures of
 * other folders, lengths and batches are not judged. With --seconds, parts that would take
 * longer are cut, and so are models that do not fit. COX_KV_LAYOUT=layer in the environment lays
 * the KV cache out by layers (worker/kv/store.h), to compare it with blocks. Exit status:
 * bars.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/ceilings.h"
#include "bench/gpu/drive.h"
#include "bench/gpu/work.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "kernels/cuda/cuda.h"

enum { N_ROUNDS = 5, WARM_STEPS = 8, MAX_MODELS = 8, MAX_BATCHES = 8 };
/* BAR_TOKENS and BAR_BATCH are the lengths that the bars apply to */
enum { BAR_TOKENS = 8192, BAR_BATCH = 64 };

/* OPEN_SECONDS is the time from the start to a model's first figure, with a margin. A model
 * begins only when this many seconds are left. */
#define OPEN_SECONDS 12.0

static const struct shape {
    const char *folder;
    bool is_judged;
} shapes[] = {
    {"bench/models/llama31_8b", true},
    {"bench/models/llama31_8b_awq", true},
    {"bench/models/deepseek_coder_v2_lite_awq", true},
    {"bench/models/phi3_mini_4k", true},
    /* This model has 31 GB. It is the last, because it takes longest to open. */
    {"bench/models/deepseek_coder_v2_lite", true},
    {"bench/models/gemma3_270m", false}, /* the demo model's shape; bench/cuda_serving judges it */
};

struct bench {
    struct bars bars;
    /* closed before a model is opened, because the model needs the memory */
    struct ceilings ceilings;
    struct drive drive;
    struct work work;
    const char *models[MAX_MODELS], *name;
    uint32_t n_models, n_tokens, context, n_steps, batches[MAX_BATCHES], n_batches;
    double seconds;
    bool is_judged;
};

static double seconds_since(uint64_t begin_ns)
{
    return (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S;
}

/* Returns a title such as "llama31_8b, decode at batch 64"; valid until the next call. */
static const char *what_of(const struct bench *b, const char *before, uint32_t n, const char *after)
{
    static char text[BARS_WHAT];
    snprintf(text, sizeof text, "%.40s, %s%u%s", b->name, before, n, after);
    return text;
}

/* ---- prefill ---- */

static double prefill_seconds(struct bench *b)
{
    uint64_t begin_ns = clock_mono_ns();
    drive_prefill(&b->drive, b->drive.n_prompts, b->drive.prompt_len, 1);
    double seconds = seconds_since(begin_ns);
    drive_leave(&b->drive);
    return seconds;
}

static void measure_prefill(struct bench *b)
{
    double seconds[N_ROUNDS], last = prefill_seconds(b);
    uint32_t n_rounds = 0, n = b->drive.n_prompts * b->drive.prompt_len;
    while (n_rounds < N_ROUNDS && (n_rounds == 0 || bars_seconds_left(&b->bars) > 2 * last))
        seconds[n_rounds++] = last = prefill_seconds(b);
    double took = ceilings_median(seconds, n_rounds);
    double ops = b->drive.n_prompts * work_prompt_ops(&b->work, b->drive.prompt_len);
    printf("prefill %u x %u tokens: %.1f ms (%u rounds), %.0f tokens/s, %.1f TFLOP/s\n",
           b->drive.n_prompts, b->drive.prompt_len, took * 1e3, n_rounds, n / took,
           ops / took / 1e12);
    bars_figure(&b->bars, what_of(b, "prefill of ", b->n_tokens, " tokens"), "of cuBLAS's rate",
                ops / took / b->ceilings.gemm_rate,
                b->is_judged && b->n_tokens == BAR_TOKENS ? BAR_AT_LEAST : BAR_NONE, BAR_PREFILL);
    bars_figure(&b->bars, what_of(b, "prefill of ", b->n_tokens, " tokens, time"), "ms", took * 1e3,
                BAR_NONE, 0);
}

/* ---- decode ---- */

/* `decode` holds the figures of one model at one batch. */
struct decode {
    uint32_t batch, position, n_rounds;
    /* steps: seconds of a step; beside: seconds of its part outside the passes */
    double steps[N_ROUNDS], beside[N_ROUNDS];
    double rates[N_ROUNDS]; /* needed bytes per second in each round */
    double n_kernels;       /* recorded kernels in a step */
    double n_experts;
};

static void run_rounds(struct bench *b, struct decode *d)
{
    double last = 0;
    while (d->n_rounds < N_ROUNDS &&
           (d->n_rounds == 0 || bars_seconds_left(&b->bars) > 1.5 * last)) {
        uint64_t begin_ns = clock_mono_ns();
        uint32_t first = d->position;
        uint64_t nodes = cuda_device_nodes(b->drive.engine->device);
        for (uint32_t i = 0; i < b->n_steps; i++)
            drive_decode(&b->drive, d->batch, d->position++);
        drive_finish(&b->drive);
        d->n_kernels = (double)(cuda_device_nodes(b->drive.engine->device) - nodes) / b->n_steps;
        double step = seconds_since(begin_ns) / b->n_steps;
        /* mean number of positions that a row sees */
        double middle = first + (b->n_steps - 1) / 2.0 + 1;
        d->steps[d->n_rounds] = step;
        d->beside[d->n_rounds] = step - drive_passes(&b->drive, d->batch, first, b->n_steps);
        d->rates[d->n_rounds++] = (work_step_weights(&b->work, d->batch, d->n_experts) +
                                   d->batch * work_kv_bytes(&b->work, middle)) /
                                  step;
        last = seconds_since(begin_ns);
    }
}

static void tell_decode(struct bench *b, struct decode *d)
{
    const struct moe_config *m = &b->drive.engine->config.moe;
    double step = ceilings_median(d->steps, d->n_rounds);
    double rate = ceilings_median(d->rates, d->n_rounds);
    double beside = ceilings_median(d->beside, d->n_rounds) * 1e6;
    bool is_codes = b->drive.engine->config.quant.method != QUANT_NONE;
    printf("decode %3u x %u: %.3f ms a step (%u rounds), %.0f tokens/s, reads %.2f GB weights + "
           "%.2f GB KV at %.0f GB/s; %.1f us beside its passes\n",
           d->batch, b->context, step * 1e3, d->n_rounds, d->batch / step,
           work_step_weights(&b->work, d->batch, d->n_experts) / 1e9,
           d->batch * work_kv_bytes(&b->work, b->context) / 1e9, rate / 1e9, beside);
    printf("  kernels a step: %.0f\n", d->n_kernels);
    if (b->work.n_mixtures > 0)
        printf("  experts read in a layer: %.1f of %u; rows that choose at random read %.1f\n",
               d->n_experts / b->work.n_mixtures, m->n_experts,
               work_random_experts(m->n_experts, m->n_chosen, d->batch));
    bool is_judged = b->is_judged && (d->batch == 1 || d->batch == BAR_BATCH);
    bars_figure(&b->bars, what_of(b, "decode at batch ", d->batch, ""), "of a copy's rate",
                rate / b->ceilings.copy_rate, is_judged ? BAR_AT_LEAST : BAR_NONE,
                d->batch > 1 ? BAR_DECODE_MANY
                : is_codes   ? BAR_DECODE_CODES
                             : BAR_DECODE_BF16);
    bars_figure(&b->bars, what_of(b, "decode at batch ", d->batch, ", a step"), "ms", step * 1e3,
                BAR_NONE, 0);
    bars_figure(&b->bars, what_of(b, "a step at batch ", d->batch, " beside its passes"), "us",
                beside, is_judged && d->batch == 1 ? BAR_AT_MOST : BAR_NONE, BAR_OVERHEAD_US);
}

static void measure_decode(struct bench *b, uint32_t batch)
{
    struct decode d = {.batch = batch, .position = b->context};
    drive_prefill(&b->drive, batch, b->context, b->drive.shape.n_more);
    for (uint32_t i = 0; i < WARM_STEPS; i++)
        drive_decode(&b->drive, batch, d.position++);
    drive_finish(&b->drive);
    double before = drive_experts(&b->drive, batch, d.position);
    d.n_experts = before; /* after all rounds, the mean of two counts replaces this count */
    run_rounds(b, &d);
    double after = drive_experts(&b->drive, batch, d.position);
    d.n_experts = (before + after) / 2;
    double counted = work_step_weights(&b->work, batch, before);
    double mean = work_step_weights(&b->work, batch, d.n_experts);
    for (uint32_t i = 0; i < d.n_rounds; i++)
        d.rates[i] -= (counted - mean) / d.steps[i];
    drive_leave(&b->drive);
    tell_decode(b, &d);
}

/* ---- models ---- */

static void run_model(struct bench *b, const char *folder)
{
    struct error err = {0};
    const char *slash = strrchr(folder, '/');
    struct drive_shape s = {.model = folder,
                            .n_tokens = b->n_tokens,
                            .context = b->context,
                            .n_more = WARM_STEPS + N_ROUNDS * b->n_steps + 1,
                            .max_batch = 1};
    b->name = slash && slash[1] ? slash + 1 : folder;
    if (!bars_has_time(&b->bars, b->name, OPEN_SECONDS, b->is_judged))
        return;
    for (uint32_t i = 0; i < b->n_batches; i++)
        s.max_batch = b->batches[i] > s.max_batch ? b->batches[i] : s.max_batch;
    uint64_t begin_ns = clock_mono_ns();
    if (drive_open(&b->drive, &s, &err) != STATUS_OK) {
        printf("\ncut: %s does not fit here: %s\n", folder, err.text);
        bars_cut(&b->bars, b->name, b->is_judged);
        return;
    }
    must(work_of(b->drive.engine->program, b->drive.engine->kv_dtype, &b->work, &err), &err,
         folder);
    const char *layout = getenv("COX_KV_LAYOUT");
    printf("\n%s: KV blocks by %s, %.2f GB of weights on the device, open in %.2f s\n", folder,
           layout ? layout : "block",
           (double)b->drive.executor->ops->info(b->drive.executor)->weights_bytes / 1e9,
           seconds_since(begin_ns));
    for (uint32_t i = 0; i < b->n_batches; i++)
        if (bars_has_time(&b->bars, what_of(b, "decode at batch ", b->batches[i], ""), 1,
                          b->is_judged))
            measure_decode(b, b->batches[i]);
    if (bars_has_time(&b->bars, what_of(b, "prefill of ", b->n_tokens, " tokens"), 1, b->is_judged))
        measure_prefill(b);
    drive_close(&b->drive);
}

/* ---- arguments ---- */

static bool parse_batches(struct bench *b, const char *value)
{
    for (b->n_batches = 0; *value && b->n_batches < MAX_BATCHES; value += *value == ',') {
        char *end;
        unsigned long n = strtoul(value, &end, 10);
        if (end == value || n == 0 || n > DRIVE_MAX_BATCH)
            return false;
        b->batches[b->n_batches++] = (uint32_t)n;
        value = end;
    }
    return b->n_batches > 0 && !*value;
}

static bool parse_number(struct bench *b, const char *option, const char *value)
{
    uint32_t *out = strcmp(option, "--tokens") == 0    ? &b->n_tokens
                    : strcmp(option, "--context") == 0 ? &b->context
                    : strcmp(option, "--steps") == 0   ? &b->n_steps
                                                       : NULL;
    char *end;
    unsigned long n = strtoul(value, &end, 10);
    if (end == value || *end || n == 0 || n > 1u << 20)
        return false;
    if (strcmp(option, "--seconds") == 0)
        b->seconds = (double)n;
    else if (out)
        *out = (uint32_t)n;
    return out || strcmp(option, "--seconds") == 0;
}

static bool parse(struct bench *b, int argc, char **argv)
{
    b->n_tokens = BAR_TOKENS, b->context = 1024, b->n_steps = 64;
    b->batches[0] = 1, b->batches[1] = BAR_BATCH, b->n_batches = 2;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-') {
            if (b->n_models == MAX_MODELS)
                return false;
            b->models[b->n_models++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--batches") == 0 ? !parse_batches(b, value)
                                              : !parse_number(b, argv[i], value))
            return false;
        i++;
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct bench b;
    if (!parse(&b, argc, argv)) {
        fprintf(stderr, "usage: cuda_model_bench [FOLDER...] [--tokens N] [--context N] "
                        "[--batches N,N] [--steps N] [--seconds N]\n");
        return 2;
    }
    log_init("bench", LOG_LEVEL_COUNT, LOG_LOGFMT);
    ceilings_open(&b.ceilings, "cuda_model_bench");
    bars_open(&b.bars, "cuda_model_bench", b.ceilings.is_emulated, b.seconds);
    ceilings_measure(&b.ceilings);
    ceilings_close(&b.ceilings);
    for (uint32_t i = 0; i < b.n_models; i++)
        run_model(&b, b.models[i]);
    for (size_t i = 0; b.n_models == 0 && i < sizeof shapes / sizeof *shapes; i++) {
        b.is_judged = shapes[i].is_judged;
        run_model(&b, shapes[i].folder);
    }
    return (int)bars_close(&b.bars);
}
