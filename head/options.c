#include "head/options.h"

#include <string.h>
#include <unistd.h>

#include "common/host/loopback.h"
#include "common/options/lora_module.h"

/* Returns true when the host contains no character that would end a word or an address in the
 * lease. */
static bool host_is_plain(const char *host)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
    size_t n = strspn(host, letters);
    return host[n] == '\0' && n <= 255;
}

enum status head_options_check(const struct head_options *o, struct error *err)
{
    if (!o->keys_dir && !o->insecure)
        return error_set(err, STATUS_INVALID,
                         "the head has no keys: set --keys-dir DIR (`cox join-token` creates "
                         "keys), or --insecure if the whole cluster is on this machine");
    if (o->keys_dir && o->insecure)
        return error_set(err, STATUS_INVALID,
                         "--keys-dir and --insecure cannot be used together: remove one of them");
    if (!o->admin_key_file && !host_is_loopback(str_from(o->admin_host)))
        return error_set(
            err, STATUS_INVALID,
            "other machines can reach --admin-host %s: set --admin-key-file to protect it",
            o->admin_host);
    if (o->runs && o->runs[0] && (o->runs[0] != '/' || access(o->runs, X_OK) != 0))
        return error_set(
            err, STATUS_INVALID,
            "--runs %s: the value must be the full path of the program cox, such as /usr/bin/cox",
            o->runs);
    if (o->max_num_batched_tokens < o->max_num_seqs)
        return error_set(
            err, STATUS_INVALID,
            "--max-num-batched-tokens %lld is less than --max-num-seqs %lld, but a step needs at "
            "least one token for each sequence: raise the first or lower the second",
            (long long)o->max_num_batched_tokens, (long long)o->max_num_seqs);
    if (o->lora_modules.n_items > 0 && !o->enable_lora)
        return error_set(err, STATUS_INVALID,
                         "--lora-modules requires --enable-lora: add this option");
    if (o->lora_modules.n_items > (size_t)o->max_loras)
        return error_set(
            err, STATUS_INVALID,
            "--lora-modules names %zu adapters, but --max-loras allows only %lld: raise it",
            o->lora_modules.n_items, (long long)o->max_loras);
    for (size_t i = 0; i < o->lora_modules.n_items; i++) {
        struct lora_modules_item m;
        TRY(lora_module_read(o->lora_modules.items[i], &m, err));
    }
    if (o->scale_max > 0 && o->scale_max < o->tp * o->pp)
        return error_set(err, STATUS_INVALID,
                         "--scale-max %lld is too small for one replica, which has --tp %lld x "
                         "--pp %lld workers",
                         (long long)o->scale_max, (long long)o->tp, (long long)o->pp);
    if (o->scale_max > 0 && o->scale_max < o->scale_min)
        return error_set(
            err, STATUS_INVALID,
            "--scale-max %lld is less than --scale-min %lld: raise the first or lower the second",
            (long long)o->scale_max, (long long)o->scale_min);
    if (o->redis && o->redis[0] && !cluster_name_is_valid(o->cluster_name))
        return error_set(
            err, STATUS_INVALID,
            "--cluster-name %s: a name has 1 to 64 characters: letters, digits, '.', '_' and '-'",
            o->cluster_name);
    if (o->advertise_host && !host_is_plain(o->advertise_host))
        return error_set(err, STATUS_INVALID,
                         "--advertise-host %s: the value must be a host name or an address",
                         o->advertise_host);
    if (o->tp * o->pp > 1024)
        return error_set(err, STATUS_INVALID,
                         "--tp %lld x --pp %lld is too large: a replica has at most 1024 ranks. "
                         "Use lower values",
                         (long long)o->tp, (long long)o->pp);
    return STATUS_OK;
}
