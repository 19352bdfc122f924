#pragma once
/* Defines help texts that the option tables of several programs share. The texts with UP_ are for
 * `cox up` and for the benchmarks that start a cluster, which pass these options on to `cox up`. */

#define TP_HELP "Tensor parallel size: the number of ranks that share every layer."
#define PP_HELP "Pipeline parallel size: the number of stages that the layers are divided into."
#define MAX_MODEL_LEN_HELP                                                                         \
    "Maximum length of a sequence, prompt and answer together, in tokens. 0 = the model's "        \
    "maximum."
#define UP_DP_HELP                                                                                 \
    "Number of replicas that serve in parallel. With 2 or more, workers of --workers that no "     \
    "replica needs are spares."
#define UP_DEVICE_HELP                                                                             \
    "Device that computes. auto: a GPU if there is one, else the CPU. null: no computation, for "  \
    "the model null."
#define UP_MAX_NUM_SEQS_HELP "Maximum number of sequences in one step. 0 = the head's default, 256."
#define UP_MAX_BATCHED_TOKENS_HELP                                                                 \
    "Maximum number of tokens in one step. 0 = the head's default, 8192."
#define UP_LOAD_FORMAT_HELP                                                                        \
    "Format of the weights to read. auto: the format that the model has. dummy: random weights "   \
    "in the shapes of config.json. stream and runai_streamer: read a remote model (s3://, hf:, "   \
    "https:) into memory without writing it to disk. hf and fastsafetensors: the same as auto."
#define UP_THREADS_HELP                                                                            \
    "Number of host threads of each worker, which compute on a CPU and pack weights for a GPU. 0 " \
    "= divide the cores of this machine among the workers."
#define GPU_MEMORY_HELP(who)                                                                       \
    "Fraction of the GPU's total memory that " who                                                 \
    " may use, less the memory that other processes use."
#define UP_GPU_MEMORY_HELP GPU_MEMORY_HELP("each worker") " 0 = the worker's default, 0.92."
#define QUANTIZATION_HELP                                                                          \
    "Number format to which float32, float16 and bfloat16 weights are converted while they are "   \
    "loaded. int8 and int4 have one scale per 32 numbers, fp8 (e4m3) has one per output."
#define SPECULATIVE_CONFIG_HELP                                                                    \
    "Settings of speculative decoding, as vLLM's JSON, for example "                               \
    "{\"method\":\"ngram\",\"num_speculative_tokens\":4}."
#define MODEL_HELP                                                                                 \
    "Model: a GGUF file, a folder, null, demo, or a name that `cox pull` takes (ORG/NAME). `cox` " \
    "downloads it if it is missing."
#define ENFORCE_EAGER_HELP "Launch the operators of a GPU step one by one, without CUDA graphs."
#define NO_ONE_SHOT_HELP                                                                           \
    "Use NCCL also for small all-reduces, instead of memory that the GPUs of one host share. "     \
    "This is slower; use it for debugging."
#define NO_EARLY_LAUNCH_HELP                                                                       \
    "Start each GPU kernel only after the kernel before it has ended (no programmatic dependent "  \
    "launch). This is slower; use it for debugging."
#define WEIGHTS_SHARE_HELP                                                                         \
    "Keep the packed weights of a CPU in memory once for all workers of this host that load the "  \
    "same part of the same model. auto: the workers find each other in /dev/shm. DIR: they find "  \
    "each other in this folder. off: each worker has a copy."
