//! Provides Coxswain's text library: tokenizers, chat templates and grammars behind text.h. `ffi` is the boundary to C. C
//! uses the modules `tokenizer`, `template` and `grammar`. text/README.md lists the folders and the invariants.
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
