/* Loads libnccl with dlopen. A worker of one rank needs no NCCL, and a program linked with
 * libnccl would not start without it. The library stays loaded, because it has threads. It reads
 * the NCCL_* environment variables itself. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/comm/nccl_state.h"
#include "kernels/cuda/device/find_library.h"

#define DEFAULT_LIBRARY "libnccl.so.2"
/* MIN_VERSION is the first version with ncclCommSplit and with communicators that share their
 * parent's abort mark. */
enum { MIN_VERSION = 21800 };

static const struct symbol {
    const char *name;
    size_t offset;
} symbols[] = {
    {"ncclGetVersion", offsetof(struct nccl_api, get_version)},
    {"ncclGetUniqueId", offsetof(struct nccl_api, get_unique_id)},
    {"ncclGetErrorString", offsetof(struct nccl_api, get_error_string)},
    {"ncclGetLastError", offsetof(struct nccl_api, get_last_error)},
    {"ncclCommInitRankConfig", offsetof(struct nccl_api, comm_init_rank_config)},
    {"ncclCommSplit", offsetof(struct nccl_api, comm_split)},
    {"ncclCommGetAsyncError", offsetof(struct nccl_api, comm_get_async_error)},
    {"ncclCommAbort", offsetof(struct nccl_api, comm_abort)},
    {"ncclGroupStart", offsetof(struct nccl_api, group_start)},
    {"ncclGroupEnd", offsetof(struct nccl_api, group_end)},
    {"ncclAllReduce", offsetof(struct nccl_api, all_reduce)},
    {"ncclBroadcast", offsetof(struct nccl_api, broadcast)},
    {"ncclSend", offsetof(struct nccl_api, send)},
    {"ncclRecv", offsetof(struct nccl_api, recv)},
};

static enum status find_symbols(struct nccl_comm *c, void *handle, const char *library,
                                struct error *err)
{
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *f = dlsym(handle, symbols[i].name);
        if (!f)
            return error_set(err, STATUS_UNSUPPORTED,
                             "%s lacks the function %s: install NCCL 2.18 or later", library,
                             symbols[i].name);
        memcpy((char *)&c->api + symbols[i].offset, &f, sizeof f);
    }
    return STATUS_OK;
}

/* Opens the named library, or the default library when there is no name. A named library is
 * never replaced by another. */
static enum status open_library(const char *library, void **handle, struct error *err)
{
    struct error why;
    if (!library && gpu_find_library(DEFAULT_LIBRARY, handle, &why) == STATUS_OK)
        return STATUS_OK;
    if (library && (*handle = dlopen(library, RTLD_NOW | RTLD_LOCAL)))
        return STATUS_OK;
    return error_set(
        err, STATUS_UNSUPPORTED,
        "ranks on GPUs need NCCL, but it cannot be loaded: %s. Install it, or set --nccl-library",
        library ? dlerror() : why.text);
}

enum status nccl_load(struct nccl_comm *c, const char *library, struct error *err)
{
    const char *name = library ? library : DEFAULT_LIBRARY;
    int version = 0;
    void *handle = NULL;
    TRY(open_library(library, &handle, err));
    TRY(find_symbols(c, handle, name, err));
    int result = c->api.get_version(&version);
    if (result != NCCL_SUCCESS || version < MIN_VERSION)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s is NCCL %d.%d, which is too old: install NCCL 2.18 or later", name,
                         version / 10000, version / 100 % 100);
    c->version = (uint32_t)version;
    snprintf(c->text, sizeof c->text, "NCCL %d.%d.%d, %s", version / 10000, version / 100 % 100,
             version % 100, name);
    return STATUS_OK;
}
