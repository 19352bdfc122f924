//! Implements Python's equality of values, and dictionaries, which compare their keys by it.

use super::budget;
use super::fail::R;
use super::number::{as_float, as_int};
use super::value::{deeper, item_bytes, Dict, Kind, Value};
use std::cmp::Ordering;
use std::rc::Rc;

/// Number of keys above which a dictionary has an index.
const INDEX_FROM: usize = 8;

impl Dict {
    /// Makes a dictionary. A later value replaces an earlier value with the same key.
    pub fn new(pairs: Vec<(Value, Value)>) -> R<Value> {
        budget::room(item_bytes(pairs.len(), 3))?;
        let mut dict = Dict::default();
        for (key, value) in pairs {
            dict.set(key, value)?;
        }
        dict.depth = deeper(dict.entries.iter().flat_map(|(k, v)| [k, v]))?;
        dict.counted = item_bytes(dict.entries.len(), 3);
        budget::count(dict.counted as i64);
        Ok(Value::Dict(Rc::new(dict)))
    }

    fn set(&mut self, key: Value, value: Value) -> R<()> {
        budget::spend(1)?;
        if let Some(at) = self.find(&key)? {
            self.entries[at].1 = value;
            return Ok(());
        }
        if let Value::Str(text) = &key {
            if self.entries.len() == INDEX_FROM {
                for (i, (k, _)) in self.entries.iter().enumerate() {
                    if let Value::Str(k) = k {
                        self.index.insert(k.clone(), i);
                    }
                }
            }
            if self.entries.len() >= INDEX_FROM {
                self.index.insert(text.clone(), self.entries.len());
            }
        } else if self.entries.len() == INDEX_FROM {
            for (i, (k, _)) in self.entries.iter().enumerate() {
                if let Value::Str(k) = k {
                    self.index.insert(k.clone(), i);
                }
            }
        }
        self.entries.push((key, value));
        Ok(())
    }

    fn find(&self, key: &Value) -> R<Option<usize>> {
        match key {
            Value::Str(text) => {
                budget::spend(1)?;
                budget::scan(text.0.s.len())?;
                return Ok(self.place(&text.0.s));
            }
            _ => {
                key.hashable()?;
                budget::spend(self.entries.len() / 4)?;
            }
        }
        for (i, (k, _)) in self.entries.iter().enumerate() {
            if !matches!(k, Value::Str(_)) && eq(k, key)? {
                return Ok(Some(i));
            }
        }
        Ok(None)
    }

    fn place(&self, key: &str) -> Option<usize> {
        if self.entries.len() > INDEX_FROM {
            return self.index.get(key).copied();
        }
        self.entries.iter().position(|(k, _)| matches!(k, Value::Str(t) if t.0.s == key))
    }

    pub fn get_str(&self, key: &str) -> Option<&Value> {
        self.place(key).map(|at| &self.entries[at].1)
    }

    pub fn get(&self, key: &Value) -> R<Option<&Value>> {
        Ok(self.find(key)?.map(|at| &self.entries[at].1))
    }
}

/// Compares an integer with a float exactly.
fn int_to_float(i: i128, f: f64) -> Option<Ordering> {
    if f.is_nan() {
        return None;
    }
    if f >= i128::MAX as f64 {
        return Some(Ordering::Less);
    }
    if f < i128::MIN as f64 {
        return Some(Ordering::Greater);
    }
    let floor = f.floor();
    Some(i.cmp(&(floor as i128)).then(if f > floor { Ordering::Less } else { Ordering::Equal }))
}

pub fn numbers(a: &Value, b: &Value) -> Option<Option<Ordering>> {
    if let (Value::Big(x), Value::Big(y)) = (a, b) {
        let key = |d: &str| (!d.starts_with('-'), d.trim_start_matches('-').len());
        let order = match (key(x), key(y)) {
            ((true, n), (true, m)) => n.cmp(&m).then(x.cmp(y)),
            ((false, n), (false, m)) => m.cmp(&n).then(y.cmp(x)),
            ((p, _), (q, _)) => p.cmp(&q),
        };
        return Some(Some(order));
    }
    Some(match (as_int(a), as_int(b)) {
        (Some(x), Some(y)) => Some(x.cmp(&y)),
        (Some(x), None) => match b {
            Value::Float(f) => int_to_float(x, *f),
            Value::Big(d) => Some(if d.starts_with('-') { Ordering::Greater } else { Ordering::Less }),
            _ => return None,
        },
        (None, Some(_)) => numbers(b, a)?.map(Ordering::reverse),
        (None, None) => match (as_float(a), as_float(b)) {
            (Some(x), Some(y)) => x.partial_cmp(&y),
            _ => return None,
        },
    })
}

/// Uses up the steps for reading integers beyond 128 bits, which are kept as texts and read in each comparison.
pub fn spend_big(a: &Value, b: &Value) -> R<()> {
    match (a, b) {
        (Value::Big(x), Value::Big(y)) => budget::glance(x.len().min(y.len())),
        (Value::Big(_), _) | (_, Value::Big(_)) => budget::spend(40),
        _ => Ok(()),
    }
}

pub fn eq(a: &Value, b: &Value) -> R<bool> {
    budget::spend(1)?;
    spend_big(a, b)?;
    let same = |x: &[Value], y: &[Value]| -> R<bool> {
        if x.len() != y.len() {
            return Ok(false);
        }
        for (x, y) in x.iter().zip(y) {
            if !eq(x, y)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(x), Value::Str(y)) => {
            x.0.s.len() == y.0.s.len() && {
                budget::glance(x.0.s.len())?;
                x.0.s == y.0.s
            }
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => same(&x.v, &y.v)?,
        (Value::Dict(x), Value::Dict(y)) => {
            if x.entries.len() != y.entries.len() {
                return Ok(false);
            }
            for (k, v) in &x.entries {
                match y.get(k)? {
                    Some(w) if eq(v, w)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Range(..), Value::Range(..)) => same(&a.iterate()?, &b.iterate()?)?,
        (Value::Namespace(x), Value::Namespace(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Macro(x), Value::Macro(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Iter(x), Value::Iter(y)) => {
            std::rc::Rc::ptr_eq(x, y)
                || x.kind == y.kind
                    && matches!(x.kind, Kind::Keys | Kind::Items)
                    && same_set(&x.items.v, &y.items.v)?
        }
        _ => numbers(a, b).is_some_and(|o| o == Some(Ordering::Equal)),
    })
}

fn same_set(x: &[Value], y: &[Value]) -> R<bool> {
    if x.len() != y.len() {
        return Ok(false);
    }
    for v in x {
        if !contains(y, v)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub fn contains(items: &[Value], v: &Value) -> R<bool> {
    for item in items {
        if eq(item, v)? {
            return Ok(true);
        }
    }
    Ok(false)
}
