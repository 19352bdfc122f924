//! Compiles grammars over a tokenizer's vocabulary. `source` reads a client's source, and `grammar` compiles it and tells
//! which tokens may come next.

mod gbnf;
#[allow(clippy::module_inception)] // the module `grammar` holds the type that the folder is named after
mod grammar;
mod mask_budget;
mod masks;
mod matcher_memory;
mod recursion;
mod source;
mod structural_tag;

pub use grammar::{Cost, Grammar, Matcher, Vocabulary};
