#pragma once
/* Emulates the part of CUDA's runtime and language that kernels/cuda uses, on the host. The
 * unchanged sources of kernels/cuda are compiled as C++ for any machine
 * (tests/cuda/CMakeLists.txt). The emulation checks indexing, alignment, the order of sums and
 * rounding. It does not find races between blocks and says nothing about speed. Kernels are
 * launched by cudaLaunchKernelEx, because <<<>>> is not C++. */
#include "device.h"
#include "device_atomic.h"
#include "device_bits.h"
#include "device_math.h"
#include "launch.h"
