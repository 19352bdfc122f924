/* Implements `cox version`: prints the version, the commit, the build id and the platform. With
 * --verify it compares the installed files with the package's list (cli/verify), and prints one
 * line per wrong file and a summary.
 * Invariants: the exit code is 0 only when every file is as listed and no signature is wrong. It
 * is 2 when there is nothing to compare with. The command runs in one thread. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/cache/list.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/verify/verify.h"
#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/host/crash.h"

#ifndef COX_COMMIT
#define COX_COMMIT "" /* empty = unknown */
#endif
#ifndef COX_VARIANT
#define COX_VARIANT "cpu"
#endif
#ifdef __aarch64__
#define PLATFORM "linux-aarch64"
#else
#define PLATFORM "linux-x86_64"
#endif

struct version_options {
    bool verify, json;
    const char *public_key;
};

const struct option_spec version_specs[] = {
    OPT_BOOL(version_options, verify, "verify", NULL,
             "Compare the installed files with the package's list of SHA-256 sums."),
    {.name = "public-key",
     .type = OPTION_STRING,
     .offset = offsetof(struct version_options, public_key),
     .needs = "verify",
     .help = "Public key file of minisign. The list of sums must be signed with this key."},
    OPT_BOOL(version_options, json, "json", NULL, "Print one JSON object."),
};
const size_t version_n_specs = sizeof version_specs / sizeof version_specs[0];

int cmd_version_line(void)
{
    printf("cox %s\n", COX_VERSION);
    return EXIT_FINE;
}

static void print_build(void)
{
    (void)cmd_version_line();
    if (COX_COMMIT[0])
        printf("commit:   %s\n", COX_COMMIT);
    if (crash_build_id()[0])
        printf("build id: %s\n", crash_build_id());
    printf("platform: %s, %s\n", PLATFORM, COX_VARIANT);
}

/* Finds the folder above the program's folder. A symbolic link to the program is resolved. */
static enum status find_prefix(char out[PATH_MAX], struct error *err)
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n <= 0)
        return error_set(err, STATUS_IO, "cannot find the program's folder: /proc/self/exe: %s",
                         strerror(errno));
    out[n] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(out, '/');
        if (!slash)
            return error_set(err, STATUS_IO,
                             "cannot find the program's folder: /proc/self/exe "
                             "has no path with two folders");
        *slash = '\0';
    }
    if (out[0] == '\0')
        memcpy(out, "/", 2);
    return STATUS_OK;
}

/* ---- --verify as text ---- */

static void print_signature(const struct verify_report *r)
{
    switch (r->signature) {
    case SIGNATURE_GOOD:
        printf("signature: good, by the key %s: %s\n", r->key_id, r->comment);
        if (r->is_key_from_package)
            printf("note: this key came with the files, so it proves only that they belong "
                   "together. Use --public-key FILE with a key from the project's page\n");
        return;
    case SIGNATURE_UNCHECKED:
        printf("signature: not checked, because there is no public key. Use --public-key FILE\n");
        return;
    case SIGNATURE_ABSENT:
        printf("signature: none. The list shows damage, but does not prove who made the files\n");
        return;
    case SIGNATURE_WRONG:
    case SIGNATURE_STATES:
        return; /* the last line reports it */
    }
}

static int print_report(const char *prefix, const struct verify_report *r)
{
    for (size_t i = 0; i < r->n_findings; i++)
        printf("%s %s\n", r->findings[i].path, r->findings[i].text);
    if (r->n_left_out > 0)
        printf("note: documents, manual pages and completions that are not installed: %zu\n",
               r->n_left_out);
    if (r->is_vllm_foreign)
        printf("note: bin/vllm is a file of another package, because the wheel has none\n");
    print_signature(r);
    if (verify_is_fine(r)) {
        printf("verified: %zu files below %s are as in " VERIFY_LIST "\n", r->n_files, prefix);
        return EXIT_FINE;
    }
    fflush(stdout);
    if (r->signature == SIGNATURE_WRONG)
        fprintf(stderr,
                "cox version: the signature of %s/" VERIFY_LIST " is wrong: %s. Do not trust these "
                "files; install the package again from its source\n",
                prefix, r->why_wrong);
    if (r->n_findings > 0)
        fprintf(stderr,
                "cox version: the files below %s are not as in " VERIFY_LIST ": %zu of them are "
                "wrong. Install the package again\n",
                prefix, r->n_findings);
    return EXIT_FAILED;
}

