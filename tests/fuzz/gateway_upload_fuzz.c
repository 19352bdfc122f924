/* Fuzzes uploads of clients: a form, and the lines of a batch. The first byte selects the kind. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/batch/input.h"
#include "gateway/batches/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_form(struct str body)
{
    struct multipart_field f[MULTIPART_MAX_FIELDS];
    const char *why;
    uint32_t n;
    if (!multipart_read(STR("multipart/form-data; boundary=B"), body, f, &n, &why))
        return;
    for (uint32_t i = 0; i < n; i++) {
        assert(f[i].content.ptr >= body.ptr &&
               f[i].content.ptr + f[i].content.len <= body.ptr + body.len);
        assert(!memmem(f[i].content.ptr, f[i].content.len, "\r\n--B", 5));
    }
}

static void read_lines(struct str rest)
{
    struct batch_input_line l;
    struct str line;
    uint32_t i_line = 0;
    char why[200];
    while (batch_input_next(&rest, &line, &i_line))
        if (batch_input_read(line, "", &l, why)) {
            assert(l.custom_id_len > 0 && l.owned_body[0] == '{');
            assert(!memchr(l.owned_body, '\n', l.body_len));
            batch_input_line_fini(&l);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct str rest = {(const char *)data + 1, size - 1};
    if (data[0] & 1)
        read_form(rest);
    else
        read_lines(rest);
    return 0;
}
