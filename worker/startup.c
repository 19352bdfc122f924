#include "worker/startup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/keys/join_token.h"
#include "common/keys/key_files.h"
#include "proto/codec/codec.h"

/* WINDOW_BYTES is the credit for plans: the bytes of plans that may wait in this worker. */
#define WINDOW_BYTES (4u << 20)
#define LINK_HWM     8192u
/* JOIN_TEXT_BYTES is the size of the buffer for the line of a join token file. */
#define JOIN_TEXT_BYTES 2048

/* Reads the first word of the file. */
static enum status read_word(const char *flag, const char *path, char *out, size_t size,
                             struct error *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(err, STATUS_NOT_FOUND, "%s %s cannot be read: %s", flag, path,
                         strerror(errno));
    bool got = fgets(out, (int)size, f) != NULL;
    fclose(f);
    out[got ? strcspn(out, "\r\n \t") : 0] = '\0';
    if (!out[0])
        return error_set(err, STATUS_INVALID,
                         "%s %s: the first line of the file is empty. Write the value into it",
                         flag, path);
    return STATUS_OK;
}

static enum status find_keys(const struct worker_options *o, struct startup *s, struct error *err)
{
    const char *head = o->head;
    struct join_token token = {0};
    if (o->join) {
        char text[JOIN_TEXT_BYTES];
        bool is_file = o->join[0] == '@';
        if (is_file)
            TRY(read_word("--join", o->join + 1, text, sizeof text, err));
        TRY(join_token_decode(is_file ? text : o->join, &token, err));
        s->link.bus.keys = token.keys;
        memcpy(s->head_public_key, token.head_public_key, sizeof s->head_public_key);
        memcpy(s->other_head_key, token.other_head_key, sizeof s->other_head_key);
        head = token.head;
    } else if (o->keys_dir) {
        TRY(keys_load(o->keys_dir, ROLE_WORKER, &s->link.bus.keys, err));
        TRY(keys_load_public(o->keys_dir, ROLE_HEAD, s->head_public_key, err));
    }
    int n = snprintf(s->endpoint, sizeof s->endpoint, "tcp://%s", head);
    if (n < 0 || (size_t)n >= sizeof s->endpoint || !strrchr(head, ':'))
        return error_set(err, STATUS_INVALID,
                         "--head \"%.300s\": the value must be HOST:PORT, or several of them "
                         "separated by commas",
                         head);
    return STATUS_OK;
}

enum status startup_prepare(const struct worker_options *o, struct startup *out, struct error *err)
{
    *out = (struct startup){.link = {.window_bytes = WINDOW_BYTES}};
    if (gethostname(out->node, sizeof out->node - 1) != 0)
        snprintf(out->node, sizeof out->node, "unknown");
    if (o->admin_key_file)
        TRY(admin_keys_read(o->admin_key_file, &out->admin_keys, err));
    TRY(find_keys(o, out, err));
    out->link.bus.endpoint = out->endpoint;
    out->link.bus.insecure = o->insecure;
    out->link.bus.allow_remote_insecure = o->allow_remote_insecure;
    out->link.bus.server_public_key = out->head_public_key;
    out->link.bus.server_other_key = out->other_head_key;
    out->link.bus.keys_dir = o->keys_dir;
    out->link.bus.keys_role = ROLE_WORKER;
    out->link.bus.max_frame_bytes = FRAME_MAX_BYTES;
    out->link.bus.hwm = LINK_HWM;
    return STATUS_OK;
}

/* Appends a row of the table. All rows have the same unit, so that they can be compared and
 * added up. */
static void row(struct strbuf *b, const char *name, uint64_t bytes)
{
    strbuf_printf(b, "%-12s %10.1f MiB", name, (double)bytes / (1 << 20));
}

static uint64_t total_bytes(const struct executor_info *info)
{
    return info->weights_bytes + info->activation_bytes + info->comm_bytes + info->kv_bytes +
           info->draft_bytes + info->draft_kv_bytes + info->lora_bytes;
}

void startup_memory_table(const struct executor_info *info, struct strbuf *out)
{
    row(out, "weights", info->weights_bytes);
    strbuf_append_c(out, "\n");
    row(out, "activations", info->activation_bytes);
    strbuf_append_c(out, "\n");
    row(out, "collectives", info->comm_bytes);
    strbuf_append_c(out, "\n");
    row(out, "KV cache", info->kv_bytes);
    for (uint32_t i = 0; i < info->limits.n_kv_groups; i++)
        strbuf_printf(out, "   %u blocks of %u tokens", info->limits.kv_groups[i].n_blocks,
                      info->limits.kv_groups[i].block_tokens);
    strbuf_append_c(out, "\n");
    if (info->lora_bytes > 0) {
        row(out, "adapters", info->lora_bytes);
        strbuf_append_c(out, "\n");
    }
    if (info->draft_bytes > 0) {
        row(out, "draft model", info->draft_bytes);
        strbuf_append_c(out, "\n");
        row(out, "its KV cache", info->draft_kv_bytes);
        strbuf_append_c(out, "\n");
    }
    row(out, "total", total_bytes(info));
    strbuf_append_c(out, "\n");
    if (info->grammar_bytes > 0) {
        row(out, "grammars", info->grammar_bytes);
        strbuf_append_c(out, "   more at most, if answers use grammars\n");
    }
}

void startup_log_memory(const struct executor_info *info)
{
    struct strbuf groups;
    strbuf_init(&groups, 0);
    for (uint32_t i = 0; i < info->limits.n_kv_groups; i++)
        strbuf_printf(&groups, "%s%ux%u", i ? "," : "", info->limits.kv_groups[i].n_blocks,
                      info->limits.kv_groups[i].block_tokens);
    log_info(
        "memory_plan",
        "weights_bytes=%llu activation_bytes=%llu sampler_bytes=%llu comm_bytes=%llu kv_bytes=%llu "
        "lora_bytes=%llu draft_bytes=%llu draft_kv_bytes=%llu total_bytes=%llu "
        "grammar_room_bytes=%llu kv_blocks=%s",
        (unsigned long long)info->weights_bytes, (unsigned long long)info->activation_bytes,
        (unsigned long long)info->sampler_bytes, (unsigned long long)info->comm_bytes,
        (unsigned long long)info->kv_bytes, (unsigned long long)info->lora_bytes,
        (unsigned long long)info->draft_bytes, (unsigned long long)info->draft_kv_bytes,
        (unsigned long long)total_bytes(info), (unsigned long long)info->grammar_bytes,
        groups.ptr ? groups.ptr : "");
    strbuf_fini(&groups);
}
