#pragma once
/* `model_info` holds facts about a model that gateway, cli and worker need before they read a
 * tensor. The facts are read from a GGUF's metadata, or from config.json and
 * generation_config.json. The struct owns its strings. Every value is checked against bounds,
 * because the files are not trusted. */
#include <stdint.h>

enum model_format { MODEL_GGUF, MODEL_HF, MODEL_NULL, MODEL_FORMAT_COUNT };

#define MODEL_MAX_EOS   16
#define MODEL_MAX_LEN   (1u << 27)
#define MODEL_MAX_VOCAB (1u << 24)

struct model_info {
    enum model_format format;
    char *path;           /* absolute path of the GGUF (its first part) or of the folder */
    char *tokenizer_path; /* argument for text_tokenizer_open */
    char *name;           /* default served name, taken from the path or the model_ref */
    /* family name, such as "gemma3" or "llama", for the chat template and the runner */
    char *family;
    uint32_t max_model_len, vocab_size;
    uint32_t hidden; /* length of an embedding vector; 0 = the files do not say */
    /* EOS ids of generation_config and of the tokenizer, and their number */
    uint32_t eos_ids[MODEL_MAX_EOS], n_eos_ids;
};
