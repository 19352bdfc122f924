#include "cli/base/program_name.h"

static bool is_vllm;

void program_name_set_vllm(void)
{
    is_vllm = true;
}

bool program_is_vllm(void)
{
    return is_vllm;
}

const char *program_name(void)
{
    return is_vllm ? "vllm" : "cox";
}
