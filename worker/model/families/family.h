#pragma once
/* Declares the families of models. Each family is a function, in a file of its own in this
 * folder, that appends the operators of its layers to `p`. program_build.c lists them by the
 * names of config.json. */
struct program;

void family_llama(struct program *p);
void family_qwen3(struct program *p);
void family_gemma2(struct program *p);
void family_gemma3(struct program *p);
void family_olmo2(struct program *p);
void family_phi3(struct program *p);
void family_mixtral(struct program *p);
void family_qwen_moe(struct program *p);
void family_gpt_oss(struct program *p);
void family_deepseek(struct program *p);
