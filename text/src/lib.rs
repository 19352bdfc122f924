//! Coxswain's text library: tokenizers and chat templates behind text.h. `ffi` is the border;
//! `tokenizer` and `decoder` are what it opens and streams with; `source` finds and caches the
//! compiled form (`compiled`) that `tokenizer_json` and `gguf_vocab` are read into; `spm` runs a
//! tokenizer.model.
#![allow(clippy::missing_safety_doc)] // text.h is the contract of the extern functions

mod borders;
mod bpe;
mod classes;
mod compiled;
mod decoder;
mod error;
mod fast;
mod ffi;
mod gbnf;
mod gguf;
mod gguf_vocab;
mod grammar;
mod grammar_source;
mod heap;
mod jinja;
mod joins;
mod mask_budget;
mod masks;
mod matcher_memory;
mod names;
mod number_text;
mod pieces;
mod pre_tokenizers;
mod recursion;
mod regex_ways;
mod schema_check;
mod schema_graph;
mod schema_joins;
mod schema_members;
mod schema_numbers;
mod schema_options;
mod schema_pattern;
mod schema_rules;
mod schema_text;
mod source;
mod splits;
mod spm;
mod structural_tag;
mod template;
mod tokenizer;
mod tokenizer_json;
mod vocab;
