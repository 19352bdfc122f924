#pragma once
/* Declares failures of the emulated device, for tests of error handling. The header is plain C.
 * The environment can set failures too, counted from the start of the process:
 * COX_EMULATE_FAIL_LAUNCH=N, COX_EMULATE_FAIL_ALLOC=N, COX_EMULATE_REFUSE_CAPTURE=N. Other
 * variables:
 *   COX_EMULATE_DEVICES          number of devices (1)
 *   COX_EMULATE_MULTIPROCESSORS  of each device (4)
 *   COX_EMULATE_MEMORY_MB        memory of each device (2048)
 *   COX_EMULATE_TAKEN_MB         part of that memory that other processes use
 *   COX_EMULATE_NO_BLAS=1        cuBLASLt does not start
 *   COX_EMULATE_NO_IPC=1         no process can open another's memory
 *   COX_EMULATE_NO_PEERS=1       no device can reach another
 *   COX_EMULATE_STREAMS=eager    work begins when it is enqueued, not when it is waited for */
#ifdef __cplusplus
extern "C" {
#endif
/* Makes the n-th kernel from now on (1: the next) fail. The device of that kernel is lost then:
 * every later call returns cudaErrorLaunchFailure. With 0, no kernel fails. */
void emulate_fail_launch(unsigned n);
/* Makes the n-th allocation of device memory from now on fail. With 0, no allocation fails. */
void emulate_fail_alloc(unsigned n);
/* Makes the n-th call of a capture from now on fail, while the device still works: the begin,
 * each launch, the end, the instantiation, and each launch of a graph. With 0, no call fails.
 * Returns the rest of the previous count, which is 0 if that refusal took place. */
unsigned emulate_refuse_capture(unsigned n);
/* Returns how often cudaFuncSetAttribute lowered a kernel's limit of shared memory. Work that
 * was captured before may not fit any more. */
unsigned emulate_n_limits_lowered(void);
/* Sets the PTX version of the kernels' code (default 90; 80: compiled for an older device). */
void emulate_set_code(int ptx_version);
/* Makes lost devices work again; their memory is unchanged. */
void emulate_devices_reset(void);
/* Returns the number of kernels that ran, including replays of graphs. */
unsigned long long emulate_n_launches(void);
/* `emulate_enqueued` counts the work that the host has enqueued in streams since the start,
 * without captured work. A launch of a graph counts as one graph. */
struct emulate_enqueued {
    /* numbers of operations; copies include memory sets */
    unsigned long long kernels, copies, graphs;
};
void emulate_n_enqueued(struct emulate_enqueued *out);
/* Returns the operations of the tensor cores' instruction and of cuBLASLt's products since the
 * start. Each product and each sum is one operation. */
unsigned long long emulate_n_operations(void);
/* Returns how often cuBLASLt was queried for an algorithm. */
unsigned long long emulate_n_algorithms(void);
#ifdef __cplusplus
}
#endif
