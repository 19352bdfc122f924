/* Implements `cox keys` and `cox join-token`, which make and change the keys of a cluster on
 * several machines.
 * `cox keys` makes a folder of keys. It can also rotate and retire the keys of one role, and it
 * prints the next steps. `cox join-token` packs the head's address, the head's public keys and
 * the worker's key into one token. common/keys reads and writes the files.
 * Invariants: a folder that already has the keys for a token is not written to. Private keys are
 * never printed, except inside a token. The command runs in one thread. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/client/admin.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "common/keys/join_token.h"
#include "common/keys/key_files.h"
#include "common/keys/key_folder.h"
#include "common/keys/rotation.h"

struct keys_options {
    struct admin_access admin; /* this field must be first: ADMIN_ROWS use its offsets */
    const char *keys_dir, *head, *rotate, *retire;
    bool reload;
};

#define KEYS_DIR_ROW OPT_STRING(keys_options, keys_dir, "keys-dir", NULL, "Folder of the keys.")

const struct option_spec keys_specs[] = {
    KEYS_DIR_ROW,
    OPT_STRING(keys_options, rotate, "rotate", NULL,
               "Role that gets a new key beside the old one: head, worker, gateway or operator."),
    OPT_STRING(keys_options, retire, "retire", NULL,
               "Role whose old key is no longer accepted. This is the last step of a rotation."),
    OPT_BOOL(
        keys_options, reload, "reload", NULL,
        "Make the head at --address read the head.key of its own folder again, without a restart."),
    ADMIN_ROWS,
};
const size_t keys_n_specs = sizeof keys_specs / sizeof keys_specs[0];

const struct option_spec join_token_specs[] = {
    KEYS_DIR_ROW,
    OPT_STRING(keys_options, head, "head", "127.0.0.1:7000",
               "HOST:PORT at which the joining machine reaches the head."),
};
const size_t join_token_n_specs = sizeof join_token_specs / sizeof join_token_specs[0];

static bool is_missing(const char *dir, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) != 0;
}

/* Makes a join token. A folder that has the needed keys is only read: it may be a mounted
 * Secret. */
static enum status make_token(const struct keys_options *o, char *out, size_t size,
                              struct error *err)
{
    struct join_token t = {0};
    TRY(join_token_check_head(o->head, err)); /* the address is checked before keys are made */
    size_t n_head = strlen(o->head);
    if (n_head >= sizeof t.head)
        return error_set(err, STATUS_INVALID, "--head is too long: give HOST:PORT");
    memcpy(t.head, o->head, n_head + 1);
    if (is_missing(o->keys_dir, "head.pub") || is_missing(o->keys_dir, "worker.key")) {
        bool fresh = is_missing(o->keys_dir, "head.pub");
        TRY(keys_make_dir(o->keys_dir, err));
        /* stderr warns about new keys: with a mistyped folder, the new token would look right
         * but not work */
        if (fresh)
            fprintf(stderr,
                    "cox join-token: created new keys in %s. Only a head that is started with "
                    "--keys-dir %s accepts this token\n",
                    o->keys_dir, o->keys_dir);
    }
    struct public_keys of_head;
    TRY(keys_load_publics(o->keys_dir, ROLE_HEAD, &of_head, err));
    memcpy(t.head_public_key, of_head.keys[0], sizeof t.head_public_key);
    if (of_head.n > 1)
        memcpy(t.other_head_key, of_head.keys[1], sizeof t.other_head_key);
    TRY(keys_load(o->keys_dir, ROLE_WORKER, &t.keys, err));
    return join_token_encode(&t, out, size, err);
}

/* ---- changing keys ---- */

static enum status reload(const struct keys_options *o, struct error *err)
{
    json_t *answer = NULL;
    TRY(admin_call(&o->admin, "POST", "/api/keys", "{\"reload\":true}", &answer, err));
    const char *key = json_string_value(json_object_get(answer, "head_key"));
    bool changed = json_is_true(json_object_get(answer, "changed"));
    printf("the head at %s %s (%s)\n", o->admin.address,
           changed ? "uses its new key now; workers and gateways reconnect in about a second"
                   : "already uses the key in its folder",
           key ? key : "?");
    json_decref(answer);
    return STATUS_OK;
}

static enum peer_role role_named(const char *name)
{
    static const enum peer_role roles[] = {ROLE_HEAD, ROLE_WORKER, ROLE_GATEWAY, ROLE_OPERATOR};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(name, peer_role_name(roles[i])) == 0)
            return roles[i];
    return ROLE_NONE;
}

