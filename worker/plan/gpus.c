/* Holds tables of GPUs and of the clouds' machines, and searches them by name. targets.c passes
 * the names of --gpu and --instance. A name is reduced to a plain form and compared with the
 * tables. The result is a `struct gpu_target`, or an error with the nearest names. Invariants:
 * all data is static and read-only, so any thread may call. Each machine's GPU is a name of the
 * first table. Lists of names are comma separated and already in plain form. */
#include "worker/plan/gpus.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/config/distance.h"

#define MIB(n)  ((uint64_t)(n) << 20)
#define GBS(n)  ((n)*1e9)
#define TERA(n) ((n)*1e12)

/* ---- tables ---- */

/* PCIE3 and the next constants are bytes per second in one direction, for 16 PCIe lanes of
 * generation 3, 4 and 5. For NVLink the tables have half of the data sheet's value, which counts
 * both directions. */
#define PCIE3 GBS(16.)
#define PCIE4 GBS(32.)
#define PCIE5 GBS(64.)

static const struct gpu_model models[] = {
    {"A10G", NULL, 86, MIB(23028), GBS(600.), TERA(70.), PCIE4},
    {"A10", "a10pcie", 86, MIB(23028), GBS(600.), TERA(125.), PCIE4},
    {"L4", NULL, 89, MIB(23034), GBS(300.), TERA(121.), PCIE4},
    {"L40S", NULL, 89, MIB(46068), GBS(864.), TERA(362.), PCIE4},
    {"A100-40", "a100sxm440,a100sxm40", 80, MIB(40960), GBS(1555.), TERA(312.), GBS(300.)},
    {"A100-80", "a100sxm480,a100sxm80", 80, MIB(81920), GBS(2039.), TERA(312.), GBS(300.)},
    {"H100", "h10080,h100sxm,h100sxm5,h100sxm580,h10080hbm3,h100hbm3", 90, MIB(81559), GBS(3350.),
     TERA(989.), GBS(450.)},
    {"H100-PCIE", "h100pcie80", 90, MIB(81559), GBS(2000.), TERA(756.), PCIE5},
    {"H100-NVL", "h100nvl94", 90, MIB(95830), GBS(3900.), TERA(835.), GBS(300.)},
    {"H200", "h200141,h200sxm,h200sxm5", 90, MIB(143771), GBS(4800.), TERA(989.), GBS(450.)},
    {"B200", "b200180,b200192,b200sxm", 100, MIB(183359), GBS(8000.), TERA(2250.), GBS(900.)},
    {"V100-16", "v100sxm216", 70, MIB(16160), GBS(900.), TERA(125.), GBS(150.)},
    {"V100-32", "v100sxm232", 70, MIB(32510), GBS(900.), TERA(125.), GBS(150.)},
    {"T4", "t416", 75, MIB(15360), GBS(320.), TERA(65.), PCIE3},
};

struct machine {
    const char *gpu;
    uint32_t n_gpus;
    const char *names; /* names of the machines, comma separated, in the form of machine_plain */
};

