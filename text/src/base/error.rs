//! Defines the only error type of this crate: a code from text.h's enum text_status, and the text for `err`.

use std::fmt::Display;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Invalid = 1,
    Io = 2,
    Limit = 3,
    Template = 4,
    Unsupported = 5,
    Internal = 6,
}

#[derive(Clone, Debug)]
pub struct TextError {
    pub code: Code,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, TextError>;

pub fn fail<T>(code: Code, message: impl Into<String>) -> Result<T> {
    Err(TextError { code, message: message.into() })
}

pub fn invalid(message: impl Into<String>) -> TextError {
    TextError { code: Code::Invalid, message: message.into() }
}

/// Returns the error for a text that a parser refuses.
pub fn not_valid(what: &str, e: impl Display) -> TextError {
    invalid(format!("{what} is not valid: {e}"))
}

pub fn io(what: impl Display, e: std::io::Error) -> TextError {
    TextError { code: Code::Io, message: format!("{what}: {e}") }
}
