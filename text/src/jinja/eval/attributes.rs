//! Implements `value.name` and `value[key]`. They return items, and the Python attributes that the sandbox allows.

use crate::jinja::budget;
use crate::jinja::fail::{wrong, R};
use crate::jinja::format::repr_of;
use crate::jinja::items;
use crate::jinja::methods::has;
use crate::jinja::number::as_int;
use crate::jinja::value::*;

/// Returns value.name for the filter `attr`, which returns only Python's own attributes.
pub fn get_attr_only(of: &Value, name: &str) -> R<Value> {
    match python_attr(of, name)? {
        Some(v) => Ok(v),
        None => Ok(no_attr(of, name)),
    }
}

fn no_attr(of: &Value, name: &str) -> Value {
    let kind = match of {
        Value::None => "None".to_owned(),
        _ => format!("'{} object'", of.type_name()),
    };
    Value::undefined(format!("{kind} has no attribute '{name}'"))
}

fn loop_attr(l: &Loop, name: &str) -> Option<Value> {
    let (at, n) = (l.at.get(), l.items.len());
    Some(match name {
        "index" => Value::from(at + 1),
        "index0" => Value::from(at),
        "revindex" => Value::from(n - at),
        "revindex0" => Value::from(n - at - 1),
        "first" => Value::Bool(at == 0),
        "last" => Value::Bool(at + 1 == n),
        "length" => Value::from(n),
        "depth" => Value::from(l.depth0 + 1),
        "depth0" => Value::from(l.depth0),
        "previtem" if at == 0 => Value::undefined("there is no previous item"),
        "previtem" => l.items[at - 1].clone(),
        "nextitem" => {
            l.items.get(at + 1).cloned().unwrap_or_else(|| Value::undefined("there is no next item"))
        }
        _ => return None,
    })
}

/// Implements Python's getattr, as far as the sandbox allows.
fn python_attr(of: &Value, name: &str) -> R<Option<Value>> {
    match of {
        Value::Undefined(why) if !name.starts_with("__") => return wrong(why.as_ref()),
        Value::Namespace(n) => {
            budget::spend(n.attrs.borrow().len() / 16)?;
            return Ok(n.attrs.borrow().iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()));
        }
        Value::Loop(l) => {
            if let Some(v) = loop_attr(l, name) {
                return Ok(Some(v));
            }
        }
        Value::Macro(m) => match name {
            "name" => return Ok(Some(Value::from(m.def.name.as_str()))),
            "arguments" | "catch_kwargs" | "catch_varargs" | "caller" => {
                return wrong(format!("the attribute '{name}' of a macro is not supported"))
            }
            _ => {}
        },
        Value::Cycler(c) if name == "current" => return Ok(Some(c.items[c.at.get()].clone())),
        Value::Range(start, stop, step) => {
            let part = match name {
                "start" => *start,
                "stop" => *stop,
                "step" => *step,
                _ => return has(of, name).map(|_| Value::method(of, name)).transpose(),
            };
            return Ok(Some(Value::Int(part.into())));
        }
        _ => {}
    }
    match (name, as_int(of), of) {
        ("real" | "numerator", Some(i), _) => return Ok(Some(Value::Int(i))),
        ("real" | "numerator", _, Value::Big(_)) => return Ok(Some(of.clone())),
        ("imag", Some(_), _) | ("imag", _, Value::Big(_)) => return Ok(Some(Value::Int(0))),
        ("denominator", Some(_), _) | ("denominator", _, Value::Big(_)) => return Ok(Some(Value::Int(1))),
        ("real", _, Value::Float(f)) => return Ok(Some(Value::Float(*f))),
        ("imag", _, Value::Float(_)) => return Ok(Some(Value::Float(0.0))),
        _ => {}
    }
    match has(of, name) {
        Some(true) => Value::method(of, name).map(Some),
        Some(false) => Ok(Some(Value::undefined(format!(
            "access to attribute '{name}' of '{}' object is unsafe.",
            of.type_name()
        )))),
        None => Ok(None),
    }
}

/// Returns value.name: Python's own attribute if there is one, or else value["name"].
pub fn get_attr(of: &Value, name: &str) -> R<Value> {
    if let Some(v) = python_attr(of, name)? {
        return Ok(v);
    }
    budget::spend(1)?;
    if let Value::Dict(d) = of {
        if let Some(v) = d.get_str(name) {
            return Ok(v.clone());
        }
    }
    budget::spend(4)?;
    Ok(no_attr(of, name))
}

/// Returns value[key], or else the attribute of that name.
pub fn get_item(of: &Value, key: &Value) -> R<Value> {
    if let Value::Undefined(why) = of {
        return wrong(why.as_ref());
    }
    if let Some(v) = items::item(of, key)? {
        return Ok(v);
    }
    budget::spend(4)?;
    match key.as_str() {
        Some(name) => match python_attr(of, name)? {
            Some(v) => Ok(v),
            None => Ok(no_attr(of, name)),
        },
        None => Ok(Value::undefined(format!(
            "'{} object' has no element {}",
            of.type_name(),
            repr_of(key).unwrap_or_default()
        ))),
    }
}
