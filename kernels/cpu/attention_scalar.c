#define ISA scalar
#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/kv_store_impl.h"
