#pragma once
/* Defines the rows for LoRA adapters that several tables share, and reads an item of
 * --lora-modules (NAME=FOLDER, or vLLM's JSON {"name": …, "path": …}). S is the struct that the
 * table fills. */
#include "common/base/status.h"
#include "common/config/config.h"

#define ROW_ENABLE_LORA(S)                                                                         \
    OPT_BOOL(S, enable_lora, "enable-lora", NULL,                                                  \
             "Allow LoRA adapters to be loaded while the cluster runs.")
#define ROW_MAX_LORAS(S)                                                                           \
    OPT_INT(S, max_loras, "max-loras", 1, 64, "1",                                                 \
            "Maximum number of adapters loaded at the same time. Replacing an adapter in place "   \
            "needs one more.")
#define ROW_LORA_MODULES(S, words)                                                                 \
    OPT_WORDS(S, lora_modules, "lora-modules", words,                                              \
              "Adapters to load at the start: NAME=FOLDER, or vLLM's JSON with name and path.")
#define ROWS_LORA_ROOM(S)                                                                          \
    OPT_INT(S, max_lora_rank, "max-lora-rank", 1, 512, "16", "Maximum rank of an adapter."),       \
        OPT_STRING(S, lora_root, "lora-root", NULL,                                                \
                   "Folder from which adapters may be read. Paths outside of it are refused.")

enum { LORA_MODULE_NAME_MAX = 255, LORA_MODULE_PATH_MAX = 4095 };

struct lora_modules_item {
    char name[LORA_MODULE_NAME_MAX + 1], path[LORA_MODULE_PATH_MAX + 1];
};

/* Reads an item of --lora-modules. The JSON may have base_model_name, which has no effect
 * because there is only one model. Any other member is an error that names the member. */
MUST_USE enum status lora_module_read(const char *item, struct lora_modules_item *out,
                                      struct error *err);
