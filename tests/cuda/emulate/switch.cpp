#include "switch.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
/* Returns as it was called: calls and returns stay in pairs, and lanes that come from the same
 * place return to where the processor expects. */
asm(R"(
    .text
    .p2align 4
    .globl emulate_stack_switch
    .type emulate_stack_switch, @function
emulate_stack_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulate_stack_switch, . - emulate_stack_switch
)");

namespace emulate
{
void *stack_prepare(char *stack, size_t n_bytes, void (*main)())
{
    /* As a call of main leaves it: a return address (none) 8 bytes below a multiple of 16. */
    char *top = reinterpret_cast<char *>(((uintptr_t)stack + n_bytes) & ~(uintptr_t)15);
    void *frame[8] = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, (void *)main, nullptr};
    return memcpy(top - sizeof frame, frame, sizeof frame);
}
} // namespace emulate
#else
#include <new>
#include <ucontext.h>

/* A context lies on top of its own stack; that of a host thread, which has none here, is its own.
 */
extern "C" void emulate_stack_switch(void **from, void *to)
{
    ucontext_t here;
    *from = &here; /* stays until somebody switches back, as this frame does */
    swapcontext(&here, static_cast<ucontext_t *>(to));
}

namespace emulate
{
void *stack_prepare(char *stack, size_t n_bytes, void (*main)())
{
    const size_t size = n_bytes - sizeof(ucontext_t) - 64 & ~(size_t)63;
    char *at = reinterpret_cast<char *>(((uintptr_t)stack + size + 63) & ~(uintptr_t)63);
    ucontext_t *context = new (at) ucontext_t;
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = (size_t)(at - stack);
    context->uc_link = nullptr;
    makecontext(context, main, 0);
    return context;
}
} // namespace emulate
#endif
