#include "common/host/thread.h"

#include <linux/sched/types.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/host/kernel.h"

void thread_begin(const char *name, int niceness)
{
    (void)prctl(PR_SET_NAME, name, 0, 0, 0);
    if (niceness == 0)
        return;
    /* Linux applies setpriority to a single thread when it is given the thread's id */
    const id_t self = (id_t)kernel_thread_id();
    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + niceness);
}

void thread_set_slice(uint64_t slice_ns)
{
    struct sched_attr a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0)
        return;
    /* only the slice changes, because `a` keeps the niceness from sched_getattr */
    a.sched_runtime = slice_ns;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}
