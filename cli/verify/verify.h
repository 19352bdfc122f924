#pragma once
/* Compares the files of an installed package with the package's list of SHA-256 sums, and checks
 * the signature of the list. The functions print nothing. One report belongs to one thread. */
#include "cli/verify/minisign.h"
#include "common/base/arena.h"

#define VERIFY_LIST      "share/coxswain/SHA256SUMS"
#define VERIFY_SIGNATURE VERIFY_LIST ".minisig"
#define VERIFY_KEY       "share/coxswain/release.pub"

enum finding_kind { FINDING_CHANGED, FINDING_MISSING, FINDING_UNLISTED, FINDING_KINDS };
const char *finding_kind_name(enum finding_kind k);

struct finding {
    enum finding_kind kind;
    const char *path; /* printable; relative to the prefix */
    const char *text; /* the rest of a sentence that begins with the path */
};

enum signature_state {
    SIGNATURE_ABSENT,    /* the list is not signed */
    SIGNATURE_UNCHECKED, /* there is a signature, but no public key */
    SIGNATURE_GOOD,
    SIGNATURE_WRONG,
    SIGNATURE_STATES
};
const char *signature_state_name(enum signature_state s);

struct verify_report {
    struct arena arena; /* owns the findings and texts */
    struct finding *findings;
    size_t n_findings, n_findings_max;
    size_t n_files;       /* files of the list */
    size_t n_left_out;    /* manual pages, completions and documents that are not installed */
    bool is_vllm_foreign; /* true = this is a wheel, and bin/vllm is a file of another package */
    enum signature_state signature;
    char key_id[MINISIGN_ID_TEXT]; /* "" without a key */
    const char *comment;           /* trusted comment of a good signature, printable */
    bool is_key_from_package;      /* true = the key is the package's VERIFY_KEY */
    char why_wrong[256];           /* SIGNATURE_WRONG: the reason */
};

/* Reads the public key of a signature from any path. */
MUST_USE enum status verify_read_key(const char *path, struct minisign_key *out, struct error *err);
/* Checks the files below `prefix`. `key` NULL = the package's own key, if there is one. The status
 * is STATUS_OK when the files were compared, whatever was found. It is STATUS_NOT_FOUND when there
 * is no list. The caller calls verify_fini in each case. */
MUST_USE enum status verify_prefix(const char *prefix, const struct minisign_key *key,
                                   struct verify_report *out, struct error *err);
void verify_fini(struct verify_report *r);
/* Returns true when every file is as in the list, and no signature is wrong. */
bool verify_is_fine(const struct verify_report *r);
