#pragma once
/* Declares the functions of the Rust library (tokenizers, templates, grammars). It is the
 * library's only C header, and it includes none of Coxswain's other headers. All strings are
 * UTF-8 bytes with a length. Handles are immutable after opening and may be used from several
 * threads; a decoder or a matcher belongs to one thread. Functions return 0, or a TEXT_* code
 * and fill err (TEXT_ERR_MAX bytes, always NUL-terminated). No panic crosses this boundary. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_ERR_MAX 512

enum text_status {
    TEXT_OK = 0,
    TEXT_INVALID, /* the file or the input is invalid */
    TEXT_IO,
    TEXT_LIMIT,    /* the input is too long or too deep, or the fuel is used up */
    TEXT_TEMPLATE, /* the template raised an error: err is its message (raise_exception) */
    TEXT_UNSUPPORTED,
    TEXT_INTERNAL /* the library has a bug: err is the panic's message */
};

/* ---- tokenizer ---- */
struct text_tokenizer;

/* Opens a tokenizer. path: a tokenizer.json, a tokenizer.model (SentencePiece), a folder with
 * one of them, or a GGUF file. In a folder, tokenizer.json is preferred to tokenizer.model, and
 * tokenizer_config.json is read too. cache_dir: folder for compiled tokenizers, by the file's
 * hash (NULL = no cache). The compiled form is memory-mapped. A compiled form that is damaged or
 * stale is rebuilt. */
int text_tokenizer_open(const char *path, const char *cache_dir, struct text_tokenizer **out,
                        char err[TEXT_ERR_MAX]);
void text_tokenizer_free(struct text_tokenizer *t);
uint32_t text_vocab_size(const struct text_tokenizer *t);
/* Returns the special id that the model's files name; UINT32_MAX when they name none. */
uint32_t text_bos_id(const struct text_tokenizer *t);
uint32_t text_eos_id(const struct text_tokenizer *t);
/* Returns the id of the token with exactly this text ("<end_of_turn>"); UINT32_MAX when there is
 * no such token. */
uint32_t text_token_id(const struct text_tokenizer *t, const char *ptr, size_t len);
/* Returns the raw bytes that a token stands for (byte-level and <0xNN> tokens decoded); for a
 * special token, its text. The bytes are valid until the tokenizer is freed. Returns NULL when
 * no token has the id. */
const uint8_t *text_token_bytes(const struct text_tokenizer *t, uint32_t id, size_t *len);
bool text_token_is_special(const struct text_tokenizer *t, uint32_t id);

/* Encodes a text. *out is malloc'ed; the caller frees it with text_free. max_ids limits the
 * work. A text with more ids gives TEXT_LIMIT, with the limit in err. The ids equal those of
 * tokenizers' encode(text, add_special_tokens). For a tokenizer.model, they equal those of
 * transformers' SentencePiece tokenizers. */
int text_encode(const struct text_tokenizer *t, const char *ptr, size_t len, bool add_special,
                size_t max_ids, uint32_t **out, size_t *n_out, char err[TEXT_ERR_MAX]);
/* Returns the same ids as text_encode, always by tokenizers' own pipeline. Tests compare the
 * fast path of text_encode with this function. */
int text_encode_by_pipeline(const struct text_tokenizer *t, const char *ptr, size_t len,
                            bool add_special, size_t max_ids, uint32_t **out, size_t *n_out,
                            char err[TEXT_ERR_MAX]);
/* Returns the text of tokenizers' decode(ids, skip_special). */
int text_decode(const struct text_tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                char **out, size_t *len, char err[TEXT_ERR_MAX]);
void text_free(void *owned);

/* Decodes a stream of ids to text deltas, whose concatenation is the text. A delta never ends
 * inside a UTF-8 character. An invalid byte run becomes U+FFFD once it can no longer become
 * valid. */
struct text_decoder;
/* Makes a decoder. prompt: ids before the first streamed id, for decoders that depend on earlier
 * ids; may be empty. */
struct text_decoder *text_decoder_new(const struct text_tokenizer *t, bool skip_special,
                                      const uint32_t *prompt, size_t n_prompt);
void text_decoder_free(struct text_decoder *d);
/* Adds one id. *delta is borrowed until the next call on this decoder. */
int text_decoder_push(struct text_decoder *d, uint32_t id, const char **delta, size_t *len,
                      char err[TEXT_ERR_MAX]);
int text_decoder_flush(struct text_decoder *d, const char **delta, size_t *len,
                       char err[TEXT_ERR_MAX]);

/* ---- chat template ---- */
struct text_template;

/* Parses a template. source: the template's text. */
int text_template_new(const char *source, size_t len, struct text_template **out,
                      char err[TEXT_ERR_MAX]);
/* Opens the template of a model. It is the first of these that exists: override,
 * chat_template.jinja, tokenizer_config.json, GGUF metadata, the family's built-in template.
 * override: a file, the name of a built-in template, or the template itself in one line, with
 * escapes as in "\\n" (NULL = none). family: "gemma3", "llama", … (NULL = none).
 * TEXT_UNSUPPORTED when there is no template. Without an override, a request with tools uses the
 * model's template for tools (additional_chat_templates/tool_use.jinja, or "tool_use" of a
 * list). */
int text_template_open(const char *model_path, const char *override, const char *family,
                       struct text_template **out, char err[TEXT_ERR_MAX]);
/* Returns in *out the model's template with this name, from additional_chat_templates/ or from
 * the list in its config. The caller frees it. Returns TEXT_UNSUPPORTED when there is no such
 * template. */
