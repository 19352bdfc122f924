//! tokenizer.model: SentencePiece without a tokenizer.json, the way Vicuna and open_llama were
//! published. Added tokens are found and ids become text by the crate's pipeline, as for every other
//! file; what lies between added tokens is normalized and cut here.

mod encoder;
mod folder;
mod model;
mod normalizer;
mod proto;
mod trie;

pub use encoder::{Frame, Spm};
pub use folder::{named_texts, open, NAMES};

/// A ModelProto that says nothing by its name: its first field is a piece, whose first one is its text.
pub fn is_model(bytes: &[u8]) -> bool {
    matches!(bytes, [0x0a, second, 0x0a, ..] if *second != b'{')
}
