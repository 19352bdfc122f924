#pragma once
/* Lists the values of --dtype and --kv-cache-dtype, for cox-worker and cox up. */

/* The values have the same order as ACTIVATION_DTYPES. A device chooses its own format for
 * computing, so this is only the format that the user expects. half and float are vLLM's names. */
enum activation_dtype {
    ACTIVATIONS_AUTO,
    ACTIVATIONS_BFLOAT16,
    ACTIVATIONS_FLOAT16,
    ACTIVATIONS_HALF,
    ACTIVATIONS_FLOAT32,
    ACTIVATIONS_FLOAT
};
#define ACTIVATION_DTYPES "auto|bfloat16|float16|half|float32|float"
#define ACTIVATION_DTYPE_HELP                                                                      \
    "Number format of the activations. auto: bfloat16 on a GPU, float32 on a CPU. A CPU "          \
    "multiplies in int8 by quantised weights and in bfloat16 by bfloat16 weights; float32 turns "  \
    "this off. A GPU accepts half (float16) with a warning and refuses float32. A CPU ignores "    \
    "bfloat16 and half with a warning."

/* The values have the same order as KV_CACHE_DTYPES. The last two are vLLM's names for our fp8
 * and int8: one scale for each token and head. */
enum kv_cache_dtype {
    KV_CACHE_AUTO,
    KV_CACHE_FLOAT32,
    KV_CACHE_FLOAT16,
    KV_CACHE_BFLOAT16,
    KV_CACHE_FP8,
    KV_CACHE_INT8,
    KV_CACHE_FP8_E4M3,
    KV_CACHE_FP8_PER_TOKEN_HEAD,
    KV_CACHE_INT8_PER_TOKEN_HEAD
};
#define KV_CACHE_DTYPES                                                                            \
    "auto|float32|float16|bfloat16|fp8|int8|fp8_e4m3|fp8_per_token_head|int8_per_token_head"
#define KV_CACHE_DTYPE_HELP                                                                        \
    "Number format of the KV cache. auto: bfloat16 on a GPU; on a CPU float16, or float32 for a "  \
    "float32 model. fp8 and int8 use one byte per number and a scale per token and head."
