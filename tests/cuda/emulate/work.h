#pragma once
/* For emulated libraries: a way to enqueue host code. */
#include <functional>

#include "runtime.h"

namespace emulate
{
/* Runs `work` in the stream's order, or captures it. It counts as a kernel. */
cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work);
} // namespace emulate
