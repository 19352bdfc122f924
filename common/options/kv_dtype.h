#pragma once
/* --kv-cache-dtype of cox-worker and cox up. */

/* In the order of KV_CACHE_DTYPES. The last two are vLLM's names of what fp8 and int8 are here: a
 * scale for each token and head. */
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
    "numbers of the KV cache; auto: float16, of a float32 model float32. fp8, int8: a byte each, " \
    "with a scale for each token and head"
