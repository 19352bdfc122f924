#define ISA neon
#include "kernels/cpu/vec/neon.h"

#include "kernels/cpu/attention/attention_impl.h"
#include "kernels/cpu/attention/kv_store_impl.h"
