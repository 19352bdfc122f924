//! Reads tokenizer.model: SentencePiece without a tokenizer.json, as in the published Vicuna and open_llama. The pipeline
//! of the tokenizers crate finds added tokens and decodes ids, as for every other file. This folder normalizes the text
//! between added tokens and splits it into pieces.

mod encoder;
mod folder;
mod model;
mod normalizer;
mod proto;
mod trie;

pub use encoder::{Frame, Spm};
pub use folder::{named_texts, open, NAMES};

/// Returns true for a ModelProto, by its first bytes: its first field is a piece, and that piece's first field is its
/// text. The format has no magic number.
pub fn is_model(bytes: &[u8]) -> bool {
    matches!(bytes, [0x0a, second, 0x0a, ..] if *second != b'{')
}
