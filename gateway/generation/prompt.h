#pragma once
/* A prompt on its way from the body to token ids. text and ids are owned. */
#include "common/base/str.h"

struct prompt {
    struct str text; /* what was or will be tokenized; from ids only when echo asks for it */
    uint32_t *ids;   /* [n_ids] */
    uint32_t n_ids;
    bool has_text;      /* false: the client gave token ids */
    bool is_decoded;    /* text was made of the ids: no character is cut at its end */
    bool goes_on;       /* the next prompt of the list is its next piece (chunks.h) */
    uint32_t *offsets;  /* [n_ids] code points of text in front of each; NULL: nobody asks */
    size_t n_continued; /* bytes at the end of text that begin the answer: continue_final_message */
};

static inline struct str prompt_continued(const struct prompt *p)
{
    return p->n_continued > 0
               ? (struct str){p->text.ptr + (p->text.len - p->n_continued), p->n_continued}
               : (struct str){0};
}

struct prompt_list {
    struct prompt *items; /* owned */
    uint32_t n;
};

void prompt_list_init(struct prompt_list *l, uint32_t n); /* n empty prompts */
void prompt_list_fini(struct prompt_list *l);
