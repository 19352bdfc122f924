#pragma once
/* The question that every operator asks before it enqueues anything. */
#include "kernels/cuda/backend/state.h"

/* Sends what was uploaded and not sent yet; true while nothing has failed. Use: if
 * (cuda_goes_on(x)) cuda_note(x, cuda_...(x->stream, p, &err), &err); */
bool cuda_goes_on(struct cuda_device *x);
