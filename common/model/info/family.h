#pragma once
/* The model families that are known: one table. A family's name is transformers' model_type
 * ("gemma3_text" is "gemma3"); GGUF has its own names for architectures. */
#include "common/base/status.h"
#include "common/base/str.h"

#define FAMILY_MAX_EOS_TEXTS 4

struct family {
    const char *name;
    const char *hf_type;   /* config.json model_type */
    const char *hf_class;  /* config.json architectures, without "ForCausalLM" */
    const char *gguf_arch; /* general.architecture; NULL: comes as another one */
    /* Values that transformers assumes when config.json leaves them out; 0: they must be there. */
    uint32_t default_max_len, default_vocab;
    /* End-of-turn tokens that a GGUF does not name as EOS, by their text. */
    const char *eos_texts[FAMILY_MAX_EOS_TEXTS];
};

/* NULL when there is none. */
const struct family *family_by_hf_type(struct str model_type);
const struct family *family_by_gguf_arch(struct str arch);
/* "llama, mistral, ...": each name once. */
void family_names(struct strbuf *out);
/* Is this the class that generates text, of transformers' for the family? In any case of letters:
 * the first Llamas were LLaMAs. */
bool family_has_class(const struct family *f, struct str class_name);
