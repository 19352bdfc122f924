#pragma once
/* Measures limits of the device itself, in the run whose figures are judged by these limits (all
 * GPU benches).
 *
 * copy: bytes read and written per second, for a copy of 1 GiB within the device. The result is
 * the faster of the driver's copy and a copying kernel (kernels/cuda/device/copy.cu). The size
 * is many times that of any cache.
 * gemm: operations (2 n m k) per second of a bfloat16 product by cuBLASLt, 8192 each way, with
 * the algorithm that the backend's products use. The numbers are not zeros: a product's rate
 * depends on the power that it draws.
 * link: bytes per second from pinned host memory to the device.
 *
 * Figures are medians of rounds. Only the link's figure is the best round, which makes its bar
 * stricter. A failure ends the program: exit status 77 without a device, else 1. */
#include "bench/gpu/bars.h"
#include "kernels/cuda/linear/abi.h"

struct ceilings {
    struct gpu_info info;
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct gpu_linear *linear;
    bool is_emulated; /* all sizes are then tiny */
    uint64_t n_copy;  /* bytes of `from`, and also of `to` */
    uint32_t side;    /* side of the square product */
    /* from, to: n_copy bytes each for numbers and results; space: n_space bytes for cuBLASLt */
    void *from, *to, *space;
    uint64_t n_space;
    /* ceilings_measure sets these rates; driver_rate and kernel_rate belong to the two copies */
    double copy_rate, gemm_rate, driver_rate, kernel_rate;
};

/* Ends the program unless s is STATUS_OK. */
void must(enum status s, const struct error *err, const char *what);

/* Opens GPU 0, prints "device: NAME" and allocates the buffers. program: the program's name for
 * messages, a static string. */
void ceilings_open(struct ceilings *c, const char *program);
/* Measures rounds of copies and products in turn; prints the medians in one line. */
void ceilings_measure(struct ceilings *c);
void ceilings_close(struct ceilings *c);

/* The functions below return the seconds of one call, the mean of n calls in a row. */
/* Measures the driver's copy of n_copy bytes. */
double ceilings_copy_seconds(struct ceilings *c, uint32_t n);
/* Measures the kernel's copy of n_copy bytes. */
double ceilings_kernel_seconds(struct ceilings *c, uint32_t n);
double ceilings_gemm_seconds(struct ceilings *c, uint32_t n);
double ceilings_link_rate(struct ceilings *c);

/* Fills memory with random bits whose exponents are ordinary as bfloat16, as float and as e4m3. */
void ceilings_fill(struct gpu_stream *s, void *device, uint64_t n_bytes);
/* Allocates device memory and fills it with ceilings_fill. */
void *ceilings_room(struct ceilings *c, uint64_t n_bytes);

/* Sorts x and returns its median. */
double ceilings_median(double *x, uint32_t n);
