#include "cli/commands/tables.h"

/* `bench_option_groups` lists the option groups of all benchmarks. Each benchmark's table
 * contains some of their options. */
const struct option_group bench_option_groups[] = {
    {"server", "Server",
     "backend* model* served-model-name base-url* host port endpoint uds header api-key* cacert "
     "cert key insecure tokenizer*"},
    {"engine", "Cluster that the benchmark starts",
     "tensor-parallel-size* pipeline-parallel-size data-parallel-size device* dtype max-model-len "
     "max-num-seqs max-num-batched-tokens gpu-memory-utilization kv-cache-dtype quantization "
     "load-format threads speculative-config"},
    {"load", "Load",
     "num-prompts* request-rate* max-concurrency* burstiness ramp-up-strategy ramp-up-start-rps "
     "ramp-up-end-rps num-warmups ready-check-timeout-sec batch-size* n num-iters* "
     "num-iters-warmup num-iters-cold num-iters-warm"},
    {"dataset", "Dataset",
     "dataset-name* dataset-path* seed input-len* output-len* random-input-len* "
     "random-output-len* random-range-ratio random-prefix-len sharegpt-output-len "
     "sonnet-input-len sonnet-output-len sonnet-prefix-len custom-output-len disable-shuffle "
     "no-oversample"},
    {"sampling", "Requests",
     "ignore-eos* temperature* top-p top-k min-p frequency-penalty presence-penalty "
     "repetition-penalty logprobs extra-body request-id-prefix lora-modules lora-assignment"},
    {"results", "Results",
     "percentile-metrics* metric-percentiles* goodput plot histogram save-result* save-detailed "
     "append-result result-dir result-filename label metadata output-json* disable-tqdm"},
    {0},
};