int text_template_pick(const struct text_template *t, const char *name, size_t len,
                       struct text_template **out, char err[TEXT_ERR_MAX]);
void text_template_free(struct text_template *t);
/* Renders a template. context: a JSON object with the template's variables (messages, tools,
 * add_generation_prompt, bos_token, eos_token, entries of chat_template_kwargs, …). now_unix:
 * the time that strftime_now formats. Special tokens from the model's files are added when the
 * context lacks them. fuel limits the work (0 = default). */
int text_template_render(const struct text_template *t, const char *context, size_t context_len,
                         int64_t now_unix, uint64_t fuel, char **out, size_t *len,
                         char err[TEXT_ERR_MAX]);

/* ---- grammars ---- */
/* `text_vocabulary` holds a tokenizer's tokens by their bytes. For 250,000 tokens, making it
 * takes about 0.7 s, and it uses 25 MB. Any thread may use it. The tokenizer may be freed before
 * it. */
struct text_vocabulary;
int text_vocabulary_new(const struct text_tokenizer *t, struct text_vocabulary **out,
                        char err[TEXT_ERR_MAX]);
void text_vocabulary_free(struct text_vocabulary *v);

/* The kinds of a grammar's source have the values of proto/messages.h. */
enum text_grammar_kind {
    TEXT_GRAMMAR_JSON_SCHEMA = 1,
    TEXT_GRAMMAR_REGEX,
    TEXT_GRAMMAR_LARK, /* Lark in llguidance's dialect */
    /* {"format": …}, as text/src/grammar/structural_tag.rs reads it, or the older {"structures":
     * [{begin, schema, end} ...], "triggers": [...]} */
    TEXT_GRAMMAR_STRUCTURAL_TAG,
    /* {"open": [marker ...], "close": [...], "begun": bool, "kind": int, "source": string}: any
     * text up to the first closing marker, then a text that the source of that kind allows. When
     * begun is false, the reasoning may be left out; otherwise it begins with an opening marker.
     * A marker is the special token with that name, or plain text otherwise. */
    TEXT_GRAMMAR_AFTER_REASONING
};
/* `text_grammar` holds a compiled grammar. It is immutable, and any thread may use it. The
 * vocabulary may be freed before it. The source comes from a client, so its bytes, nesting and
 * size and the work are limited. With TEXT_INVALID and TEXT_LIMIT, err has llguidance's message. */
struct text_grammar;
int text_grammar_compile(const struct text_vocabulary *v, enum text_grammar_kind kind,
                         const char *source, size_t len, struct text_grammar **out,
                         char err[TEXT_ERR_MAX]);
void text_grammar_free(struct text_grammar *g);

/* Holds the counted cost of a compile. It is the same on every machine, within about 0.5 %
 * (tables are hashed). bytes: total of all allocations; peak_bytes: most bytes allocated at one
 * time. fuel: the lexer's fuel in the first mask. kept_bytes: bytes of the compiled grammar.
 * matcher_bytes: bytes of a new matcher. A compile that takes more than text/src/base/heap.rs
 * allows ends with TEXT_LIMIT when it is done. */
struct text_compile_cost {
    uint64_t bytes, peak_bytes, fuel, kept_bytes, matcher_bytes;
};
void text_grammar_cost(const struct text_grammar *g, struct text_compile_cost *out);
/* After this call, a compile that exceeds its limits ends this process at once with
 * _exit(exit_code), 1 to 255. The call is meant for processes that only compile. Any thread may
 * call it, before the first compile. */
void text_compile_may_end_process(int exit_code);

/* Holds the position of a text in its grammar. A matcher belongs to one thread. eos_ids and the
 * tokenizer's own eos are allowed where the grammar allows the end of the text. The grammar may
 * be freed before the matcher. */
struct text_matcher;
int text_matcher_new(const struct text_grammar *g, const uint32_t *eos_ids, size_t n_eos,
                     struct text_matcher **out, char err[TEXT_ERR_MAX]);
/* Returns a cheap copy, or NULL after a bug in the library. */
struct text_matcher *text_matcher_copy(const struct text_matcher *m);
void text_matcher_free(struct text_matcher *m); /* Frees the matcher; accepts NULL. */
/* Sets bit i % 32 of words[i / 32] when token i may be the next token. At the end of the grammar
 * and on an error, only ids that end a text are allowed. TEXT_LIMIT: this mask, or the matcher's
 * masks together, cost too much (text/src/grammar/mask_budget.rs), or the matcher uses too much
 * memory; the error then stays. TEXT_INVALID: a dead end, where no token is allowed and the text
 * is not complete. In both cases the text must end here and does not satisfy the grammar. */
int text_matcher_mask(struct text_matcher *m, uint32_t *words, size_t n_words,
                      char err[TEXT_ERR_MAX]);
/* Advances the matcher by a token. Returns TEXT_INVALID when the grammar does not allow the
 * token here; the matcher is then unchanged. */
int text_matcher_accept(struct text_matcher *m, uint32_t id, char err[TEXT_ERR_MAX]);
/* Returns true when only the end of the text may follow. */
bool text_matcher_is_done(const struct text_matcher *m);
/* Returns the counted cost of the masks, and of the checks for tokens accepted without a mask,
 * in units of about 0.1 us. A copy starts with its original's cost. */
uint64_t text_matcher_cost(const struct text_matcher *m);
/* Returns the matcher's memory in bytes, without its copies. text/src/grammar/matcher_memory.rs
 * limits the memory. */
uint64_t text_matcher_bytes(const struct text_matcher *m);
