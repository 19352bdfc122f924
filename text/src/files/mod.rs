//! Opens the files of a model, and reads the tokenizer's small JSON files and GGUF metadata.

pub mod gguf;
pub mod json_limits;
pub mod open;
pub mod token_config;
