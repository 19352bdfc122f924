#pragma once
/* The most that the device itself can do, measured in the run that is judged by it (all GPU
 * benches).
 *
 * copy: bytes read and written by the second, of 1 GiB from one place of the device to another: the
 * faster one of the driver's copy and of a kernel that copies (kernels/cuda/device/copy.cu). Many
 * times what any cache holds. gemm: operations (2 n m k) by the second, of a product of bfloat16 by
 * cuBLASLt, 8192 each way, with the algorithm that products of the backend get. Numbers that are no
 * zeros: a product's rate depends on the power that it takes. link: bytes by the second from pinned
 * memory of the host to the device.
 *
 * Medians of rounds; the link's is the best round, which is the harder bar. Programs end here when
 * something fails: exit status 77 without a device, else 1. */
#include "bench/gpu/bars.h"
#include "kernels/cuda/linear/abi.h"

struct ceilings {
    struct gpu_info info;
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct gpu_linear *linear;
    bool is_emulated;        /* then all of it is tiny */
    uint64_t n_copy;         /* bytes of each of the two rooms */
    uint32_t side;           /* of the square product */
    void *from, *to, *space; /* [n_copy]: numbers, anything; scratch of cuBLASLt, n_space bytes */
    uint64_t n_space;
    double copy_rate, gemm_rate, driver_rate, kernel_rate; /* by ceilings_measure; the last two: the
                                                              two copies */
};

/* Ends the program unless s is STATUS_OK. */
void must(enum status s, const struct error *err, const char *what);

/* Opens GPU 0, prints "device: NAME" and makes the rooms. program: static, of messages. */
void ceilings_open(struct ceilings *c, const char *program);
/* Rounds of copies and products in turn; prints a line. */
void ceilings_measure(struct ceilings *c);
void ceilings_close(struct ceilings *c);

/* Seconds of one call, the mean of n of them, which follow each other. */
double ceilings_copy_seconds(struct ceilings *c, uint32_t n);   /* of n_copy bytes, the driver's */
double ceilings_kernel_seconds(struct ceilings *c, uint32_t n); /* the kernel's */
double ceilings_gemm_seconds(struct ceilings *c, uint32_t n);
double ceilings_link_rate(struct ceilings *c);

/* Random bits with exponents of ordinary size, as bfloat16, as float or as e4m3. */
void ceilings_fill(struct gpu_stream *s, void *device, uint64_t n_bytes);
/* Filled memory of the device. */
void *ceilings_room(struct ceilings *c, uint64_t n_bytes);

/* Sorts x and gives the one in the middle. */
double ceilings_median(double *x, uint32_t n);
