//! Vocabularies before anything runs over them: texts and ids, the bytes of a token, and classes of characters.

pub mod classes;
pub mod pieces;
pub mod table;
