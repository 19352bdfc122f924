#include "worker/spare.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/config/config.h"
#include "common/loop/handover.h"
#include "worker/executor/device/cuda.h"
#include "worker/setup/bind.h"
#include "worker/setup/options.h"

extern char **environ;

static int fail(enum status s, const struct error *err)
{
    log_error("start_failed", "status=%s error=%s", status_name(s), log_quote(err->text));
    return status_is_configuration(s) ? 2 : 1;
}

/* Opens the GPU. The process is bound before, because that makes threads and memory. Without a GPU
 * there is nothing to open. --numa-node auto then depends on the worker, which binds itself. */
static enum status warm(const struct worker_options *o, struct error *err)
{
    char pci[32];
    bool is_made;
    TRY(executor_cuda_look(o, err));
    executor_cuda_pci(o, pci, sizeof pci);
    if (pci[0] || (o->numa_node && strcmp(o->numa_node, "auto") != 0) || o->cpus)
        TRY(bind_process(o, "", pci, err));
    TRY(executor_cuda_warm(o, &is_made, err));
    log_info("spare_waits", "context=%s", is_made ? "true" : "false");
    return STATUS_OK;
}

/* The worker must not read the socket. */
static void leave_stdin(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)dup2(fd, STDIN_FILENO);
        close(fd);
    }
}

int spare_wait(int *argc, char ***argv)
{
    static struct handover handover;
    struct worker_options o = {0};
    struct config_result res = {0};
    struct error err = {0};
    enum status s = config_parse(worker_option_specs, worker_n_option_specs, *argc, *argv, environ,
                                 &o, &res, &err);
    log_init("spare", (enum log_level)o.log_level, (enum log_format)o.log_format);
    if (s == STATUS_OK)
        s = warm(&o, &err);
    config_fini(&res);
    if (s == STATUS_OK) {
        handover_offer(STDIN_FILENO);
        s = handover_receive(STDIN_FILENO, &handover, &err);
    }
    if (s == STATUS_CLOSED)
        return 0;
    if (s != STATUS_OK)
        return fail(s, &err);
    leave_stdin();
    *argc = handover.argc;
    *argv = handover.argv;
    return -1;
}
