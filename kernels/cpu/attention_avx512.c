#define ISA avx512
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/kv_store_impl.h"
