#include "common/host/kernel.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N_DESCRIPTORS_OF_OLD_KERNELS = 65536 };

pid_t kernel_thread_id(void)
{
    return (pid_t)syscall(SYS_gettid); /* gettid() is new in glibc 2.30 */
}

void kernel_close_range(unsigned first, unsigned last)
{
    if (first > last)
        return;
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0) == 0)
        return;
#endif
    const long most = sysconf(_SC_OPEN_MAX); /* kernels before 5.9 have no close_range */
    unsigned end = N_DESCRIPTORS_OF_OLD_KERNELS;
    if (most > 0 && most < N_DESCRIPTORS_OF_OLD_KERNELS)
        end = (unsigned)most;
    for (unsigned fd = first; fd < end && fd <= last; fd++)
        (void)close((int)fd);
}

int kernel_signal_if(pid_t pid, int signal, bool (*lives)(const void *arg), const void *arg)
{
    int rc = 0;
#ifdef SYS_pidfd_open
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0) {
        if (lives(arg) && syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) != 0)
            rc = errno == ESRCH ? 0 : -1;
        const int saved = errno;
        (void)close(fd);
        errno = saved;
        return rc;
    }
    if (errno != ENOSYS)
        return errno == ESRCH ? 0 : -1;
#endif
    if (lives(arg) && kill(pid, signal) != 0)
        rc = errno == ESRCH ? 0 : -1;
    return rc;
}
