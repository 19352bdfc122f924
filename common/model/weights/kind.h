#pragma once
/* The kind of files that a folder must have; a GGUF is one by itself. */
enum weights_kind { WEIGHTS_ANY, WEIGHTS_SAFETENSORS, WEIGHTS_TORCH };
