#pragma once
/* Declares how emulated libraries enqueue host code. */
#include <functional>

#include "runtime.h"

namespace emulate
{
/* Runs `work` in the stream's order, or captures it. The work counts as a kernel. */
cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work);
} // namespace emulate
