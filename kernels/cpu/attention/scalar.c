#define ISA scalar
#include "kernels/cpu/vec/scalar.h"

#include "kernels/cpu/attention/attention_impl.h"
#include "kernels/cpu/attention/kv_store_impl.h"