/* ---- --json ---- */

static json_t *text_or_null(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}

static json_t *report_json(const char *prefix, const struct verify_report *r)
{
    json_t *findings = json_array(), *signature = json_object(), *out = json_object();
    for (size_t i = 0; i < r->n_findings; i++)
        json_array_append_new(findings, json_pack("{s:s, s:s, s:s}", "path", r->findings[i].path,
                                                  "state", finding_kind_name(r->findings[i].kind),
                                                  "text", r->findings[i].text));
    json_object_set_new(signature, "state", json_string(signature_state_name(r->signature)));
    json_object_set_new(signature, "key_id", text_or_null(r->key_id));
    json_object_set_new(signature, "comment", text_or_null(r->comment));
    json_object_set_new(signature, "key_from_package", json_boolean(r->is_key_from_package));
    json_object_set_new(signature, "problem", text_or_null(r->why_wrong));
    json_object_set_new(out, "ok", json_boolean(verify_is_fine(r)));
    json_object_set_new(out, "prefix", json_string(prefix));
    json_object_set_new(out, "files", json_integer((json_int_t)r->n_files));
    json_object_set_new(out, "left_out", json_integer((json_int_t)r->n_left_out));
    json_object_set_new(out, "findings", findings);
    json_object_set_new(out, "signature", signature);
    return out;
}

static int print_json(json_t *verified)
{
    json_t *o = json_object();
    json_object_set_new(o, "version", json_string(COX_VERSION));
    json_object_set_new(o, "commit", text_or_null(COX_COMMIT));
    json_object_set_new(o, "build_id", text_or_null(crash_build_id()));
    json_object_set_new(o, "platform", json_string(PLATFORM));
    json_object_set_new(o, "variant", json_string(COX_VARIANT));
    if (verified)
        json_object_set_new(o, "verify", verified);
    char *all = json_dumps(o, JSON_INDENT(2));
    json_decref(o);
    if (!all) {
        fprintf(stderr, "cox version: cannot print the result as JSON: out of memory\n");
        return EXIT_FAILED;
    }
    printf("%s\n", all);
    free(all);
    return EXIT_FINE;
}

/* Compares the files and prints the report. `shown` is the prefix as it may be printed. */
static int verify_below(const char *prefix, const char *shown, const struct minisign_key *key,
                        bool is_json)
{
    struct error err = {0};
    struct verify_report r;
    int code = EXIT_FAILED;
    enum status s = verify_prefix(prefix, key, &r, &err);
    if (s == STATUS_NOT_FOUND) {
        code = EXIT_USAGE;
        fprintf(stderr,
                "cox version: nothing to verify with: there is no %s/" VERIFY_LIST ". Packages and "
                "release archives have this file; a program that you built yourself has none\n",
                shown);
    } else if (s != STATUS_OK) {
        fprintf(stderr,
                "cox version: cannot verify the files below %s: %s. Install the package again\n",
                shown, err.text);
    } else if (is_json) {
        code = print_json(report_json(shown, &r));
        code = code == EXIT_FINE && !verify_is_fine(&r) ? EXIT_FAILED : code;
    } else {
        code = print_report(shown, &r);
    }
    verify_fini(&r);
    return code;
}

static int verify(const struct version_options *o)
{
    char prefix[PATH_MAX];
    struct error err = {0};
    struct minisign_key key;
    if (o->public_key && verify_read_key(o->public_key, &key, &err) != STATUS_OK) {
        fprintf(stderr, "cox version: --public-key: %s\n", err.text);
        return EXIT_USAGE;
    }
    enum status s = find_prefix(prefix, &err);
    if (s != STATUS_OK) {
        fprintf(stderr, "cox version: %s\n", err.text);
        return EXIT_FAILED;
    }
    char *shown = cache_printable(prefix);
    int code = verify_below(prefix, shown, o->public_key ? &key : NULL, o->json);
    mem_free(shown);
    return code;
}

int cmd_version(int argc, char **argv)
{
    struct version_options o = {0};
    struct config_result res;
    int code;
    const struct command_line line = {
        .usage = "cox version [OPTION...]", .specs = version_specs, .n_specs = version_n_specs};
    (void)unsetenv("COX_VERIFY"); /* it belongs to `cox pull` */
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        if (!o.json)
            print_build();
        if (o.verify)
            code = verify(&o);
        else if (o.json)
            code = print_json(NULL);
    }
    config_fini(&res);
    return code;
}
