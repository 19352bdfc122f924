#include "worker/executor/device/open.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/log.h"
#include "kernels/cuda/device/abi.h"
#include "worker/executor/device/cpu.h"
#include "worker/executor/device/cuda.h"
#include "worker/executor/device/null.h"
#include "worker/setup/options.h"

static enum status open_cuda(const struct worker_options *o, struct executor **out,
                             struct error *err)
{
    struct executor_found found = {0};
    enum status s = executor_cuda_find(o, &found, err);
    if (s != STATUS_OK)
        return error_prefix(err, s, "--device cuda");
    return executor_cuda_open(o, &found, out, err);
}

bool executor_gpu_node(const char *folder, char *out, size_t size)
{
    /* device nodes on Linux, and on Linux under Windows (WSL) */
    static const char *const names[] = {"nvidiactl", "dxg"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(out, size, "%s/%s", folder, names[i]);
        if (access(out, F_OK) == 0)
            return true;
    }
    return false;
}

/* Warns when the machine has a GPU that this build without CUDA cannot use. */
static void warn_of_unused_gpu(void)
{
    char node[64], reason[160];
    if (!executor_gpu_node("/dev", node, sizeof node))
        return;
    snprintf(reason, sizeof reason,
             "this machine has a GPU (%s), but this build has no CUDA backend", node);
    log_warn("gpu_not_used",
             "device=cpu reason=%s hint=\"make a build with CUDA by scripts/build cuda, or set "
             "--device cpu to silence this warning\"",
             log_quote(reason));
}

/* Opens a GPU when there is one, else the CPU. When the model does not fit on the GPU, the call
 * fails and does not fall back to the CPU. */
static enum status open_best(const struct worker_options *o, struct executor **out,
                             struct error *err)
{
    struct executor_found found = {0};
    struct error why;
    if (!gpu_is_built() && o->gpu < 0) {
        warn_of_unused_gpu();
        return executor_cpu_open(o, out, err);
    }
    enum status s = executor_cuda_find(o, &found, &why);
    if (s == STATUS_OK)
        return executor_cuda_open(o, &found, out, err);
    if (o->gpu >= 0) { /* --gpu selects this GPU, so there is no fallback */
        *err = why;
        return error_prefix(err, s, "--gpu %lld", (long long)o->gpu);
    }
    log_warn("gpu_not_used",
             "device=cpu reason=%s hint=\"set --device cuda to make this an error, or --device cpu "
             "to silence this warning\"",
             log_quote(why.text));
    return executor_cpu_open(o, out, err);
}

static enum status open_device(const struct worker_options *o, struct executor **out,
                               struct error *err)
{
    switch ((enum worker_device)o->device) {
    case WORKER_DEVICE_CUDA:
        return open_cuda(o, out, err);
    case WORKER_DEVICE_CPU:
        return executor_cpu_open(o, out, err);
    case WORKER_DEVICE_AUTO:
        return worker_options_are_null(o) ? executor_null_open(o, out, err)
                                          : open_best(o, out, err);
    case WORKER_DEVICE_NULL:
        return executor_null_open(o, out, err);
    }
    return error_set(err, STATUS_INVALID,
                     "--device: the device is unknown. Choose one that --help lists");
}

/* Checks the maximum length. A head refuses ranks outside these limits, and the worker would
 * connect again and again. An error here ends the process. */
static enum status check_length(uint32_t max_model_len, struct error *err)
{
    if (max_model_len >= 2 && max_model_len <= PROTO_MAX_IDS)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "--max-model-len %u is not possible: it must be from 2 (a prompt and an "
                     "answer) to %u tokens",
                     max_model_len, PROTO_MAX_IDS);
}

enum status executor_open(const struct worker_options *o, struct executor **out, struct error *err)
{
    TRY(open_device(o, out, err));
    enum status s = check_length((*out)->ops->info(*out)->limits.max_model_len, err);
    if (s != STATUS_OK) {
        (*out)->ops->close(*out);
        *out = NULL;
    }
    return s;
}
