#pragma once
/* `prompt` holds one prompt of a request, from the body's text or ids to the final token ids. It
 * owns `text` and `ids`. */
#include "common/base/str.h"

struct prompt {
    struct str text; /* text to tokenize; decoded from ids only for an echo */
    uint32_t *ids;   /* [n_ids]: tokens of the prompt; owned */
    uint32_t n_ids;
    bool has_text;   /* false = the client gave token ids */
    bool is_decoded; /* true when `text` was decoded from ids, so no character is cut at its end */
    bool goes_on;    /* true when the next prompt in the list continues this prompt (chunks.h) */
    uint32_t *offsets; /* [n_ids]: code points of text before each id; NULL = not requested */
    /* number of bytes at the end of `text` that start the answer (continue_final_message) */
    size_t n_continued;
};

static inline struct str prompt_continued(const struct prompt *p)
{
    return p->n_continued > 0
               ? (struct str){p->text.ptr + (p->text.len - p->n_continued), p->n_continued}
               : (struct str){0};
}

struct prompt_list {
    struct prompt *items; /* [n]: the prompts; owned */
    uint32_t n;
};

void prompt_list_init(struct prompt_list *l, uint32_t n); /* makes n empty prompts */
void prompt_list_fini(struct prompt_list *l);
