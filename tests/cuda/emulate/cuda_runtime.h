#pragma once
/* The part of CUDA's runtime and language that kernels/cuda uses, on the host: its sources, as they
 * are, become C++ that any machine runs (tests/cuda/CMakeLists.txt). It checks indexing, alignment,
 * the order of sums and rounding; it knows nothing of races between blocks or of speed. Kernels are
 * launched by cudaLaunchKernelEx: <<<>>> is no C++. */
#include "device.h"
#include "device_atomic.h"
#include "device_bits.h"
#include "device_math.h"
#include "launch.h"
