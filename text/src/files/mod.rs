//! The files of a model: opening them, the small JSON files of its tokenizer, and GGUF metadata.

pub mod gguf;
pub mod json_limits;
pub mod open;
pub mod token_config;
