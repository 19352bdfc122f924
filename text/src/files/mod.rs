//! Reads the files of a model: it opens them, and it reads the small JSON files of the tokenizer and GGUF metadata.

pub mod gguf;
pub mod json_limits;
pub mod open;
pub mod token_config;