static void print_steps_of_head(const char *dir)
{
    printf("%s/head.key is new; %s/head.pub has the new public key and the old one.\n\n"
           "1. Copy head.pub to the folder of every gateway and worker, before the next step. They "
           "read it\n   at their next connection and try both keys. (A worker that joined by a "
           "token knows the keys of\n   that one: start it again with a token made now, which has "
           "both.)\n"
           "2. Copy head.key and head.pub to the folder of every head, then\n   cox keys --reload "
           "--address "
           "HOST:8265\n   for the one that serves (or start it again): requests pause for about a "
           "second, none fails.\n"
           "3. When all workers and gateways are back (`cox status`):\n"
           "   cox keys --keys-dir %s --retire head\n   and copy head.pub once more.\n",
           dir, dir, dir);
}

static void print_steps_of_peer(const char *dir, const char *role)
{
    printf(
        "%s/%s.key and %s.pub are new; %s/authorized admits the new key and the old one.\n\n"
        "1. Copy authorized to the head's folder: it reads it within a second (authorized_read in "
        "its log).\n"
        "2. Copy %s.key and %s.pub to the folder of every %s, over the old ones: each reads them "
        "at its next\n   connection. (Workers that joined by a token: start them again with a "
        "new one.)\n"
        "3. cox keys --keys-dir %s --retire %s\n   and copy authorized to the head's folder: "
        "sessions of the old key end within two seconds,\n   come back with the new one, and no "
        "request fails. A key that somebody has stolen is out.\n",
        dir, role, role, dir, role, role, role, dir, role);
}

static enum status change_keys(const struct keys_options *o, struct error *err)
{
    const char *name = o->rotate ? o->rotate : o->retire;
    enum peer_role role = role_named(name);
    if (o->rotate && o->retire)
        return error_set(err, STATUS_INVALID,
                         "--rotate and --retire cannot be used together: --rotate starts a key "
                         "change, --retire ends it. Run them one after the other");
    if (role == ROLE_NONE)
        return error_set(err, STATUS_INVALID,
                         "--%s %s is not a role: give head, worker, gateway or operator",
                         o->rotate ? "rotate" : "retire", name);
    TRY(o->rotate ? keys_rotate(o->keys_dir, role, err) : keys_retire(o->keys_dir, role, err));
    if (o->retire)
        printf("the old key of the %s is retired. Next: copy %s/%s to the %s\n", name, o->keys_dir,
               role == ROLE_HEAD ? "head.pub" : "authorized",
               role == ROLE_HEAD ? "folders of all gateways and workers" : "head's folder");
    else if (role == ROLE_HEAD)
        print_steps_of_head(o->keys_dir);
    else
        print_steps_of_peer(o->keys_dir, name);
    return STATUS_OK;
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
        bool reloads = o.reload && !o.rotate && !o.retire;
        if (reloads)
            s = reload(&o, &err);
        else if (o.reload)
            s = error_set(&err, STATUS_INVALID,
                          "--reload cannot be used with --rotate or --retire: it makes a head read "
                          "its own folder again. Run them one after the other");
        else if (!o.keys_dir)
            s = error_set(&err, STATUS_INVALID,
                          "the folder of the keys is missing: give --keys-dir DIR");
        else if (o.rotate || o.retire)
            s = change_keys(&o, &err);
        else
            s = token ? make_token(&o, text, sizeof text, &err) : keys_make_dir(o.keys_dir, &err);
        if (s != STATUS_OK) {
            fprintf(stderr, "cox %s: %s\n", argv[0], err.text);
            code = s == STATUS_INVALID && !reloads ? EXIT_USAGE : EXIT_FAILED;
        } else if (token) {
            printf("%s\n", text);
        } else if (!o.rotate && !o.retire && !o.reload) {
            printf("the keys are in %s\n", o.keys_dir);
        }
    }
    config_fini(&res);
    return code;
}

int cmd_keys(int argc, char **argv)
{
    const struct command_line line = {
        .usage = "cox keys --keys-dir DIR [--rotate ROLE | --retire ROLE], or cox keys --reload",
        .specs = keys_specs,
        .n_specs = keys_n_specs};
    return run(&line, argc, argv, false);
}

int cmd_join_token(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox join-token --keys-dir DIR --head HOST:PORT",
                                      .specs = join_token_specs,
                                      .n_specs = join_token_n_specs};
    return run(&line, argc, argv, true);
}
