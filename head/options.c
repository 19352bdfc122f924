#include "head/options.h"

#include "common/base/loopback.h"

enum status head_options_check(const struct head_options *o, struct error *err)
{
    if (!o->keys_dir && !o->insecure)
        return error_set(err, STATUS_INVALID,
                         "no keys: give --keys-dir DIR (`cox join-token` makes one), or --insecure "
                         "for a cluster on this machine");
    if (o->keys_dir && o->insecure)
        return error_set(err, STATUS_INVALID, "--keys-dir and --insecure exclude each other");
    if (!o->admin_key_file && !host_is_loopback(str_from(o->admin_host)))
        return error_set(err, STATUS_INVALID,
                         "--admin-host %s can be reached by others: give --admin-key-file",
                         o->admin_host);
    if (o->max_num_batched_tokens < o->max_num_seqs)
        return error_set(
            err, STATUS_INVALID,
            "--max-num-batched-tokens %lld is less than --max-num-seqs %lld: a step has "
            "at least one token of every sequence",
            (long long)o->max_num_batched_tokens, (long long)o->max_num_seqs);
    if (o->tp * o->pp > 1024)
        return error_set(err, STATUS_INVALID, "--tp %lld x --pp %lld: at most 1024 ranks a group",
                         (long long)o->tp, (long long)o->pp);
    return STATUS_OK;
}
