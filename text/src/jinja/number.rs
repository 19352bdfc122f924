//! The number that a value is, whichever kind of number.

use super::fail::{wrong, R};
use super::value::Value;

/// An integer, also of a bool.
pub fn as_int(v: &Value) -> Option<i128> {
    match v {
        Value::Bool(b) => Some(i128::from(*b)),
        Value::Int(i) => Some(*i),
        _ => None,
    }
}

pub fn as_float(v: &Value) -> Option<f64> {
    match v {
        Value::Float(f) => Some(*f),
        // So many digits are beyond all doubles, and may be as long as the context.
        Value::Big(digits) if digits.len() > 400 => {
            Some(if digits.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY })
        }
        Value::Big(digits) => digits.parse().ok(),
        _ => as_int(v).map(|i| i as f64),
    }
}

/// An argument that must be an integer.
pub fn int_arg(v: &Value) -> R<i128> {
    as_int(v)
        .map_or_else(|| wrong(format!("'{}' object cannot be interpreted as an integer", v.type_name())), Ok)
}

pub fn too_big<T>() -> R<T> {
    wrong("arithmetic with integers of more than 128 bits is not supported")
}
