//! Coxswain's text library: tokenizers, chat templates and grammars behind text.h. `ffi` is the border; `tokenizer`,
//! `template` and `grammar` are what it opens. text/README.md has the folders and what must hold.
#![allow(clippy::missing_safety_doc)] // text.h is the contract of the extern functions

mod base;
mod ffi;
mod files;
mod grammar;
mod jinja;
mod schema;
mod spm;
mod template;
mod tokenizer;
mod vocab;
