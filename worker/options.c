#include "worker/options.h"

#include <string.h>

#include "kernels/cpu/cpu.h"

_Static_assert(WORKER_MAX_THREADS == CPU_MAX_THREADS, "what the table takes, the kernels run");

const char *worker_options_name(const struct worker_options *o, const char *own)
{
    return o->served_model_names.n_items > 0 ? o->served_model_names.items[0] : own;
}

bool worker_options_are_null(const struct worker_options *o)
{
    return o->device == WORKER_DEVICE_NULL ||
           (o->device == WORKER_DEVICE_AUTO && str_eq_c(str_from(o->model), "null"));
}

enum status worker_options_check(const struct worker_options *o, struct error *err)
{
    if (o->block_size % 16 != 0)
        return error_set(err, STATUS_INVALID, "--block-size %lld: must be a multiple of 16",
                         (long long)o->block_size);
    if (o->join && o->insecure)
        return error_set(err, STATUS_INVALID, "--join carries keys: it excludes --insecure");
    if (o->join && o->keys_dir)
        return error_set(err, STATUS_INVALID, "--join carries keys: it excludes --keys-dir");
    if (!o->join && !o->keys_dir && !o->insecure)
        return error_set(
            err, STATUS_INVALID,
            "no keys: give --join TOKEN (made by `cox join-token`), or --keys-dir DIR, "
            "or --insecure for a head on this machine");
    if (o->ordinal + 7001 > 65535 && o->http_port < 0)
        return error_set(err, STATUS_INVALID, "--ordinal %lld: give --http-port",
                         (long long)o->ordinal);
    return STATUS_OK;
}
