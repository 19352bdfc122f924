#include "worker/setup/options.h"

#include <string.h>

#include "common/base/log.h"
#include "kernels/cpu/cpu.h"

_Static_assert(WORKER_MAX_THREADS == POOL_MAX_THREADS, "what the table takes, the kernels run");

const char *worker_options_name(const struct worker_options *o, const char *own)
{
    return o->served_model_names.n_items > 0 ? o->served_model_names.items[0] : own;
}

bool worker_options_are_null(const struct worker_options *o)
{
    return o->device == WORKER_DEVICE_NULL ||
           (o->device == WORKER_DEVICE_AUTO && str_eq_c(str_from(o->model), "null"));
}

enum dtype worker_options_kv_dtype(const struct worker_options *o)
{
    switch ((enum kv_cache_dtype)o->kv_cache_dtype) {
    case KV_CACHE_FLOAT32:
        return DTYPE_F32;
    case KV_CACHE_BFLOAT16:
        return DTYPE_BF16;
    case KV_CACHE_FP8:
    case KV_CACHE_FP8_E4M3:
    case KV_CACHE_FP8_PER_TOKEN_HEAD:
        return DTYPE_F8_E4M3;
    case KV_CACHE_INT8:
    case KV_CACHE_INT8_PER_TOKEN_HEAD:
        return DTYPE_I8;
    case KV_CACHE_AUTO:
    case KV_CACHE_FLOAT16:
        break;
    }
    return DTYPE_F16;
}

enum status worker_options_check_dtype(const struct worker_options *o, const char *own,
                                       struct error *err)
{
    static const char *const names[] = {"auto", "bfloat16", "float16", "half", "float32", "float"};
    bool is_wide = strcmp(own, "float32") == 0;
    bool wants_wide = o->dtype == ACTIVATIONS_FLOAT32 || o->dtype == ACTIVATIONS_FLOAT;
    if (o->dtype == ACTIVATIONS_AUTO || (is_wide && wants_wide) ||
        (!is_wide && o->dtype == ACTIVATIONS_BFLOAT16))
        return STATUS_OK;
    if (wants_wide)
        return error_set(err, STATUS_UNSUPPORTED,
                         "--dtype %s is not possible on a GPU, whose kernels support only %s "
                         "activations. Remove the option, or compute in float32 with --device cpu",
                         names[o->dtype], own);
    log_warn("dtype_not_used", "wanted=%s used=%s reason=%s", names[o->dtype], own,
             is_wide ? "\"a CPU computes in float32, and next to int8 or bfloat16 weights in their "
                       "type; set --dtype float32 to compute only in float32\""
                     : "\"bfloat16 is as fast as float16 and has the range of float32: no "
                       "activation overflows, but each loses three bits of precision\"");
    return STATUS_OK;
}

uint16_t worker_options_http_port(const struct worker_options *o)
{
    if (o->http_port >= 0)
        return (uint16_t)o->http_port;
    return (uint16_t)(7001 + (o->ordinal > 0 ? o->ordinal : 0));
}

/* Refuses two of this worker's ports with the same number. On different addresses equal ports
 * would work, but they are more likely a mistake. */
static enum status check_ports(const struct worker_options *o, struct error *err)
{
    const struct {
        const char *flag;
        int64_t port; /* port of a listener; 0 = any port, -1 = none */
    } ports[] = {{"--comm-port", o->comm_port},
                 {"--kv-port", o->kv_port},
                 {o->http_port < 0 ? "--http-port (by default 7001 + ordinal)" : "--http-port",
                  worker_options_http_port(o)}};
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++)
        for (size_t k = 0; k < i; k++)
            if (ports[i].port > 0 && ports[i].port == ports[k].port)
                return error_set(err, STATUS_INVALID,
                                 "port %lld is set for both %s and %s: give each a different port",
                                 (long long)ports[i].port, ports[k].flag, ports[i].flag);
    return STATUS_OK;
}

enum status worker_options_check(const struct worker_options *o, struct error *err)
{
    if (o->block_size % 16 != 0)
        return error_set(err, STATUS_INVALID, "--block-size %lld must be a multiple of 16",
                         (long long)o->block_size);
    if (o->join && o->insecure)
        return error_set(err, STATUS_INVALID,
                         "--join and --insecure cannot be used together: the token of --join "
                         "contains keys. Remove one of them");
    if (o->join && o->keys_dir)
        return error_set(err, STATUS_INVALID,
                         "--join and --keys-dir cannot be used together: the token of --join "
                         "contains the keys. Remove one of them");
    if (!o->join && !o->keys_dir && !o->insecure)
        return error_set(err, STATUS_INVALID,
                         "the worker has no keys: set --join TOKEN (from `cox join-token`), "
                         "--keys-dir DIR, or --insecure if the head is on this machine");
    if (o->enable_lora && !o->lora_root)
        return error_set(err, STATUS_INVALID,
                         "--enable-lora needs --lora-root FOLDER: adapters are read only from "
                         "below this folder");
    if (o->ordinal + 7001 > 65535 && o->http_port < 0)
        return error_set(err, STATUS_INVALID,
                         "--ordinal %lld gives no valid default port: set --http-port",
                         (long long)o->ordinal);
    return check_ports(o, err);
}
