#include "switch.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
/* The switch ends with a `ret` like a call, so that calls and returns stay paired. The processor
 * then predicts the return address of lanes that switched at the same place. */
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
    /* The stack is made as a call of main leaves it: a return address (none) 8 bytes below a
     * multiple of 16. */
    char *top = reinterpret_cast<char *>(((uintptr_t)stack + n_bytes) & ~(uintptr_t)15);
    void *frame[8] = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, (void *)main, nullptr};
    return memcpy(top - sizeof frame, frame, sizeof frame);
}
} // namespace emulate
#else
#include <new>
#include <ucontext.h>

/* A context is on top of its own stack. A host thread has no such stack; its context is a local
 * variable. */
extern "C" void emulate_stack_switch(void **from, void *to)
{
    ucontext_t here;
    *from = &here; /* `here` is valid until a switch back, like this stack frame */
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
