#pragma once
/* `weights_kind` is the kind of files that a folder must have. A GGUF needs no choice. */
enum weights_kind { WEIGHTS_ANY, WEIGHTS_SAFETENSORS, WEIGHTS_TORCH };
