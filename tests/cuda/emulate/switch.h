#pragma once
/* Switches between stacks. On x86-64, this needs a few instructions for the registers that a
 * call preserves; fibers share signal masks and floating-point modes. On other processors it
 * uses ucontext. */
#include <stddef.h>

namespace emulate
{
/* Returns the `to` argument for a first stack_switch, after which main begins on the stack. main
 * must never return. */
void *stack_prepare(char *stack, size_t n_bytes, void (*main)());
/* Continues at `to`. Returns after a switch back to the context stored in *from. */
extern "C" void emulate_stack_switch(void **from, void *to);

inline void stack_switch(void **from, void *to)
{
    emulate_stack_switch(from, to);
}
} // namespace emulate
