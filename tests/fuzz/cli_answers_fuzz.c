/* Fuzzes the answers that cox's commands read: an event stream in pieces, the JSON of `cox
 * status` and `cox top`, a child's last line. The first byte selects the reader, and the second
 * selects the cuts. */
#include <stdlib.h>
#include <string.h>

#include "cli/base/last_words.h"
#include "cli/client/sse_reader.h"
#include "cli/view/status_view.h"
#include "cli/view/top_view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_data(void *ctx, struct str data)
{
    struct strbuf *all = ctx;
    if (memchr(data.ptr, '\n', data.len))
        abort(); /* an event's data has one line */
    strbuf_append_str(all, data);
    strbuf_append_c(all, "\n");
}

static void read_events(struct str bytes, size_t piece, struct strbuf *out)
{
    struct sse_reader r;
    sse_reader_init(&r, on_data, out);
    for (size_t at = 0; at < bytes.len; at += piece) {
        size_t n = bytes.len - at < piece ? bytes.len - at : piece;
        if (!sse_reader_feed(&r, (struct str){bytes.ptr + at, n}))
            break;
    }
    sse_reader_fini(&r);
}

static void events(struct str bytes, size_t piece)
{
    struct strbuf whole, cut;
    strbuf_init(&whole, 0);
    strbuf_init(&cut, 0);
    read_events(bytes, bytes.len + 1, &whole);
    read_events(bytes, piece, &cut);
    if (!str_eq(strbuf_str(&whole), strbuf_str(&cut)))
        abort();
    strbuf_fini(&whole);
    strbuf_fini(&cut);
}

static void check_text(const struct strbuf *out)
{
    if (out->len == 0)
        abort();
    for (size_t i = 0; i < out->len; i++)
        if (out->ptr[i] == 0x1B) /* no escape sequence may reach the terminal */
            abort();
}

/* Draws twice, so that the view has a curve. */
static void top(const json_t *root, struct strbuf *out)
{
    static struct top_history h;
    const struct top_shape shape = {.columns = 97, .rows = 40, .utf8 = true};
    h.n = 0;
    top_history_add(&h, root);
    top_history_add(&h, root);
    strbuf_reset(out);
    top_view_render(root, &h, &shape, out);
    check_text(out);
}

static void status(struct str bytes)
{
    struct strbuf out;
    json_t *root = json_loadb(bytes.ptr, bytes.len, JSON_DECODE_ANY, NULL);
    strbuf_init(&out, 0);
    if (root) {
        (void)status_view_is_healthy(root);
        status_view_render(root, &out);
        check_text(&out);
        top(root, &out);
    }
    json_decref(root);
    strbuf_fini(&out);
}

static void line(struct str bytes, size_t size)
{
    char *text = malloc(bytes.len + 1), *out = malloc(size);
    if (!text || !out)
        abort();
    memcpy(text, bytes.ptr, bytes.len);
    text[bytes.len] = '\0';
    last_words_sentence(text, out, size);
    if (strlen(out) >= size || strlen(out) > strlen(text))
        abort();
    free(text);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct str bytes = {(const char *)data + 2, size - 2};
    if (data[0] % 3 == 0)
        events(bytes, 1u + data[1] % 16);
    else if (data[0] % 3 == 1)
        status(bytes);
    else
        line(bytes, 1u + data[1]);
    return 0;
}
