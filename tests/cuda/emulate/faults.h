#pragma once
/* Failures of the emulated device, for tests of what follows them. Plain C. The environment has
 * them too: COX_EMULATE_FAIL_LAUNCH=N, COX_EMULATE_FAIL_ALLOC=N, COX_EMULATE_REFUSE_CAPTURE=N
 * (counted from the start). Others:
 * COX_EMULATE_DEVICES (1), COX_EMULATE_MULTIPROCESSORS (4), COX_EMULATE_MEMORY_MB (2048, of each),
 * COX_EMULATE_TAKEN_MB (of it, by others), COX_EMULATE_NO_BLAS=1 (cuBLASLt does not start),
 * COX_EMULATE_NO_IPC=1 (no process opens another's memory), COX_EMULATE_NO_PEERS=1 (no device
 * reaches another),
 * COX_EMULATE_STREAMS=eager (work begins when it is enqueued, and not when somebody waits). */
#ifdef __cplusplus
extern "C" {
#endif
/* The n-th kernel that runs from now on (1: the next) fails, and its device with it, for good:
 * every later call returns cudaErrorLaunchFailure. 0: none. */
void emulate_fail_launch(unsigned n);
/* The n-th allocation of device memory from now on finds none. 0: none. */
void emulate_fail_alloc(unsigned n);
/* The n-th call of a capture's life from now on is refused, and the device works on: its begin,
 * each launch in it, its end, its instantiation, each launch of a graph. 0: none. What was left to
 * count of the call before: 0 when its refusal took place. */
unsigned emulate_refuse_capture(unsigned n);
/* cudaFuncSetAttribute made a kernel's limit of shared memory smaller so often: what was captured
 * before may not fit any more. */
unsigned emulate_n_limits_lowered(void);
/* Kernels' code is of this PTX version (90 unless told; 80: compiled for an older device). */
void emulate_set_code(int ptx_version);
/* Lost devices are new ones; their memory is as it was. */
void emulate_devices_reset(void);
/* Kernels that ran, replays of graphs included. */
unsigned long long emulate_n_launches(void);
/* What the host has enqueued in streams since the start, but what a capture kept: a graph's launch
 * is one graph, whatever is in it. */
struct emulate_enqueued {
    unsigned long long kernels, copies, graphs; /* copies: and what sets memory */
};
void emulate_n_enqueued(struct emulate_enqueued *out);
/* Operations of the tensor cores' instruction and of cuBLASLt's products (a product and its sum are
 * two) that ran since the start. */
unsigned long long emulate_n_operations(void);
/* Times that cuBLASLt was asked for an algorithm. */
unsigned long long emulate_n_algorithms(void);
#ifdef __cplusplus
}
#endif
