//! Holds the data of vocabularies, without algorithms: texts and ids, the bytes of a token, and character classes.

pub mod classes;
pub mod pieces;
pub mod table;
