#pragma once
/* Holds what the tests of the emulation share: counted checks, launches, and checks that a
 * process ends, which run in a child. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{
const char *checks_file;
unsigned n_checks, n_failures;

void checks_begin(const char *file)
{
    checks_file = file;
}

int checks_end()
{
    printf("%s: %u checks, %u failures\n", checks_file, n_checks, n_failures);
    return n_failures || !n_checks ? 1 : 0;
}

void check(bool ok, const char *what, int line)
{
    n_checks++;
    if (!ok && n_failures++ < 20)
        fprintf(stderr, "%s:%d: FAILED %s\n", checks_file, line, what);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

/* Launches a kernel in a stream, without waiting for it. */
template <class... P, class... A>
cudaError_t enqueue(cudaStream_t s, dim3 grid, dim3 block, void (*kernel)(P...), A... args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = block, config.stream = s;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

/* Launches a kernel in the default stream. The kernel has run when the call returns. */
template <class... P, class... A>
void launch(dim3 grid, dim3 block, size_t n_shared, void (*kernel)(P...), A... args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = n_shared;
    CHECK(cudaLaunchKernelEx(&config, kernel, args...) == cudaSuccess);
}

/* Checks that `body` ends the process with a failure and prints `words`. */
inline void check_dies(void (*body)(), const char *words, int line)
{
    int ends[2];
    char text[4096] = "";
    if (pipe(ends) != 0)
        abort();
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n < sizeof text - 1; n += (size_t)got)
        if ((got = read(ends[0], text + n, sizeof text - 1 - n)) <= 0)
            break;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    check(WIFSIGNALED(status) || WEXITSTATUS(status) != 0, words, line);
    check(strstr(text, words) != nullptr, text, line);
}
#define CHECK_DIES(body, words) check_dies(body, words, __LINE__)
} // namespace
