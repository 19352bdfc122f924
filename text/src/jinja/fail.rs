//! Why a rendering ends early: the result of nearly every function of this folder.

/// Why a rendering ends early.
#[derive(Debug)]
pub enum Fail {
    /// raise_exception's message
    Raised(String),
    /// more work, memory or depth than is given
    Limit(String),
    Wrong(String),
}

pub type R<T> = Result<T, Fail>;

pub fn wrong<T>(message: impl Into<String>) -> R<T> {
    Err(Fail::Wrong(message.into()))
}
