/* Checks an installed package for `cox version --verify`.
 * Data flow: the list is read, then its signature is checked, then each listed file is hashed.
 * Last, the folders that may hold only files of the package are searched for other files:
 * lib/coxswain (programs load libraries from it), and bin for the names `cox` and `cox-*` (bin may
 * be /usr/bin, with programs of other packages). The list has no links, so bin/vllm is compared
 * with bin/cox.
 * Invariants: a file that is missing counts as left out if it is a manual page, a completion or a
 * document, because package managers can be told not to install these. A manual page may be
 * compressed. Findings are in the order of their paths, then the unlisted files, and there are at
 * most FINDINGS_MAX. */
#include "cli/verify/verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/verify/below.h"
#include "cli/verify/sums.h"

enum { FINDINGS_MAX = SUMS_LINES_MAX + 1000, ARENA_MAX = 64 << 20 };

const char *finding_kind_name(enum finding_kind k)
{
    static const char *const names[FINDING_KINDS] = {"changed", "missing", "unlisted"};
    return names[k];
}

const char *signature_state_name(enum signature_state s)
{
    static const char *const names[SIGNATURE_STATES] = {"absent", "unchecked", "good", "wrong"};
    return names[s];
}

/* ---- the report ---- */

/* Copies a text into the report. A byte that is not printable ASCII becomes \xHH. */
static const char *keep(struct verify_report *r, struct str text)
{
    struct strbuf quoted;
    strbuf_init(&quoted, 0);
    if (!sums_printable(text)) {
        for (size_t i = 0; i < text.len; i++)
            if (text.ptr[i] >= ' ' && text.ptr[i] <= '~')
                strbuf_append(&quoted, text.ptr + i, 1);
            else
                strbuf_printf(&quoted, "\\x%02x", (unsigned char)text.ptr[i]);
        text = strbuf_str(&quoted);
    }
    char *out = arena_try_alloc(&r->arena, text.len + 1);
    if (out)
        str_copy(out, text.len + 1, text);
    strbuf_fini(&quoted);
    return out ? out : "(a name for which there is no memory)";
}

static void add_finding(struct verify_report *r, enum finding_kind kind, struct str path,
                        const char *text)
{
    if (r->n_findings < r->n_findings_max)
        r->findings[r->n_findings++] =
            (struct finding){kind, keep(r, path), keep(r, str_from(text))};
}

bool verify_is_fine(const struct verify_report *r)
{
    return r->n_findings == 0 && r->signature != SIGNATURE_WRONG;
}

void verify_fini(struct verify_report *r)
{
    arena_fini(&r->arena);
}

/* ---- the list and its signature ---- */

/* Reads a small file below the prefix. Returns STATUS_NOT_FOUND when it is missing. */
static enum status read_small(int root, const char *path, size_t max, struct strbuf *out,
                              struct error *err)
{
    int fd = below_open(root, str_from(path));
    if (fd < 0) {
        int e = errno;
        const char *reason = below_reason(e);
        return error_set(err, e == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s %s%s", path,
                         reason ? reason : "cannot be opened: ", reason ? "" : strerror(e));
    }
    enum status s = below_read(fd, max, out, err);
    close(fd);
    return s == STATUS_OK ? s : error_prefix(err, s, "%s", path);
}

enum status verify_read_key(const char *path, struct minisign_key *out, struct error *err)
{
    struct strbuf text;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, STATUS_INVALID, "cannot open the public key %s: %s", path,
                         strerror(errno));
    strbuf_init(&text, 0);
    enum status s = below_read(fd, MINISIGN_FILE_MAX, &text, err);
    close(fd);
    if (s == STATUS_OK)
        s = minisign_read_key(strbuf_str(&text), path, out, err);
    else
        s = error_prefix(err, s, "cannot read the public key %s", path);
    strbuf_fini(&text);
    return s;
}

/* Finds the public key: the caller's, or the package's own. */
static enum status find_key(int root, const struct minisign_key *given, struct minisign_key *out,
                            struct verify_report *r, struct error *err)
{
    struct strbuf text;
    if (given) {
        *out = *given;
        return STATUS_OK;
    }
    strbuf_init(&text, 0);
    enum status s = read_small(root, VERIFY_KEY, MINISIGN_FILE_MAX, &text, err);
    if (s == STATUS_OK)
        s = minisign_read_key(strbuf_str(&text), VERIFY_KEY, out, err);
    r->is_key_from_package = s == STATUS_OK;
    strbuf_fini(&text);
    return s;
}

static enum status check_signature(int root, struct str list, const struct minisign_key *given,
                                   struct verify_report *r, struct error *err)
{
    struct strbuf text;
    struct minisign_signature signature;
    struct minisign_key key;
    strbuf_init(&text, 0);
    enum status s = read_small(root, VERIFY_SIGNATURE, MINISIGN_FILE_MAX, &text, err);
    /* a caller with a key asks for a signature, so that removing it must not help */
    r->signature = s == STATUS_NOT_FOUND && !given ? SIGNATURE_ABSENT : SIGNATURE_WRONG;
    if (s == STATUS_OK)
        s = minisign_read_signature(strbuf_str(&text), VERIFY_SIGNATURE, &signature, err);
    if (s == STATUS_OK) {
        s = find_key(root, given, &key, r, err);
        r->signature = s == STATUS_NOT_FOUND ? SIGNATURE_UNCHECKED : SIGNATURE_WRONG;
    }
    if (s == STATUS_OK) {
        minisign_id_text(key.id, r->key_id);
        s = minisign_check(&key, &signature, list, err);
    }
    if (s == STATUS_OK) {
        r->signature = SIGNATURE_GOOD;
        r->comment = keep(r, signature.comment);
    }
    strbuf_fini(&text);
    return s;
}

