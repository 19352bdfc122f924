#define ISA avx2
#include "kernels/cpu/vec/avx2.h"

#include "kernels/cpu/attention/attention_impl.h"
#include "kernels/cpu/attention/kv_store_impl.h"
