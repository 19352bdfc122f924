#pragma once
/* Computes act(gate) * up in float, for each value of enum activation (kernels/op_params.h). The
 * operator `gated` computes it from bfloat16 rows, and a product of gate and up from its own
 * sums. */
#include "kernels/cuda/device/common.cuh"

__device__ __forceinline__ float activation_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

template <enum activation ACT>
__device__ __forceinline__ float activation_of(float gate, float up, float limit)
{
    if (ACT == ACT_SILU)
        return gate * activation_sigmoid(gate) * up;
    if (ACT == ACT_GELU_TANH) {
        const float inner = gate + 0.044715f * gate * gate * gate;
        return 0.5f * gate * (1.0f + tanhf(0.7978845608028654f * inner)) * up;
    }
    gate = fminf(gate, limit);
    up = fmaxf(fminf(up, limit), -limit);
    return gate * activation_sigmoid(1.702f * gate) * (up + 1.0f);
}

/* Computes act(gate) * up with the activation as an argument of the launch. */
__device__ __forceinline__ float activation_of(enum activation act, float gate, float up,
                                               float limit)
{
    return act == ACT_SILU        ? activation_of<ACT_SILU>(gate, up, limit)
           : act == ACT_GELU_TANH ? activation_of<ACT_GELU_TANH>(gate, up, limit)
                                  : activation_of<ACT_SWIGLU_LIMITED>(gate, up, limit);
}
