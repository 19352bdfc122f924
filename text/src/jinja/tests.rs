//! Implements jinja2's tests (`value is name`), with their own names and arguments.

use super::ast::{Cmp, Op};
use super::budget;
use super::equal::eq;
use super::eval::Eval;
use super::fail::{wrong, R};
use super::filters::FILTERS;
use super::format::str_of;
use super::methods;
use super::ops::{self, compare};
use super::value::{Args, Value};

pub const TESTS: [&str; 39] = [
    "odd",
    "even",
    "divisibleby",
    "defined",
    "undefined",
    "filter",
    "test",
    "none",
    "boolean",
    "false",
    "true",
    "integer",
    "float",
    "lower",
    "upper",
    "string",
    "mapping",
    "number",
    "sequence",
    "iterable",
    "callable",
    "sameas",
    "escaped",
    "in",
    "==",
    "eq",
    "equalto",
    "!=",
    "ne",
    ">",
    "gt",
    "greaterthan",
    "ge",
    ">=",
    "<",
    "lt",
    "lessthan",
    "<=",
    "le",
];

impl Eval<'_> {
    pub fn test(&mut self, name: &str, v: &Value, args: Args) -> R<bool> {
        budget::spend(1)?;
        let cmp = match name {
            "==" | "eq" | "equalto" => Some(Cmp::Eq),
            "!=" | "ne" => Some(Cmp::Ne),
            ">" | "gt" | "greaterthan" => Some(Cmp::Gt),
            ">=" | "ge" => Some(Cmp::Ge),
            "<" | "lt" | "lessthan" => Some(Cmp::Lt),
            "<=" | "le" => Some(Cmp::Le),
            "in" => Some(Cmp::In),
            _ => None,
        };
        if let Some(cmp) = cmp {
            let names = [if name == "in" { "seq" } else { "" }];
            let [other] = args.bind(name, names, 1)?;
            return compare(cmp, v, &other.unwrap_or(Value::None));
        }
        if name == "divisibleby" || name == "sameas" {
            let [other] = args.bind(name, [if name == "sameas" { "other" } else { "num" }], 1)?;
            let other = other.unwrap_or(Value::None);
            return match name {
                "sameas" => same(v, &other),
                _ => eq(&ops::binary(Op::Mod, v, &other)?, &Value::Int(0)),
            };
        }
        args.none(name)?;
        is(name, v)
    }
}

fn is(name: &str, v: &Value) -> R<bool> {
    Ok(match name {
        "odd" => eq(&ops::binary(Op::Mod, v, &Value::Int(2))?, &Value::Int(1))?,
        "even" => eq(&ops::binary(Op::Mod, v, &Value::Int(2))?, &Value::Int(0))?,
        "defined" => !v.is_undefined(),
        "undefined" => v.is_undefined(),
        "filter" | "test" => {
            v.hashable()?;
            let names: &[&str] = if name == "test" { &TESTS } else { &FILTERS };
            v.as_str().is_some_and(|n| names.contains(&n))
        }
        "none" => v.is_none(),
        "boolean" => matches!(v, Value::Bool(_)),
        "false" => matches!(v, Value::Bool(false)),
        "true" => matches!(v, Value::Bool(true)),
        "integer" => matches!(v, Value::Int(_) | Value::Big(_)),
        "float" => matches!(v, Value::Float(_)),
        "lower" | "upper" => {
            let text = str_of(v)?;
            budget::letters(&text)?;
            if name == "lower" {
                methods::is_lower(&text)
            } else {
                methods::is_upper(&text)
            }
        }
        "string" => v.as_str().is_some(),
        "mapping" => matches!(v, Value::Dict(_)),
        "number" => matches!(v, Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_)),
        "sequence" => {
            matches!(
                v,
                Value::Undefined(_) | Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_)
            ) || matches!(v, Value::Range(..))
        }
        "iterable" => {
            v.as_str().is_some() || v.len().is_some() || matches!(v, Value::Iter(_) | Value::Loop(_))
        }
        "callable" => matches!(
            v,
            Value::Undefined(_)
                | Value::Method(_)
                | Value::Macro(_)
                | Value::Func(_)
                | Value::Joiner(_)
                | Value::Loop(_)
        ),
        "escaped" => v.is_markup(),
        _ => return wrong(format!("No test named '{name}'.")),
    })
}

/// Implements Python's `is`. Values of which Python has one object (none, booleans, small numbers) are compared by value,
/// all others by address.
fn same(a: &Value, b: &Value) -> R<bool> {
    use std::rc::Rc;
    Ok(match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(x), Value::Bool(y)) => x == y,
        (Value::Int(x), Value::Int(y)) if x == y => match (-5..=256).contains(x) {
            true => true,
            false => return wrong("sameas of large integers is not supported"),
        },
        (Value::Str(x), Value::Str(y)) if x.0.s.len() == y.0.s.len() && !Rc::ptr_eq(&x.0, &y.0) => {
            budget::glance(x.0.s.len())?;
            match x.0.s == y.0.s {
                true => return wrong("sameas of strings is not supported"),
                false => false,
            }
        }
        (Value::Str(x), Value::Str(y)) => Rc::ptr_eq(&x.0, &y.0),
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => Rc::ptr_eq(x, y),
        (Value::Dict(x), Value::Dict(y)) => Rc::ptr_eq(x, y),
        (Value::Namespace(x), Value::Namespace(y)) => Rc::ptr_eq(x, y),
        (Value::Undefined(_), Value::Undefined(_)) | (Value::Float(_), Value::Float(_)) => {
            return wrong("sameas of these values is not supported")
        }
        _ => false,
    })
}
