/* Fuzzes the answers of untrusted servers that `cox pull` reads before it fetches a file: a
 * bucket's pages, a hub's listing, an index's page, a wheel. It also fuzzes the name of a model
 * from any source. The first byte selects the kind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/pull/files/list.h"
#include "cli/pull/sources/hub.h"
#include "cli/pull/sources/index.h"
#include "cli/pull/sources/s3_xml.h"
#include "cli/pull/sources/wheel.h"
#include "common/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WHEEL_MAX = 1 << 20 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static enum status on_object(void *ctx, const struct s3_object *o, struct error *err)
{
    size_t n = strlen(o->key);
    must(n > 0 && n <= S3_KEY_MAX && strlen(o->etag) < 136);
    return STATUS_OK;
}

static void page(struct str bytes)
{
    struct s3_page p;
    struct error err = {0};
    enum status s = s3_xml_read(bytes, on_object, NULL, &p, &err);
    must(s == STATUS_OK || (s == STATUS_PROTOCOL && err.text[0]));
    must(strlen(p.next_token) < sizeof p.next_token);
}

/* Checks a listing. No file may leave the folder or the host, whatever its name. */
static void listing(struct str bytes, const char *model)
{
    static const char front[] = "https://h/";
    struct model_ref r;
    struct pull_list l = {0};
    struct error err = {0};
    must(model_ref_parse(model, &r, &err) == STATUS_OK);
    enum status s = pull_hub_read(bytes, &r, "https://h", &l, &err);
    pull_list_finish(&l);
    for (uint32_t i = 0; i < l.n_files; i++) {
        must(model_ref_name_is_safe(l.files[i].name));
        must(strncmp(l.files[i].url, front, strlen(front)) == 0);
        must(!strpbrk(l.files[i].url, " \r\n\t?#@\\") && strlen(l.files[i].sha256) <= 64);
    }
    must(s != STATUS_OK || l.n_files > 0);
    pull_list_fini(&l);
    model_ref_fini(&r);
}

static void index_page(struct str bytes)
{
    struct index_file f;
    struct error err = {0};
    if (pull_index_read(bytes, "x.whl", &f, &err) != STATUS_OK)
        return;
    must(strstr(f.link, "/x.whl") && !strchr(f.link, '#') &&
         (strlen(f.sha256) == 64 || !f.sha256[0]));
    mem_free(f.link);
}

static bool on_piece(void *ctx, struct str piece)
{
    uint64_t *n = ctx;
    *n += piece.len;
    return *n <= WHEEL_MAX;
}

static void wheel(struct str bytes)
{
    char path[64];
    uint64_t n = 0;
    struct error err = {0};
    int fd = memfd_create("wheel", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes.ptr, bytes.len) != (ssize_t)bytes.len)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum status s = wheel_extract(path, "a", WHEEL_MAX, on_piece, &n, &err);
    must(n <= WHEEL_MAX && s != STATUS_CLOSED);
    (void)close(fd);
}

static void name(struct str bytes)
{
    char *text = mem_strndup(bytes.ptr, bytes.len);
    struct model_ref r, again;
    struct error err = {0};
    if (model_ref_parse(text, &r, &err) == STATUS_OK && model_ref_is_remote(&r)) {
        must(model_ref_name_is_safe(r.folder) && r.name[0] && !strpbrk(r.text, "\r\n\x1b"));
        must(!r.file || r.kind != MODEL_REF_URL || model_ref_name_is_safe(r.file));
        /* the printed form of the reference must give the same model */
        if (r.kind != MODEL_REF_URL) {
            must(model_ref_parse(r.text, &again, &err) == STATUS_OK);
            must(strcmp(again.text, r.text) == 0 && strcmp(again.folder, r.folder) == 0);
            model_ref_fini(&again);
        }
    }
    model_ref_fini(&r);
    mem_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct str bytes = {(const char *)data + 1, size - 1};
    switch (data[0] % 6) {
    case 0:
        page(bytes);
        break;
    case 1:
        listing(bytes, "hf:o/n");
        break;
    case 2:
        listing(bytes, "hf:o/n/q/a-00001-of-00002.gguf");
        break;
    case 3:
        index_page(bytes);
        break;
    case 4:
        wheel(bytes);
        break;
    default:
        name(bytes);
    }
    return 0;
}
