//! Encodes and decodes texts. `source` finds a model's tokenizer and caches its compiled form (`compiled`).
//! `tokenizer_json` and `gguf_vocab` read the sources of the compiled form. `tokenizer` is the opened object, and
//! `decoder` decodes a stream of ids.

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
#[allow(clippy::module_inception)] // the module and its folder are both named after the type Tokenizer
mod tokenizer;
mod tokenizer_json;

pub use decoder::Decoder;
pub use source::map_spm;
pub use tokenizer::{Tokenizer, BYTES};
