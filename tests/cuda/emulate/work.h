#pragma once
/* For libraries that are emulated too. */
#include <functional>

#include "runtime.h"

namespace emulate
{
/* Runs in its turn in stream, or is captured; counts as a kernel. */
cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work);
} // namespace emulate
