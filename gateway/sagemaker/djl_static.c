/* Writes answers of static batches in the form of a Hugging Face pipeline: lists, and texts
 * without tokens. */
#include "gateway/sagemaker/djl_static.h"
#include "gateway/sagemaker/djl_error.h"
#include "gateway/sagemaker/djl_json.h"

/* Writes a line per token. A stream has a single input. */
void djl_static_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                      const struct answer_delta *d)
{
    struct djl_pieces pieces = djl_pieces_of(d);
    uint32_t n = d->n_ids ? d->n_ids : 1;
    for (uint32_t i = 0; i < n; i++) {
        struct str text = pieces.text;
        if (d->n_ids)
            text = djl_next_piece(&pieces, a, d->ids[i], i + 1 == n);
        strbuf_append_c(out, "{\"outputs\":[");
        strbuf_append_json(out, text);
        strbuf_append_c(out, "]}\n");
    }
}

/* Writes one object per input, in order. */
void djl_static_whole(struct strbuf *out, const struct answer_shape *a,
                      const struct answer_delta *d, uint32_t n, const struct answer_usage *u)
{
    strbuf_append_c(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        strbuf_append_c(out, i ? ",{" : "{");
        djl_generated(out, a, &d[i], STR(""));
        strbuf_append_c(out, "}");
    }
    strbuf_append_c(out, "]");
}

/* Writes an error. A failure in the handler has the handler's form. A refusal before the model
 * is reached has the front end's form. */
void djl_static_error(struct strbuf *out, const struct api_error *e, bool in_stream)
{
    int status = djl_rolling_status(e);
    if (!in_stream && status != 424) {
        djl_front_end_error(out, e, status);
        strbuf_append_c(out, "\n");
        return;
    }
    strbuf_append_c(out, "{\"code\":424,\"message\":\"invoke handler failure\",\"error\":");
    strbuf_append_json(out, str_from(e->message));
    strbuf_append_c(out, "}\n");
}
