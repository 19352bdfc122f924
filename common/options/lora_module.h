#pragma once
/* An item of --lora-modules: NAME=FOLDER, or vLLM's JSON {"name": …, "path": …}. */
#include "common/base/status.h"

enum { LORA_MODULE_NAME_MAX = 255, LORA_MODULE_PATH_MAX = 4095 };

struct lora_modules_item {
    char name[LORA_MODULE_NAME_MAX + 1], path[LORA_MODULE_PATH_MAX + 1];
};

/* Reads an item. The JSON may have base_model_name, which changes nothing because there is one
 * model. Any other member is an error that names it. */
MUST_USE enum status lora_module_read(const char *item, struct lora_modules_item *out,
                                      struct error *err);
