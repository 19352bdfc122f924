//! Defines the reason why a rendering ends early. Nearly every function of this folder returns it.

/// Gives the reason why a rendering ends early.
#[derive(Debug)]
pub enum Fail {
    /// the message of raise_exception
    Raised(String),
    /// the rendering needs more work, memory or depth than it may use
    Limit(String),
    Wrong(String),
}

pub type R<T> = Result<T, Fail>;

pub fn wrong<T>(message: impl Into<String>) -> R<T> {
    Err(Fail::Wrong(message.into()))
}
