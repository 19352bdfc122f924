#pragma once
/* Text: the one C header over the Rust crates (tokenizers, llguidance). Includes nothing of ours.
 * All strings are UTF-8 bytes with a length. Handles are immutable after opening and may be used
 * from several threads; a decoder belongs to one thread. Functions return 0, or a TEXT_* code and
 * fill err (TEXT_ERR_MAX bytes, always NUL-terminated). No panic crosses this border. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_ERR_MAX 512

enum text_status {
    TEXT_OK = 0,
    TEXT_INVALID, /* the file or the input is wrong */
    TEXT_IO,
    TEXT_LIMIT,    /* too long, too deep, out of fuel */
    TEXT_TEMPLATE, /* the template raised: err is its message (raise_exception) */
    TEXT_UNSUPPORTED,
    TEXT_INTERNAL /* a bug: the panic's message */
};

/* ---- tokenizer ---- */
struct text_tokenizer;

/* path: a tokenizer.json, a tokenizer.model (SentencePiece), a folder that has one of them (the
 * first before the second, with tokenizer_config.json beside it), or a GGUF. cache_dir: where
 * compiled tokenizers are kept, by the file's hash (NULL: none). The compiled form is
 * memory-mapped; a damaged or stale one is rebuilt. */
int text_tokenizer_open(const char *path, const char *cache_dir, struct text_tokenizer **out,
                        char err[TEXT_ERR_MAX]);
void text_tokenizer_free(struct text_tokenizer *t);
uint32_t text_vocab_size(const struct text_tokenizer *t);
/* Special ids the files name; UINT32_MAX when there is none. */
uint32_t text_bos_id(const struct text_tokenizer *t);
uint32_t text_eos_id(const struct text_tokenizer *t);
/* The id of a token by its exact text ("<end_of_turn>"); UINT32_MAX when there is none. */
uint32_t text_token_id(const struct text_tokenizer *t, const char *ptr, size_t len);
/* The raw bytes a token stands for (byte-level and <0xNN> tokens undone); special tokens: their
 * text. Borrowed for the tokenizer's life; NULL for an id that is none. */
const uint8_t *text_token_bytes(const struct text_tokenizer *t, uint32_t id, size_t *len);
bool text_token_is_special(const struct text_tokenizer *t, uint32_t id);

/* ids: *out is malloc'ed, the caller frees it with text_free. max_ids bounds the work: TEXT_LIMIT
 * with the limit in err. Equal to tokenizers' encode(text, add_special_tokens); for a
 * tokenizer.model to that of transformers' tokenizers on SentencePiece. */
int text_encode(const struct text_tokenizer *t, const char *ptr, size_t len, bool add_special,
                size_t max_ids, uint32_t **out, size_t *n_out, char err[TEXT_ERR_MAX]);
/* The same ids, all of them by tokenizers' own pipeline: what tests hold text_encode's short way
 * against. */
int text_encode_by_pipeline(const struct text_tokenizer *t, const char *ptr, size_t len,
                            bool add_special, size_t max_ids, uint32_t **out, size_t *n_out,
                            char err[TEXT_ERR_MAX]);
/* Equal to tokenizers' decode(ids, skip_special). */
int text_decode(const struct text_tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                char **out, size_t *len, char err[TEXT_ERR_MAX]);
void text_free(void *owned);

/* Streaming decode: concatenated deltas are the text; half a UTF-8 character is never given out; an
 * invalid byte run becomes U+FFFD once it can no longer become valid. */
struct text_decoder;
/* prompt: ids before the first streamed one, for decoders that look back (may be empty). */
struct text_decoder *text_decoder_new(const struct text_tokenizer *t, bool skip_special,
                                      const uint32_t *prompt, size_t n_prompt);
void text_decoder_free(struct text_decoder *d);
/* *delta is borrowed until the next call on this decoder. */
int text_decoder_push(struct text_decoder *d, uint32_t id, const char **delta, size_t *len,
                      char err[TEXT_ERR_MAX]);
int text_decoder_flush(struct text_decoder *d, const char **delta, size_t *len,
                       char err[TEXT_ERR_MAX]);

/* ---- chat template ---- */
struct text_template;

/* source: the template's text. */
int text_template_new(const char *source, size_t len, struct text_template **out,
                      char err[TEXT_ERR_MAX]);
/* From the model's files, in this order: override (a file, the name of a built-in template, or the
 * template itself in one line, with escapes as in "\\n"; NULL: none), chat_template.jinja,
 * tokenizer_config.json, GGUF metadata, the family's built-in one (family: "gemma3", "llama", …;
 * NULL: none). TEXT_UNSUPPORTED when there is none. Without an override the one for tools
 * (additional_chat_templates/tool_use.jinja, "tool_use" of a list) is taken where there are tools.
 */
int text_template_open(const char *model_path, const char *override, const char *family,
                       struct text_template **out, char err[TEXT_ERR_MAX]);
/* The model's template of this name (of additional_chat_templates/ or of the list in its config),
 * which is the caller's. TEXT_UNSUPPORTED: it has none. */
