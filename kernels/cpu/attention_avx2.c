#define ISA avx2
#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/kv_store_impl.h"
