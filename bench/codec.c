/* Measures the cost of a step's wire format, in µs by number of sequences (medians). For the
 * head: encode the plan, decode the result, encode the tokens. For a rank: decode the plan,
 * encode the result. In each step 1/16 of the sequences take a block. In the second table, 2 %
 * of the sequences are also replaced by a prompt of 1,024 tokens. There is one gateway.
 *   cmake --build build/release --target bench_codec && build/release/bin/bench_codec */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "proto/codec/codec.h"

enum { N_MOST = 4096, N_STEPS = 2000, N_WARM = 50, PROMPT = 1024 };
enum phase { PLAN_ENCODE, RESULT_DECODE, TOKENS_ENCODE, PLAN_DECODE, RESULT_ENCODE, PHASE_COUNT };

struct bench {
    struct plan_run runs[N_MOST];
    struct plan_blocks blocks[N_MOST];
    struct plan_admit admits[N_MOST];
    struct result_item items[N_MOST];
    struct tokens_item tokens[N_MOST];
    uint32_t ids[N_MOST], prompt[PROMPT];
    float gaps[N_MOST];
    struct msg plan, result, out;
    struct arena scratch, in;
    struct strbuf frame;
    uint64_t ns[PHASE_COUNT][N_STEPS];
};

static void make_step(struct bench *b, uint32_t step, uint32_t n, bool replace)
{
    static const uint32_t eos = 128001;
    const struct sampling_params sampling = {.temperature = 1,
                                             .top_p = 1,
                                             .repetition_penalty = 1,
                                             .seed = ~(uint64_t)step,
                                             .n_logprobs = -1,
                                             .n_prompt_logprobs = -1,
                                             .max_tokens = 512,
                                             .eos_ids = {&eos, 1}};
    uint32_t n_admits = 0;
    uint64_t due = replace ? (uint64_t)n * (step + 1) / 50 - (uint64_t)n * step / 50 : 0;
    for (uint32_t i = 0; i < n; i++) {
        b->blocks[i] = (struct plan_blocks){.ids = {&b->ids[i], 1}};
        b->runs[i] = (struct plan_run){.slot = i,
                                       .start = 1024 + (i * 1789) % 7168 + step,
                                       .n_tokens = 1,
                                       .sample = true,
                                       .blocks = &b->blocks[i],
                                       .n_blocks = i % 16 == step % 16};
        b->items[i] =
            (struct result_item){.slot = i, .ids = {&b->ids[i], 1}, .gaps = {&b->gaps[i], 1}};
        b->tokens[i] = (struct tokens_item){.id = {i * 0x9E3779B97F4A7C15u, ~(uint64_t)i},
                                            .attempt = 1,
                                            .start = step,
                                            .ids = {&b->ids[i], 1},
                                            .n_cached = 512};
    }
    for (uint32_t i = step % 50; i < n && n_admits < due; i += 50) {
        b->admits[n_admits++] = (struct plan_admit){.slot = i,
                                                    .n_prompt = PROMPT,
                                                    .n_computed = PROMPT / 2,
                                                    .ids = {b->prompt, PROMPT},
                                                    .sampling = sampling};
        b->runs[i].start = PROMPT / 2;
        b->runs[i].n_tokens = PROMPT / 2;
        b->tokens[i].finish = FINISH_LENGTH;
    }
    b->plan = (struct msg){.type = MSG_PLAN,
                           .plan = {.term_epoch = 1ull << 32 | 1,
                                    .step = step + 1,
                                    .finished = {b->ids, n_admits},
                                    .admits = b->admits,
                                    .n_admits = n_admits,
                                    .runs = b->runs,
                                    .n_runs = n}};
    b->result = (struct msg){.type = MSG_RESULT,
                             .result = {.term_epoch = 1ull << 32 | 1,
                                        .step = step + 1,
                                        .items = b->items,
                                        .n_items = n,
                                        .execute_ns = 8000000}};
    b->out = (struct msg){.type = MSG_TOKENS, .tokens = {.items = b->tokens, .n_items = n}};
}

static void must(enum status s)
{
    if (s != STATUS_OK) {
        fprintf(stderr, "bench_codec: %s\n", status_name(s));
        exit(1);
    }
}

static uint64_t encode(struct bench *b, const struct msg *m)
{
    strbuf_reset(&b->frame);
    uint64_t began = clock_mono_ns();
    must(codec_encode(m, 1, 1, &b->scratch, &b->frame));
    return clock_mono_ns() - began;
}

static uint64_t decode(struct bench *b)
{
    struct frame_header h;
    struct msg m;
    arena_reset(&b->in);
    uint64_t began = clock_mono_ns();
    must(frame_parse_header(strbuf_str(&b->frame), &h, NULL));
    must(codec_decode(strbuf_str(&b->frame), &h, &b->in, &m, NULL));
    return clock_mono_ns() - began;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void measure(struct bench *b, uint32_t n, bool replace)
{
    uint32_t n_steps = n > 1024 ? N_STEPS / 4 : N_STEPS;
    size_t bytes[3] = {0};
    for (uint32_t step = 0; step < N_WARM + n_steps; step++) {
        uint32_t i = step < N_WARM ? 0 : step - N_WARM;
        make_step(b, step, n, replace);
        b->ns[PLAN_ENCODE][i] = encode(b, &b->plan);
        bytes[0] = b->frame.len;
        b->ns[PLAN_DECODE][i] = decode(b);
        b->ns[RESULT_ENCODE][i] = encode(b, &b->result);
        bytes[1] = b->frame.len;
        b->ns[RESULT_DECODE][i] = decode(b);
        b->ns[TOKENS_ENCODE][i] = encode(b, &b->out);
        bytes[2] = b->frame.len;
    }
    printf("%9" PRIu32, n);
    size_t middle = n_steps / 2;
    for (int p = 0; p < PHASE_COUNT; p++) {
        qsort(b->ns[p], n_steps, sizeof b->ns[p][0], by_value);
        printf("  %13.2f", (double)b->ns[p][middle] / 1e3);
    }
    printf("  %zu %zu %zu\n", bytes[0], bytes[1], bytes[2]);
}

int main(void)
{
    static const uint32_t counts[] = {1, 64, 256, 1024, 4096};
    struct bench *b = mem_zalloc(sizeof *b);
    arena_init(&b->scratch, 0);
    arena_init(&b->in, 0);
    strbuf_init(&b->frame, FRAME_MAX_BYTES);
    for (uint32_t i = 0; i < N_MOST; i++) {
        b->ids[i] = (i * 40503u) % 128000;
        b->gaps[i] = (float)i / 16;
    }
    for (int replace = 0; replace < 2; replace++) {
        printf("%s\nsequences    plan encode  result decode  tokens encode    plan decode"
               "  result encode  bytes of the last three frames\n",
               replace ? "\n2 % of the sequences replaced in each step, µs" : "decode only, µs");
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            measure(b, counts[i], replace != 0);
    }
    arena_fini(&b->scratch);
    arena_fini(&b->in);
    strbuf_fini(&b->frame);
    mem_free(b);
    return 0;
}
