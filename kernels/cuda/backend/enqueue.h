#pragma once
/* Declares the check that every operator makes before it enqueues work. */
#include "kernels/cuda/backend/state.h"

/* Sends uploads that are still pending. Returns true if no operation has failed so far. Use: if
 * (cuda_goes_on(x)) cuda_note(x, cuda_...(x->stream, p, &err), &err); */
bool cuda_goes_on(struct cuda_device *x);
