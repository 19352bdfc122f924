#pragma once
/* Lists the known model families. A family's name is transformers' model_type ("gemma3_text" is
 * "gemma3"). GGUF has its own names for architectures. */
#include "common/base/status.h"
#include "common/base/str.h"

#define FAMILY_MAX_EOS_TEXTS 4

struct family {
    const char *name;
    const char *hf_type;  /* value of model_type in config.json */
    const char *hf_class; /* class in config.json's architectures, without "ForCausalLM" */
    /* value of general.architecture; NULL = GGUF uses another family's name */
    const char *gguf_arch;
    /* Values that transformers assumes when config.json leaves them out; 0 = config.json must
     * have them. */
    uint32_t default_max_len, default_vocab;
    /* Texts of end-of-turn tokens that a GGUF does not list as EOS. */
    const char *eos_texts[FAMILY_MAX_EOS_TEXTS];
};

/* These functions find a family by a name. They return NULL when no family has that name. */
const struct family *family_by_hf_type(struct str model_type);
const struct family *family_by_gguf_arch(struct str arch);
/* Appends the names as "llama, mistral, ...", each name once. */
void family_names(struct strbuf *out);
/* Returns true when `class_name` is the family's class of transformers that generates text. Case
 * is ignored, because the first Llamas were written LLaMA. */
bool family_has_class(const struct family *f, struct str class_name);