int text_template_pick(const struct text_template *t, const char *name, size_t len,
                       struct text_template **out, char err[TEXT_ERR_MAX]);
void text_template_free(struct text_template *t);
/* context: a JSON object with the template's variables (messages, tools, add_generation_prompt,
 * bos_token, eos_token, chat_template_kwargs' entries, …). now_unix: what strftime_now shows. The
 * files' special tokens are added when context lacks them. fuel bounds the work (0: default). */
int text_template_render(const struct text_template *t, const char *context, size_t context_len,
                         int64_t now_unix, uint64_t fuel, char **out, size_t *len,
                         char err[TEXT_ERR_MAX]);

/* ---- grammars ---- */
/* A tokenizer's tokens by their bytes: made once (some 0.7 s and 25 MB for 250000 tokens), used by
 * any thread. The tokenizer may go before it. */
struct text_vocabulary;
int text_vocabulary_new(const struct text_tokenizer *t, struct text_vocabulary **out,
                        char err[TEXT_ERR_MAX]);
void text_vocabulary_free(struct text_vocabulary *v);

/* As proto/messages.h numbers them. */
enum text_grammar_kind {
    TEXT_GRAMMAR_JSON_SCHEMA = 1,
    TEXT_GRAMMAR_REGEX,
    TEXT_GRAMMAR_LARK, /* llguidance's dialect of it */
    /* {"format": …} of text/src/grammar/structural_tag.rs, or the older {"structures": [{begin,
     * schema, end} ...], "triggers": [...]} */
    TEXT_GRAMMAR_STRUCTURAL_TAG,
    /* {"open": [marker ...], "close": [...], "begun": bool, "kind": int, "source": string}: any
     * text up to the first marker that closes, then what this source of that kind allows. Not
     * begun: all of the reasoning may be left out, and begins with a marker that opens. A marker
     * is the special token of that name, or the text. */
    TEXT_GRAMMAR_AFTER_REASONING
};
/* Immutable, used by any thread; the vocabulary may go before it. A client's source: its bytes, its
 * nesting, its size and the work are bounded. TEXT_INVALID, TEXT_LIMIT with llguidance's words. */
struct text_grammar;
int text_grammar_compile(const struct text_vocabulary *v, enum text_grammar_kind kind,
                         const char *source, size_t len, struct text_grammar **out,
                         char err[TEXT_ERR_MAX]);
void text_grammar_free(struct text_grammar *g);

/* The cost of a compile, counted, the same on every machine (some 0.5 % more or less: tables are
 * hashed): bytes from the allocator in all, and the most at once; fuel of the first mask's lexer;
 * bytes that the grammar has from then on, and that a matcher of it has at its beginning. One that
 * takes more than text/src/base/heap.rs allows is TEXT_LIMIT when it is done. */
struct text_compile_cost {
    uint64_t bytes, peak_bytes, fuel, kept_bytes, matcher_bytes;
};
void text_grammar_cost(const struct text_grammar *g, struct text_compile_cost *out);
/* From here on a compile that takes more ends this process at once, with _exit(exit_code), 1 to
 * 255, wherever it is: for processes that do nothing else. Any thread, before the first compile. */
void text_compile_may_end_process(int exit_code);

/* Where a text stands in its grammar: one thread's. eos_ids, and the tokenizer's own, end a text:
 * allowed where the grammar allows its end. The grammar may go before it. */
struct text_matcher;
int text_matcher_new(const struct text_grammar *g, const uint32_t *eos_ids, size_t n_eos,
                     struct text_matcher **out, char err[TEXT_ERR_MAX]);
struct text_matcher *text_matcher_copy(const struct text_matcher *m); /* cheap; NULL: a bug */
void text_matcher_free(struct text_matcher *m);                       /* NULL is fine */
/* Bit i % 32 of words[i / 32]: token i may be next. Behind the end, and on an error, only ids that
 * end a text may. TEXT_LIMIT: the mask, or the matcher's masks together, cost more than they may
 * (text/src/grammar/mask_budget.rs), or the matcher has more memory than it may, now and from then
 * on; TEXT_INVALID: a dead end, where no token may come and the text is none yet. Either way the
 * text has to end here, and is none. */
int text_matcher_mask(struct text_matcher *m, uint32_t *words, size_t n_words,
                      char err[TEXT_ERR_MAX]);
/* TEXT_INVALID: the grammar does not allow it here, and nothing has changed. */
int text_matcher_accept(struct text_matcher *m, uint32_t id, char err[TEXT_ERR_MAX]);
bool text_matcher_is_done(const struct text_matcher *m); /* nothing but its end may follow */
/* The cost of its masks, and of looks at a text that is taken without, in units of some 0.1 us,
 * counted. A copy goes on from there. */
uint64_t text_matcher_cost(const struct text_matcher *m);
/* The bytes that it has, without its copies. They grow: how far is
 * text/src/grammar/matcher_memory.rs'. */
uint64_t text_matcher_bytes(const struct text_matcher *m);
