#pragma once
/* Holds what tests of the runner share: a tiny model on the CPU and on a GPU, and passes of
 * several sequences over this model. */
#include <math.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "tests/cuda/rig/gpu_numbers.h"
#include "tests/cuda/rig/needs_device.h"
#include "worker/engine/engine.h"

#include "tests/unit/worker/tiny_model.c"

enum { BLOCK = 16, N_BLOCKS = 64, PASS_ROWS = 256, MOST_SEQUENCES = 16, RIG_MAX_RANK = 8 };
/* NEAR is the error bound of a row of logits, as a fraction of the row's spread. Weights and the
 * result of every operator are rounded. */
#define NEAR 0.06

static _Atomic uint64_t progress;
static _Atomic bool interrupt;
static unsigned n_checks, n_failures;

struct side {
    struct device *device;
    struct engine *engine;
};

struct pass {
    struct row_batch b;
    uint32_t ids[PASS_ROWS], positions[PASS_ROWS], adapters[PASS_ROWS];
    struct kv_row rows[PASS_ROWS];
    /* `sampled` holds the last row of each sequence. */
    uint32_t sampled[MOST_SEQUENCES], n_sampled;
};

static inline void expect(bool ok, const char *what)
{
    n_checks++;
    n_failures += !ok;
    if (!ok)
        printf("FAILED: %s\n", what);
}

/* Opens a side's engine. n_loras is the number of adapters that may be loaded, with ranks up to
 * RIG_MAX_RANK. pass_rows is at most PASS_ROWS. */
static inline void open_engine_of(struct side *s, const char *folder, uint32_t n_loras,
                                  enum worker_load_format load_format, uint32_t pass_rows)
{
    struct error err;
    must(engine_open(&(struct engine_setup){.model = folder,
                                            .load_format = load_format,
                                            .tp = 1,
                                            .device = s->device,
                                            .kv_dtype_set = true,
                                            .kv_dtype = DTYPE_F32,
                                            .block_tokens = BLOCK,
                                            .pass_rows = pass_rows,
                                            .n_kv_blocks = N_BLOCKS,
                                            .max_loras = n_loras,
                                            .max_lora_rank = RIG_MAX_RANK,
                                            .progress = &progress,
                                            .interrupt = &interrupt},
                     &s->engine, &err),
         &err, "engine");
}

static inline void open_engine(struct side *s, const char *folder, uint32_t n_loras)
{
    open_engine_of(s, folder, n_loras, WORKER_LOAD_AUTO, PASS_ROWS);
}

/* Returns the block table of sequence i, which has four blocks in an arbitrary order. */
static inline const uint32_t *table_of(uint32_t i_sequence)
{
    static uint32_t tables[MOST_SEQUENCES][4];
    for (uint32_t k = 0; k < 4; k++)
        tables[i_sequence][k] = (i_sequence * 4 + k) * 7 % N_BLOCKS;
    return tables[i_sequence];
}

/* Makes a pass of n[i] rows of sequence i, from position from[i] on. */
static inline void make_pass(struct pass *p, uint32_t n_sequences, const uint32_t *from,
                             const uint32_t *n)
{
    memset(p, 0, sizeof *p);
    for (uint32_t s = 0; s < n_sequences; s++) {
        for (uint32_t k = 0; k < n[s]; k++) {
            uint32_t i = p->b.n_rows++;
            p->positions[i] = from[s] + k;
            p->ids[i] = (p->positions[i] * 37 + s * 11) % TINY_VOCAB;
            p->rows[i] = (struct kv_row){.blocks = table_of(s), .position = p->positions[i]};
        }
        p->sampled[p->n_sampled++] = p->b.n_rows - 1;
    }
    p->b.ids = p->ids;
    p->b.positions = p->positions;
    p->b.kv_rows[0] = p->b.kv_rows[1] = p->rows;
}

static inline double share_of_spread(const float *got, const float *want)
{
    double mean = 0, spread = 0, squares = 0;
    for (uint32_t i = 0; i < TINY_VOCAB; i++)
        mean += (double)want[i] / TINY_VOCAB;
    for (uint32_t i = 0; i < TINY_VOCAB; i++) {
        double d = (double)got[i] - (double)want[i], w = (double)want[i] - mean;
        squares += d * d;
        spread += w * w;
    }
    return sqrt(squares / spread);
}

/* Opens the GPU and the CPU, and makes `folder` for a model. Ends the process when there is no
 * GPU. */
static inline void open_sides(struct side *cpu, struct side *gpu, char *folder)
{
    struct error err;
    needs_device();
    must(cuda_device_open(&(struct cuda_device_options){.utilization = 0.5, .n_threads = 1},
                          &gpu->device, &err),
         &err, "device");
    must(cpu_device_open(&(struct cpu_device_options){.n_threads = 1, .isa_level = -1},
                         &cpu->device, &err),
         &err, "CPU");
    if (!mkdtemp(folder))
        exit(1);
}
