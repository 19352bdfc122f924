/* keys and join-token: what a cluster over several machines needs before it starts. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/tables.h"
#include "common/net/keys.h"

#define KEYS_DIR_ROW OPT_STRING(keys_options, keys_dir, "keys-dir", NULL, "folder of the keys")

const struct option_spec keys_specs[] = {KEYS_DIR_ROW};
const size_t keys_n_specs = sizeof keys_specs / sizeof keys_specs[0];

const struct option_spec join_token_specs[] = {
    KEYS_DIR_ROW,
    OPT_STRING(keys_options, head, "head", "127.0.0.1:7000",
               "HOST:PORT at which the joining machine reaches the head"),
};
const size_t join_token_n_specs = sizeof join_token_specs / sizeof join_token_specs[0];

static enum status make_token(const struct keys_options *o, char *out, size_t size,
                              struct error *err)
{
    struct join_token t = {0};
    size_t n_head = strlen(o->head);
    if (n_head >= sizeof t.head)
        return error_set(err, STATUS_INVALID, "--head is too long");
    memcpy(t.head, o->head, n_head + 1);
    char head_key[4096];
    int n = snprintf(head_key, sizeof head_key, "%s/head.pub", o->keys_dir);
    bool fresh = n > 0 && (size_t)n < sizeof head_key && access(head_key, F_OK) != 0;
    TRY(keys_make_dir(o->keys_dir, err));
    if (fresh) /* on stderr: a mistyped folder would otherwise look like a good token */
        fprintf(stderr,
                "cox join-token: made new keys in %s: only a head started with --keys-dir %s "
                "takes this token\n",
                o->keys_dir, o->keys_dir);
    TRY(keys_load_public(o->keys_dir, ROLE_HEAD, t.head_public_key, err));
    TRY(keys_load(o->keys_dir, ROLE_WORKER, &t.keys, err));
    return join_token_encode(&t, out, size, err);
}

static int run(const struct command_line *line, int argc, char **argv, bool token)
{
    struct keys_options o = {0};
    struct config_result res;
    struct error err = {0};
    char text[2048];
    int code;
    if (command_parse(line, argc, argv, &o, &res, &code)) {
        enum status s = STATUS_OK;
        if (!o.keys_dir)
            s = error_set(&err, STATUS_INVALID, "--keys-dir DIR: which folder?");
        else
            s = token ? make_token(&o, text, sizeof text, &err) : keys_make_dir(o.keys_dir, &err);
        if (s != STATUS_OK) {
            fprintf(stderr, "cox %s: %s\n", argv[0], err.text);
            code = s == STATUS_INVALID ? EXIT_USAGE : EXIT_FAILED;
        } else if (token) {
            printf("%s\n", text);
        } else {
            printf("keys are in %s\n", o.keys_dir);
        }
    }
    config_fini(&res);
    return code;
}

int cmd_keys(int argc, char **argv)
{
    const struct command_line line = {
        .usage = "cox keys --keys-dir DIR", .specs = keys_specs, .n_specs = keys_n_specs};
    return run(&line, argc, argv, false);
}

int cmd_join_token(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox join-token --keys-dir DIR --head HOST:PORT",
                                      .specs = join_token_specs,
                                      .n_specs = join_token_n_specs};
    return run(&line, argc, argv, true);
}
