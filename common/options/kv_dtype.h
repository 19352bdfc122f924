#pragma once
/* Values of --dtype and --kv-cache-dtype, for cox-worker and cox up. */

/* Same order as ACTIVATION_DTYPES. A device chooses its own format for computing, so this is
 * only the format that the user expects. half and float are vLLM's names. */
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
    "numbers of the activations: a GPU's are bfloat16 and a CPU's float32, which auto means, but " \
    "int8 with a scale for each 32 where a CPU multiplies quantised weights, bfloat16 where it "   \
    "multiplies bfloat16 ones; float32 (float): there too; a CPU takes the others with a "         \
    "warning, a GPU half (float16), and refuses float32"

/* Same order as KV_CACHE_DTYPES. The last two are vLLM's names for our fp8 and int8: one scale
 * for each token and head. */
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
    "numbers of the KV cache; auto: bfloat16 on a GPU, on a CPU float16, of a float32 model "      \
    "float32. fp8, int8: a byte each, with a scale for each token and head"
