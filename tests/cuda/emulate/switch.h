#pragma once
/* Switching stacks: a few instructions on x86-64 (the registers that a call preserves; signal masks
 * and floating-point modes are not a fiber's own), ucontext elsewhere. */
#include <stddef.h>

namespace emulate
{
/* What stack_switch takes as to: main begins on the stack when first switched to. main never
 * returns. */
void *stack_prepare(char *stack, size_t n_bytes, void (*main)());
/* Goes on at to; returns when somebody switches to what was put into *from. */
extern "C" void emulate_stack_switch(void **from, void *to);

inline void stack_switch(void **from, void *to)
{
    emulate_stack_switch(from, to);
}
} // namespace emulate
