//! The crate's pipeline over a model of ours, or over the crate's own.

use super::bpe::AnyModel;
use tokenizers::{
    DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerImpl,
};

pub type Pipeline =
    TokenizerImpl<AnyModel, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;
