#pragma once
/* An item of --lora-modules: NAME=FOLDER, or vLLM's JSON {"name": …, "path": …}. */
#include "common/base/status.h"

enum { LORA_MODULE_NAME_MAX = 255, LORA_MODULE_PATH_MAX = 4095 };

struct lora_modules_item {
    char name[LORA_MODULE_NAME_MAX + 1], path[LORA_MODULE_PATH_MAX + 1];
};

/* base_model_name may say what it is an adapter of, and changes nothing: there is one model. Other
 * members are refused by name. */
MUST_USE enum status lora_module_read(const char *item, struct lora_modules_item *out,
                                      struct error *err);
