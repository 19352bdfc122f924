#include "cli/up/plan/worker.h"

#include <string.h>

#include "cli/up/plan/numa.h"

static const char *const devices[] = {"auto", "null", "cpu", "cuda"};
static const char *const cpu_isas[] = {"auto", "scalar", "avx2", "avx512", "neon"};
static const char *const kv_cache_dtypes[] = {"auto",
                                              "float32",
                                              "float16",
                                              "bfloat16",
                                              "fp8",
                                              "int8",
                                              "fp8_e4m3",
                                              "fp8_per_token_head",
                                              "int8_per_token_head"};
static const char *const dtypes[] = {"auto", "bfloat16", "float16", "half", "float32", "float"};
static const char *const load_formats[] = {"auto", "dummy", "safetensors", "gguf", "pt"};
static const char *const quantizations[] = {"none", "int8", "int4", "fp8"};
enum { N_QUANTIZATIONS = sizeof quantizations / sizeof *quantizations };
enum { N_LOAD_FORMATS = sizeof load_formats / sizeof *load_formats };

static void flags_of_numa(struct up_builder *b, struct up_child *c, uint32_t i)
{
    const struct up_numa u = up_numa_of(b->o, b->place, b->n_workers);
    struct up_numa_flags f;
    up_numa_flags(&u, i, &f);
    if (f.node)
        up_flag(c, "--numa-node", up_text(b, "%s", f.node));
    up_flag(c, "--cpus", f.cpus);
}

/* Returns the host at which other ranks reach the ranks on this machine, chosen as in
 * cox-worker. */
static const char *ranks_host(const struct up_options *o)
{
    return o->comm_host ? o->comm_host : up_reachable_host(o->head_host);
}

/* Writes the options of a worker that computes. Each worker gets its share of the cores, so that
 * ranks on one machine do not compete for them. */
static void flags_of_ranks(struct up_builder *b, struct up_child *c, uint32_t i)
{
    const struct up_options *o = b->o;
    if (o->device == UP_DEVICE_NULL ||
        (o->device == UP_DEVICE_AUTO && strcmp(b->model, "null") == 0))
        return;
    if (o->gpu_memory_utilization > 0)
        up_flag(c, "--gpu-memory-utilization", up_text(b, "%.15g", o->gpu_memory_utilization));
    if (o->enforce_eager)
        up_arg(c, "--enforce-eager");
    if (o->no_early_launch)
        up_arg(c, "--no-early-launch");
    if (o->no_one_shot)
        up_arg(c, "--no-one-shot");
    if (o->gpu >= 0)
        up_flag_int(b, c, "--gpu", o->gpu + i);
    up_flag(c, "--nccl-library", o->nccl_library);
    up_flag_int(b, c, "--step-timeout", o->step_timeout_s);
    const struct up_numa u = up_numa_of(o, b->place, b->n_workers);
    up_flag_int(b, c, "--threads", o->threads > 0 ? o->threads : up_numa_threads(&u, i));
    if (o->cpu_isa)
        up_flag(c, "--cpu-isa", cpu_isas[o->cpu_isa]);
    if (o->weights_share && strcmp(o->weights_share, "auto") != 0)
        up_flag(c, "--weights-share", o->weights_share);
    up_flag(c, "--comm-host", o->comm_host);
    if (o->comm_port > 0) { /* a single rank does not listen, and GPU ranks connect through NCCL */
        bool listening = o->tp * o->pp > 1 && o->device != UP_DEVICE_CUDA;
        const char *host = listening ? ranks_host(o) : NULL;
        up_listens(b, c, "'s ranks", "--comm-port", host, o->comm_port + i);
        up_flag_int(b, c, "--comm-port", o->comm_port + i);
    }
    if (o->no_shared_memory)
        up_arg(c, "--no-shared-memory");
    if (o->enable_expert_parallel)
        up_arg(c, "--enable-expert-parallel");
}

static void flags_of_speculation(struct up_builder *b, struct up_child *c)
{
    const struct speculation_options *s = &b->o->speculation;
    up_flag(c, "--speculative-config", s->config);
    up_flag(c, "--spec-method", s->method);
    up_flag(c, "--spec-model", s->model);
    up_flag_if(b, c, "--num-speculative-tokens", s->n_tokens);
    up_flag_if(b, c, "--ngram-prompt-lookup-max", s->lookup_max);
    up_flag_if(b, c, "--ngram-prompt-lookup-min", s->lookup_min);
    up_flag_if(b, c, "--speculative-disable-by-batch-size", s->disable_by_batch_size);
}

void up_build_worker(struct up_builder *b, struct up_child *c, uint32_t i)
{
    const struct up_options *o = b->o;
    c->role = UP_WORKER;
    const char *tag = b->place->model_tag;
    c->name = tag ? up_text(b, "worker-%s-%u", tag, i) : up_text(b, "worker-%u", i);
    up_listens(b, c, "", "--worker-http-port", "127.0.0.1", o->worker_http_port + i);
    up_common(b, c, "cox-worker");
    up_flag(c, "--model", b->model);
    up_flag(c, "--device", devices[o->device]);
    up_flag(c, "--head", up_heads(b));
    up_flag_int(b, c, "--ordinal", i);
    up_flag_int(b, c, "--tp", o->tp);
    up_flag_int(b, c, "--pp", o->pp);
    if (o->elastic_tp)
        up_arg(c, "--elastic-tp");
    up_flag_int(b, c, "--http-port", o->worker_http_port + i);
    if (o->kv_port != 0) {
        int64_t port = o->kv_port > 0 ? o->kv_port + i : o->kv_port;
        up_listens(b, c, "'s KV blocks", "--kv-port", ranks_host(o), port);
        up_flag_int(b, c, "--kv-port", port);
    }
    if (i < o->prefill_workers + o->decode_workers)
        up_flag(c, "--role", i < o->prefill_workers ? "prefill" : "decode");
    up_flag(c, "--cache-dir", o->cache_dir);
    up_flag(c, "--admin-key-file", o->admin_key_file);
    up_flag(c, "--zone", o->zone);
    if (o->served_model_names.n_items > 0)
        up_flag(c, "--served-model-name", o->served_model_names.items[0]);
    up_flag_if(b, c, "--max-model-len", o->max_model_len);
    up_flag_if(b, c, "--block-size", o->block_size);
    up_flag_if(b, c, "--num-gpu-blocks-override", o->num_gpu_blocks_override);
    up_flag_if(b, c, "--kv-cache-memory-bytes", o->kv_cache_memory_bytes);
    up_flag_if(b, c, "--grammar-room", o->grammar_room);
    if (o->kv_cache_dtype)
        up_flag(c, "--kv-cache-dtype", kv_cache_dtypes[o->kv_cache_dtype]);
    if (o->dtype)
        up_flag(c, "--dtype", dtypes[o->dtype]);
    if (o->load_format > 0 && o->load_format < N_LOAD_FORMATS)
        up_flag(c, "--load-format", load_formats[o->load_format]);
    if (o->quantization > 0 && o->quantization < N_QUANTIZATIONS)
        up_flag(c, "--quantization", quantizations[o->quantization]);
    up_flags_of_adapters(b, c);
    flags_of_speculation(b, c);
    flags_of_numa(b, c, i);
    flags_of_ranks(b, c, i);
    up_flag_if(b, c, "--vocab-size", o->vocab_size);
    if (o->null_step_us >= 0)
        up_flag_int(b, c, "--null-step-us", o->null_step_us);
    if (o->null_token_us >= 0)
        up_flag_int(b, c, "--null-token-us", o->null_token_us);
}
