#pragma once
/* Facts that gateway, cli and worker need of a model before they touch a tensor, read from a GGUF's
 * metadata or from config.json + generation_config.json. Strings are owned by the struct. Every
 * value is checked against sane bounds: the file is hostile until then. */
#include <stdint.h>

enum model_format { MODEL_GGUF, MODEL_HF, MODEL_NULL, MODEL_FORMAT_COUNT };

#define MODEL_MAX_EOS   16
#define MODEL_MAX_LEN   (1u << 27)
#define MODEL_MAX_VOCAB (1u << 24)

struct model_info {
    enum model_format format;
    char *path;           /* absolute; the GGUF (of several files the first) or the folder */
    char *tokenizer_path; /* what text_tokenizer_open takes */
    char *name;   /* default served name: model_name_of its path, "demo", "null", model_ref's */
    char *family; /* "gemma3", "llama", … as the template's family and the runner use it */
    uint32_t max_model_len, vocab_size;
    uint32_t hidden; /* numbers of a vector that it makes of a prompt; 0: its files do not say */
    uint32_t eos_ids[MODEL_MAX_EOS], n_eos_ids; /* generation_config and tokenizer together */
};