static const struct machine machines[] = {
    /* The next machines are AWS's; SageMaker adds "ml." in front of the names. */
    {"A10G", 1, "g5.xlarge,g5.2xlarge,g5.4xlarge,g5.8xlarge,g5.16xlarge"},
    {"A10G", 4, "g5.12xlarge,g5.24xlarge"},
    {"A10G", 8, "g5.48xlarge"},
    {"L4", 1, "g6.xlarge,g6.2xlarge,g6.4xlarge,g6.8xlarge,g6.16xlarge,gr6.4xlarge,gr6.8xlarge"},
    {"L4", 4, "g6.12xlarge,g6.24xlarge"},
    {"L4", 8, "g6.48xlarge"},
    {"L40S", 1, "g6e.xlarge,g6e.2xlarge,g6e.4xlarge,g6e.8xlarge,g6e.16xlarge"},
    {"L40S", 4, "g6e.12xlarge,g6e.24xlarge"},
    {"L40S", 8, "g6e.48xlarge"},
    {"T4", 1, "g4dn.xlarge,g4dn.2xlarge,g4dn.4xlarge,g4dn.8xlarge,g4dn.16xlarge"},
    {"T4", 4, "g4dn.12xlarge"},
    {"T4", 8, "g4dn.metal"},
    {"V100-16", 1, "p3.2xlarge"},
    {"V100-16", 4, "p3.8xlarge"},
    {"V100-16", 8, "p3.16xlarge"},
    {"V100-32", 8, "p3dn.24xlarge"},
    {"A100-40", 8, "p4d.24xlarge,p4d"},
    {"A100-80", 8, "p4de.24xlarge,p4de"},
    {"H100", 1, "p5.4xlarge"},
    {"H100", 8, "p5.48xlarge,p5"},
    {"H200", 8, "p5e.48xlarge,p5en.48xlarge,p5e,p5en"},
    {"B200", 8, "p6-b200.48xlarge,p6-b200"},
    /* The next machines are Google Cloud's. */
    {"L4", 1, "g2-standard-4,g2-standard-8,g2-standard-12,g2-standard-16,g2-standard-32"},
    {"L4", 2, "g2-standard-24"},
    {"L4", 4, "g2-standard-48"},
    {"L4", 8, "g2-standard-96"},
    {"A100-40", 1, "a2-highgpu-1g"},
    {"A100-40", 2, "a2-highgpu-2g"},
    {"A100-40", 4, "a2-highgpu-4g"},
    {"A100-40", 8, "a2-highgpu-8g"},
    {"A100-40", 16, "a2-megagpu-16g"},
    {"A100-80", 1, "a2-ultragpu-1g"},
    {"A100-80", 2, "a2-ultragpu-2g"},
    {"A100-80", 4, "a2-ultragpu-4g"},
    {"A100-80", 8, "a2-ultragpu-8g"},
    {"H100", 1, "a3-highgpu-1g"},
    {"H100", 2, "a3-highgpu-2g"},
    {"H100", 4, "a3-highgpu-4g"},
    {"H100", 8, "a3-highgpu-8g,a3-megagpu-8g"},
    {"H200", 8, "a3-ultragpu-8g"},
    {"B200", 8, "a4-highgpu-8g"},
    /* The next machines are Azure's, without the prefix "Standard_". */
    {"T4", 1, "nc4as-t4-v3,nc8as-t4-v3,nc16as-t4-v3"},
    {"T4", 4, "nc64as-t4-v3"},
    {"A10", 1, "nv36ads-a10-v5"},
    {"A10", 2, "nv72ads-a10-v5"},
    {"A100-80", 1, "nc24ads-a100-v4"},
    {"A100-80", 2, "nc48ads-a100-v4"},
    {"A100-80", 4, "nc96ads-a100-v4"},
    {"A100-40", 8, "nd96asr-v4"},
    {"A100-80", 8, "nd96amsr-a100-v4"},
    {"H100-NVL", 1, "nc40ads-h100-v5"},
    {"H100-NVL", 2, "nc80adis-h100-v5"},
    {"H100", 8, "nd96isr-h100-v5"},
    {"H200", 8, "nd96isr-h200-v5"},
};

size_t gpus_count(void)
{
    return sizeof models / sizeof models[0];
}

const struct gpu_model *gpus_at(size_t i)
{
    return &models[i];
}

/* ---- names ---- */

struct plain_name {
    char text[64];
};

static bool skip(const char **at, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(*at, prefix, n) != 0)
        return false;
    *at += n;
    return true;
}

/* Reduces a name to lower-case letters and digits, without the manufacturer in front and without
 * "GB". */
static struct plain_name gpu_plain(struct str name)
{
    struct plain_name small = {""}, out;
    size_t n = 0;
    for (size_t i = 0; i < name.len && n + 1 < sizeof small.text; i++)
        if (isalnum((unsigned char)name.ptr[i]))
            small.text[n++] = (char)tolower((unsigned char)name.ptr[i]);
    const char *at = small.text;
    while (skip(&at, "nvidia") || skip(&at, "tesla"))
        continue;
    snprintf(out.text, sizeof out.text, "%s", at);
    char *gb = strstr(out.text, "gb");
    if (gb)
        memmove(gb, gb + 2, strlen(gb + 2) + 1);
    return out;
}

/* Writes a name in lower case, with "-" for "_", without "ml." or "Standard_" in front, and with
 * "xlarge" for "xl". */
static struct plain_name machine_plain(struct str name)
{
    struct plain_name small = {""}, out;
    size_t n = 0;
    for (size_t i = 0; i < name.len && n + 1 < sizeof small.text; i++) {
        char c = (char)tolower((unsigned char)name.ptr[i]);
        small.text[n++] = (char)(c == '_' ? '-' : c);
    }
    const char *at = small.text;
    while (skip(&at, "ml.") || skip(&at, "standard-"))
        continue;
    n = strlen(at);
    bool is_short = n > 2 && strcmp(at + n - 2, "xl") == 0;
    snprintf(out.text, sizeof out.text, "%s%s", at, is_short ? "arge" : "");
    return out;
}

/* Returns the next name of a list and advances the list. Returns an empty string at the end. */
static struct str next_name(const char **list)
{
    const char *at = *list ? *list : "";
    size_t n = strcspn(at, ",");
    *list = at[n] == ',' ? at + n + 1 : at + n;
    return (struct str){at, n};
}

static bool is_named(const char *list, struct str name)
{
    for (struct str n = next_name(&list); n.len > 0; n = next_name(&list))
        if (str_eq(n, name))
            return true;
    return false;
}

static const struct gpu_model *find_model(struct str plain)
{
    for (size_t i = 0; i < gpus_count(); i++) {
        struct plain_name own = gpu_plain(str_from(models[i].name));
        if (str_eq_c(plain, own.text) || is_named(models[i].others, plain))
            return &models[i];
    }
    return NULL;
}

/* ---- nearest names ---- */

