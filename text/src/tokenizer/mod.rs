//! From a text to ids and back. `source` finds a model's tokenizer and caches its compiled form (`compiled`), which
//! `tokenizer_json` and `gguf_vocab` are read into; `tokenizer` is what is opened, and `decoder` streams.

mod borders;
mod bpe;
mod compiled;
mod decoder;
mod fast;
mod gguf_vocab;
mod joins;
mod pipeline;
mod pre_tokenizers;
mod source;
mod splits;
#[allow(clippy::module_inception)] // it holds the type that the folder is named after
mod tokenizer;
mod tokenizer_json;

pub use decoder::Decoder;
pub use source::map_spm;
pub use tokenizer::{Tokenizer, BYTES};
