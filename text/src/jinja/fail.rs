//! The reason why a rendering ends early. Nearly every function of this folder returns it.

/// The reason why a rendering ends early.
#[derive(Debug)]
pub enum Fail {
    /// raise_exception's message
    Raised(String),
    /// more work, memory or depth than the rendering may use
    Limit(String),
    Wrong(String),
}

pub type R<T> = Result<T, Fail>;

pub fn wrong<T>(message: impl Into<String>) -> R<T> {
    Err(Fail::Wrong(message.into()))
}