enum { N_NEAREST = 3 };
struct nearest {
    struct {
        struct str name;
        size_t distance;
    } best[N_NEAREST];
    size_t n;
};

static void look_at(struct nearest *x, struct str name, struct str plain, struct str wanted)
{
    size_t d = str_distance(plain, wanted), at = x->n;
    if (wanted.len > 1 && str_starts(plain, wanted))
        d /= 3; /* a name that begins with the wanted text is nearer */
    while (at > 0 && x->best[at - 1].distance > d)
        at--;
    if (at == N_NEAREST)
        return;
    size_t n_after = (x->n < N_NEAREST ? x->n : N_NEAREST - 1) - at;
    memmove(&x->best[at + 1], &x->best[at], n_after * sizeof x->best[0]);
    x->best[at].name = name;
    x->best[at].distance = d;
    x->n += x->n < N_NEAREST;
}

struct nearest_text {
    char text[200];
};

static struct nearest_text say_nearest(const struct nearest *x)
{
    struct nearest_text out = {""};
    size_t n = 0;
    for (size_t i = 0; i < x->n && n < sizeof out.text; i++)
        n += (size_t)snprintf(out.text + n, sizeof out.text - n, "%s" STR_FMT, i ? ", " : "",
                              STR_ARG(x->best[i].name));
    return out;
}

/* Names the nearest GPUs, or all GPUs when the name resembles none. */
static enum status no_gpu(struct str name, struct str plain, struct error *err)
{
    struct nearest x = {0};
    struct nearest_text all = {""};
    size_t n = 0;
    for (size_t i = 0; i < gpus_count(); i++) {
        struct plain_name own = gpu_plain(str_from(models[i].name));
        look_at(&x, str_from(models[i].name), str_from(own.text), plain);
        n += (size_t)snprintf(all.text + n, sizeof all.text - n, "%s%s", i ? ", " : "",
                              models[i].name);
    }
    bool is_near = x.best[0].distance <= plain.len / 2;
    return error_set(
        err, STATUS_NOT_FOUND,
        "--gpu " STR_FMT
        ": the name is unknown; %s: %s. For other GPUs give a shape and --memory-bytes",
        STR_ARG(name), is_near ? "similar names" : "known names",
        is_near ? say_nearest(&x).text : all.text);
}

static enum status no_machine(struct str name, struct str plain, struct error *err)
{
    struct nearest x = {0};
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        const char *list = machines[i].names;
        for (struct str n = next_name(&list); n.len > 0; n = next_name(&list))
            look_at(&x, n, n, plain);
    }
    return error_set(err, STATUS_NOT_FOUND,
                     "--instance " STR_FMT
                     ": the name is unknown; similar names: %s. To name GPUs and their number "
                     "instead, use --gpu, such as --gpu 4xA10G",
                     STR_ARG(name), say_nearest(&x).text);
}

/* ---- GPUs and machines ---- */

static void name_target(struct gpu_target *t, struct str name)
{
    snprintf(t->name, sizeof t->name, STR_FMT, STR_ARG(name));
}

/* Reads a number such as "4x" in front of a name. Returns 0 when there is none, and -1 when it
 * is not between 1 and GPUS_MOST_SAID. */
static int take_number(struct str *name)
{
    size_t i = 0;
    int n = 0;
    while (i < name->len && isdigit((unsigned char)name->ptr[i]) && i < 5)
        n = 10 * n + (name->ptr[i++] - '0');
    if (i == 0 || i >= name->len || (name->ptr[i] != 'x' && name->ptr[i] != 'X'))
        return 0;
    *name = (struct str){name->ptr + i + 1, name->len - i - 1};
    return n > 0 && n <= (int)GPUS_MOST_SAID ? n : -1;
}

enum status gpus_find(struct str name, struct gpu_target *out, struct error *err)
{
    struct str rest = name;
    int n = take_number(&rest);
    *out = (struct gpu_target){.n_gpus = n > 0 ? (uint32_t)n : GPUS_MOST, .is_machine = n > 0};
    if (n < 0)
        return error_set(err, STATUS_INVALID,
                         "--gpu " STR_FMT ": the number of GPUs must be from 1 to %u",
                         STR_ARG(name), GPUS_MOST_SAID);
    struct plain_name plain = gpu_plain(rest);
    out->gpu = find_model(str_from(plain.text));
    name_target(out, out->gpu && n == 0 ? str_from(out->gpu->name) : name);
    return out->gpu ? STATUS_OK : no_gpu(name, str_from(plain.text), err);
}

enum status gpus_find_machine(struct str name, struct gpu_target *out, struct error *err)
{
    struct plain_name plain = machine_plain(name);
    *out = (struct gpu_target){.is_machine = true};
    name_target(out, name);
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
        if (is_named(machines[i].names, str_from(plain.text))) {
            out->n_gpus = machines[i].n_gpus;
            out->gpu = find_model(str_from(gpu_plain(str_from(machines[i].gpu)).text));
            return STATUS_OK;
        }
    return no_machine(name, str_from(plain.text), err);
}
