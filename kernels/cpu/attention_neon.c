#define ISA neon
#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/kv_store_impl.h"
