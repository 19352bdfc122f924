#include "common/options/groups.h"

const struct option_group option_groups[] = {
    {"model", "Model",
     "model* served-model-name* max-model-len* quantization* dtype load-format chat-template "
     "generation-config revision cache-dir offline"},
    {"addresses", "Addresses and ports",
     "host* port* uds head* head-host head-port advertise-host admin-host admin-port* "
     "gateway-admin-host gateway-admin-port http-host http-port worker-http-port comm-host "
     "comm-port kv-port root-path allowed-hosts"},
    {"size", "Size and parallelism",
     "workers* ranks* tp* pp dp* gateways max-groups prefill-workers decode-workers role* ordinal "
     "enable-expert-parallel elastic-tp elastic-tp-wait zone"},
    {"device", "Devices",
     "device* gpu* gpu-memory-utilization* threads* cpu-isa numa-bind numa-bind-nodes "
     "numa-bind-cpus numa-node cpus enforce-eager no-early-launch no-one-shot no-shared-memory "
     "weights-share nccl-library step-timeout"},
    {"scheduling", "Scheduling",
     "max-num-seqs* max-num-batched-tokens enable-prefix-caching async-scheduling "
     "scheduling-policy long-prefill-token-threshold max-num-partial-prefills step-target-ms "
     "max-waiting max-waiting-per-key max-request-bytes"},
    {"kv-cache", "KV cache",
     "kv-cache-dtype kv-cache-memory-bytes num-gpu-blocks-override block-size"},
    {"speculation", "Speculative decoding",
     "speculative-config spec-method spec-model num-speculative-tokens ngram-prompt-lookup-max "
     "ngram-prompt-lookup-min speculative-disable-by-batch-size"},
    {"lora", "LoRA adapters", "enable-lora* lora-modules max-loras max-lora-rank lora-root"},
    {"answers", "Reasoning, tools and structured output",
     "reasoning-parser tool-call-parser* enable-auto-tool-choice* trust-request-chat-template "
     "max-logprobs pooler-config unknown-fields structured-outputs-config disable-any-whitespace "
     "grammar-processes grammar-memory grammar-room"},
    {"keys", "Keys and encryption",
     "api-key* api-key-file keys-dir* join* admin-key-file insecure allow-remote-insecure "
     "ssl-certfile ssl-keyfile ssl-keyfile-password ssl-ca-certs ssl-cert-reqs ssl-ciphers "
     "enable-ssl-refresh"},
    {"http", "HTTP",
     "sse-keep-alive-interval chunk-timeout enable-request-id-headers no-chat-page allowed-origins "
     "allowed-methods allowed-headers allow-credentials"},
    {"limits", "Limits and waiting times",
     "queue-timeout head-timeout pause-timeout max-connections max-open-choices max-body-bytes "
     "max-body-bytes-total max-answer-bytes-total min-transfer-rate transfer-timeout "
     "tokenizer-threads tokenizer-queue"},
    {"batches", "Files and batches", "state-dir max-state-bytes batch-lines"},
    {"failover", "Failures, standby and shutdown",
     "redis standby standby-port standby-admin-port cluster-name lease-ttl peer-timeout "
     "startup-timeout shutdown-timeout shutdown-delay drain-timeout"},
    {"scaling", "Autoscaling",
     "scale-min scale-max scale-ttft-ms scale-calm-s scale-idle-s scale-start-s scale-settle-s "
     "wake-by-order"},
    {"sagemaker", "SageMaker", "sagemaker invocations invocations-statuses"},
    {"monitoring", "Logs, metrics and traces",
     "log-level log-format color stats-interval stats-format access-log metrics-public "
     "otlp-traces-endpoint otlp-service-name otlp-sampling step-log step-log-max-bytes runs"},
    {"models", "Several models",
     "models on-demand idle-timeout idle-sleep-level models-memory spares"},
    {"local", "Local cluster", "detach* name* verbose print-pids"},
    {"null", "Null device and tests",
     "vocab-size null-step-us null-token-us null-fail-join null-load-ms null-stall-after-step "
     "null-die-at-id null-draft-percent null-elastic-blocks"},
    {0},
};

const struct option_group plan_option_groups[] = {
    {"target", "Where the model is to run",
     "gpu* instance* device* tp* pp* enable-expert-parallel memory-bytes gpu-memory-utilization "
     "threads batch* context*"},
    {"model", "Model",
     "max-model-len* quantization* kv-cache-dtype* kv-cache-memory-bytes num-gpu-blocks-override "
     "block-size enable-lora max-loras max-lora-rank cache-dir offline"},
    {"shape", "A model without files",
     "params* active-params dtype layers hidden heads kv-heads head-dim intermediate vocab-size "
     "activation-bytes overhead-bytes"},
    {"output", "Output", "json* served-model-name"},
    {0},
};
