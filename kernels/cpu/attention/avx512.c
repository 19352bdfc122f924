#define ISA avx512
#include "kernels/cpu/vec/avx512.h"

#include "kernels/cpu/attention/attention_impl.h"
#include "kernels/cpu/attention/kv_store_impl.h"
