//! Reads values as numbers. A value may be any kind of number.

use super::fail::{wrong, R};
use super::value::Value;

/// Returns the integer of a value; a bool counts as 0 or 1.
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
        // A number with more than 400 digits is beyond all doubles. Its digits are not read, because they may be as long
        // as the context.
        Value::Big(digits) if digits.len() > 400 => {
            Some(if digits.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY })
        }
        Value::Big(digits) => digits.parse().ok(),
        _ => as_int(v).map(|i| i as f64),
    }
}

/// Reads an argument that must be an integer.
pub fn int_arg(v: &Value) -> R<i128> {
    as_int(v)
        .map_or_else(|| wrong(format!("'{}' object cannot be interpreted as an integer", v.type_name())), Ok)
}

pub fn too_big<T>() -> R<T> {
    wrong("arithmetic with integers of more than 128 bits is not supported")
}
