//! Compiles grammars over a tokenizer's vocabulary. `source` reads a client's source. `grammar` compiles it and computes
//! the tokens that are allowed next.

mod gbnf;
#[allow(clippy::module_inception)] // the module and its folder are both named after the type Grammar
mod grammar;
mod mask_budget;
mod masks;
mod matcher_memory;
mod recursion;
mod source;
mod structural_tag;

pub use grammar::{Cost, Grammar, Matcher, Vocabulary};