/* ---- the files ---- */

/* Returns true for a file without which the package does not work, and which could harm. */
static bool is_needed(struct str path)
{
    return str_starts(path, STR("bin/")) || str_starts(path, STR("lib/")) ||
           str_starts(path, STR("share/coxswain/"));
}

/* Opens a listed file. A manual page that is missing may be there with ".gz". */
static int open_listed(int root, struct str path, bool *is_gzip)
{
    char packed[SUMS_PATH_MAX + 4];
    int fd = below_open(root, path);
    *is_gzip = false;
    if (fd >= 0 || errno != ENOENT || !str_starts(path, STR("share/man/")))
        return fd;
    snprintf(packed, sizeof packed, STR_FMT ".gz", STR_ARG(path));
    *is_gzip = true;
    return below_open(root, str_from(packed));
}

static void check_file(int root, const struct sum *sum, struct verify_report *r)
{
    char hex[DIGEST_HEX_MAX], text[256];
    struct error err = {0};
    bool is_gzip;
    int fd = open_listed(root, sum->path, &is_gzip);
    if (fd < 0) {
        int e = errno;
        const char *reason = below_reason(e);
        if (e == ENOENT && !is_needed(sum->path)) {
            r->n_left_out++;
            return;
        }
        snprintf(text, sizeof text, "%s%s",
                 reason ? reason : "cannot be opened: ", reason ? "" : strerror(e));
        add_finding(r, e == ENOENT ? FINDING_MISSING : FINDING_CHANGED, sum->path, text);
        return;
    }
    if (below_sha256(fd, is_gzip, hex, &err) != STATUS_OK) {
        snprintf(text, sizeof text, "cannot be compared: %.200s", err.text);
        add_finding(r, FINDING_CHANGED, sum->path, text);
    } else if (!str_eq(str_from(hex), sum->hex)) {
        snprintf(text, sizeof text, "has changed: its SHA-256 is %s, and the list has " STR_FMT,
                 hex, STR_ARG(sum->hex));
        add_finding(r, FINDING_CHANGED, sum->path, text);
    }
    close(fd);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct finding *)a)->path, ((const struct finding *)b)->path);
}

/* Returns true for the names of this package's programs. */
static bool is_program(const char *name)
{
    return strcmp(name, "cox") == 0 || strncmp(name, "cox-", 4) == 0;
}

/* Adds the entries of `folder` that are not in the list: programs only, or all entries. */
static void find_unlisted(int root, const char *folder, bool only_programs, const struct sums *sums,
                          struct verify_report *r)
{
    char path[SUMS_PATH_MAX + 256];
    size_t first = r->n_findings;
    int fd = openat(root, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd < 0 && errno != ENOENT)
            add_finding(r, FINDING_CHANGED, str_from(folder), "is not a folder that can be read");
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            (only_programs && !is_program(e->d_name)))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (!sums_find(sums, str_from(path)))
            add_finding(r, FINDING_UNLISTED, str_from(path), "is not in the list");
    }
    closedir(dir);
    if (r->n_findings > first)
        qsort(r->findings + first, r->n_findings - first, sizeof *r->findings, by_name);
}

/* Checks that bin/vllm, if it is there, is bin/cox. A wheel (bin/coxswain-llm) has no bin/vllm, so
 * a file with that name belongs to the package vllm. */
static void check_vllm(int root, struct verify_report *r)
{
    struct stat vllm, cox;
    if (fstatat(root, "bin/vllm", &vllm, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if (fstatat(root, "bin/vllm", &vllm, 0) == 0 && fstatat(root, "bin/cox", &cox, 0) == 0 &&
        vllm.st_dev == cox.st_dev && vllm.st_ino == cox.st_ino)
        return;
    r->is_vllm_foreign = faccessat(root, "bin/coxswain-llm", F_OK, 0) == 0;
    if (!r->is_vllm_foreign)
        add_finding(r, FINDING_CHANGED, STR("bin/vllm"), "is not a link to cox");
}

static enum status check_files(int root, struct str list, struct verify_report *r,
                               struct error *err)
{
    struct sums sums;
    enum status s = sums_parse(list, &sums, err);
    if (s != STATUS_OK)
        return error_prefix(err, s, VERIFY_LIST);
    r->n_files = sums.n_items;
    for (size_t i = 0; i < sums.n_items; i++)
        check_file(root, &sums.items[i], r);
    find_unlisted(root, "bin", true, &sums, r);
    check_vllm(root, r);
    find_unlisted(root, "lib/coxswain", false, &sums, r);
    sums_fini(&sums);
    return STATUS_OK;
}

enum status verify_prefix(const char *prefix, const struct minisign_key *key,
                          struct verify_report *out, struct error *err)
{
    struct strbuf list;
    struct error why = {0};
    *out = (struct verify_report){.n_findings_max = FINDINGS_MAX};
    arena_init(&out->arena, ARENA_MAX);
    out->findings = arena_try_array(&out->arena, FINDINGS_MAX, sizeof *out->findings);
    if (sodium_init() < 0 || !out->findings)
        return error_set(err, STATUS_INTERNAL, "there is no memory, or libsodium did not start");
    int root = open(prefix, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return error_set(err, STATUS_IO, "cannot open the folder: %s", strerror(errno));
    strbuf_init(&list, 0);
    enum status s = read_small(root, VERIFY_LIST, SUMS_BYTES_MAX, &list, err);
    if (s == STATUS_OK) {
        if (check_signature(root, strbuf_str(&list), key, out, &why) != STATUS_OK)
            snprintf(out->why_wrong, sizeof out->why_wrong, "%.255s", why.text);
        s = check_files(root, strbuf_str(&list), out, err);
    }
    strbuf_fini(&list);
    close(root);
    return s;
}
