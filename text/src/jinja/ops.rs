//! Implements Python's operators: arithmetic, comparison, order.

use super::ast::{Cmp, Op};
use super::budget;
use super::equal::{contains, eq, numbers, spend_big};
use super::fail::{wrong, R};
use super::format;
use super::number::{as_float, as_int, too_big};
use super::value::{Kind, Value};
use std::cmp::Ordering;

fn unsupported<T>(op: &str, a: &Value, b: &Value) -> R<T> {
    if let Value::Undefined(why) = a {
        return wrong(why.as_ref());
    }
    if let Value::Undefined(why) = b {
        return wrong(why.as_ref());
    }
    if matches!((a, b), (Value::Big(_), _) | (_, Value::Big(_))) {
        return too_big();
    }
    wrong(format!("unsupported operand type(s) for {op}: '{}' and '{}'", a.type_name(), b.type_name()))
}

pub fn binary(op: Op, a: &Value, b: &Value) -> R<Value> {
    match op {
        Op::Add => add(a, b),
        Op::Mul => mul(a, b),
        Op::Mod if a.as_str().is_some() => {
            if a.is_markup() {
                return wrong("% of escaped text is not supported");
            }
            format::percent(a.as_str().unwrap_or_default(), b).map(Value::from)
        }
        _ => number(op, a, b),
    }
}

fn add(a: &Value, b: &Value) -> R<Value> {
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => {
            let (x, y) = (&x.0, &y.0);
            budget::room(x.s.len() + y.s.len())?;
            if x.markup == y.markup {
                let s = [x.s.as_str(), y.s.as_str()].concat();
                return Ok(if x.markup { Value::markup(s) } else { Value::from(s) });
            }
            let added = if x.markup { &y.s } else { &x.s };
            budget::room(5 * added.len())?;
            budget::spend(added.len() / 8)?;
            let part = |t: &super::value::TextBuf| if t.markup { t.s.clone() } else { format::escape(&t.s) };
            Ok(Value::markup(part(x) + &part(y)))
        }
        (Value::List(x), Value::List(y)) => Value::list(joined(&x.v, &y.v)?),
        (Value::Tuple(x), Value::Tuple(y)) => Value::tuple(joined(&x.v, &y.v)?),
        (Value::Str(_), Value::Undefined(why)) | (Value::List(_), Value::Undefined(why)) => {
            wrong(why.as_ref())
        }
        (Value::Str(_), _) => wrong(format!("can only concatenate str (not \"{}\") to str", b.type_name())),
        _ => number(Op::Add, a, b),
    }
}

fn joined(x: &[Value], y: &[Value]) -> R<Vec<Value>> {
    budget::room((x.len() + y.len()) * size_of::<Value>())?;
    budget::spend((x.len() + y.len()) / 2)?;
    Ok(x.iter().chain(y).cloned().collect())
}

fn mul(a: &Value, b: &Value) -> R<Value> {
    let (of, n) = match (as_int(a), as_int(b)) {
        (None, Some(n)) => (a, n),
        (Some(n), None) => (b, n),
        _ => return number(Op::Mul, a, b),
    };
    let is_sequence = matches!(of, Value::Str(_) | Value::List(_) | Value::Tuple(_));
    if is_sequence && n.unsigned_abs() > i64::MAX as u128 {
        return wrong("cannot fit 'int' into an index-sized integer");
    }
    let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    let repeat = |v: &[Value]| -> R<Vec<Value>> {
        budget::room(v.len().saturating_mul(n).saturating_mul(size_of::<Value>()))?;
        budget::spend(v.len() * n)?;
        Ok(if v.is_empty() { vec![] } else { (0..n).flat_map(|_| v.iter().cloned()).collect() })
    };
    match of {
        Value::Str(t) => {
            budget::room(t.0.s.len().saturating_mul(n))?;
            let s = if t.0.s.is_empty() { String::new() } else { t.0.s.repeat(n) };
            Ok(if t.0.markup { Value::markup(s) } else { Value::from(s) })
        }
        Value::List(i) => Value::list(repeat(&i.v)?),
        Value::Tuple(i) => Value::tuple(repeat(&i.v)?),
        _ => number(Op::Mul, a, b),
    }
}

fn number(op: Op, a: &Value, b: &Value) -> R<Value> {
    if let (Some(x), Some(y)) = (as_int(a), as_int(b)) {
        return integers(op, x, y);
    }
    let sign = ["+", "-", "*", "/", "//", "%", "**"][op as usize];
    if matches!((a, b), (Value::Big(_), _) | (_, Value::Big(_))) {
        return unsupported(sign, a, b);
    }
    let (Some(x), Some(y)) = (as_float(a), as_float(b)) else { return unsupported(sign, a, b) };
    Ok(Value::Float(match op {
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x * y,
        Op::Div | Op::FloorDiv | Op::Mod if y == 0.0 => return wrong("float division by zero"),
        Op::Div => x / y,
        Op::FloorDiv => float_div_mod(x, y).0,
        Op::Mod => float_div_mod(x, y).1,
        Op::Pow => float_pow(x, y)?,
    }))
}

fn float_pow(x: f64, y: f64) -> R<f64> {
    if x == 0.0 && y < 0.0 {
        return wrong("0.0 cannot be raised to a negative power");
    }
    if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 {
        return wrong("complex numbers are not supported");
    }
    match x.powf(y) {
        r if r.is_infinite() && x.is_finite() && y.is_finite() => wrong("Result too large"),
        r => Ok(r),
    }
}

/// Implements Python's divmod of floats: the remainder has the sign of the divisor.
fn float_div_mod(x: f64, y: f64) -> (f64, f64) {
    let mut rest = x % y;
    let mut div = (x - rest) / y;
    if rest != 0.0 {
        if (y < 0.0) != (rest < 0.0) {
            rest += y;
            div -= 1.0;
        }
    } else {
        rest = 0f64.copysign(y);
    }
    let floor = match div {
        0.0 => 0f64.copysign(x / y),
        d => d.floor() + f64::from(u8::from(d - d.floor() > 0.5)),
    };
    (floor, rest)
}

fn integers(op: Op, x: i128, y: i128) -> R<Value> {
    let out = match op {
        Op::Add => x.checked_add(y),
        Op::Sub => x.checked_sub(y),
        Op::Mul => x.checked_mul(y),
        Op::Div | Op::FloorDiv | Op::Mod if y == 0 => return wrong("division by zero"),
        Op::Div => {
            let (f, g) = (x as f64, y as f64);
            // When a conversion is not exact, the quotient of the floats may not be the float nearest to the quotient of
            // the integers.
            if f as i128 != x || g as i128 != y {
                return wrong("the division of integers beyond 2**53 is not supported");
            }
            return Ok(Value::Float(f / g));
        }
        Op::FloorDiv => x.checked_div(y).map(|q| if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q }),
        Op::Mod => x.checked_rem(y).map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r }),
        Op::Pow if y < 0 => {
            return match x {
                0 => wrong("0.0 cannot be raised to a negative power"),
                _ => float_pow(x as f64, y as f64).map(Value::Float),
            }
        }
        Op::Pow => match (x, u32::try_from(y)) {
            (0 | 1, Err(_)) => Some(x),
            (-1, Err(_)) => Some(if y % 2 == 0 { 1 } else { -1 }),
            (_, Ok(n)) => x.checked_pow(n),
            _ => None,
        },
    };
    out.map_or_else(too_big, |n| Ok(Value::Int(n)))
}

pub fn negate(v: &Value) -> R<Value> {
    match (as_int(v), v) {
        (Some(i), _) => i.checked_neg().map_or_else(too_big, |n| Ok(Value::Int(n))),
        (_, Value::Float(f)) => Ok(Value::Float(-f)),
        (_, Value::Undefined(why)) => wrong(why.as_ref()),
        _ => wrong(format!("bad operand type for unary -: '{}'", v.type_name())),
    }
}

pub fn plus(v: &Value) -> R<Value> {
    match (as_int(v), v) {
        (Some(i), _) => Ok(Value::Int(i)),
        (_, Value::Float(_) | Value::Big(_)) => Ok(v.clone()),
        (_, Value::Undefined(why)) => wrong(why.as_ref()),
        _ => wrong(format!("bad operand type for unary +: '{}'", v.type_name())),
    }
}

/// Returns the order of two values. Returns None when neither value is less (NaN). Fails when Python cannot order the
/// values.
pub fn order(a: &Value, b: &Value, sign: &str) -> R<Option<Ordering>> {
    budget::spend(1)?;
    spend_big(a, b)?;
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => {
            budget::glance(x.0.s.len().min(y.0.s.len()))?;
            Ok(Some(x.0.s.cmp(&y.0.s)))
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            for (x, y) in x.v.iter().zip(&y.v) {
                if !eq(x, y)? {
                    return order(x, y, sign);
                }
            }
            Ok(Some(x.v.len().cmp(&y.v.len())))
        }
        (Value::Undefined(why), _) | (_, Value::Undefined(why)) => wrong(why.as_ref()),
        _ => match numbers(a, b) {
            Some(order) => Ok(order),
            None => wrong(format!(
                "'{sign}' not supported between instances of '{}' and '{}'",
                a.type_name(),
                b.type_name()
            )),
        },
    }
}

fn is_in(v: &Value, of: &Value) -> R<bool> {
    match of {
        Value::Str(t) => match v {
            Value::Str(part) => {
                budget::scan(t.0.s.len() + part.0.s.len())?;
                Ok(t.0.s.contains(&part.0.s))
            }
            _ => wrong(format!("'in <string>' requires string as left operand, not {}", v.type_name())),
        },
        Value::Dict(d) => Ok(d.get(v)?.is_some()),
        Value::List(i) | Value::Tuple(i) => contains(&i.v, v),
        Value::Iter(w) if w.kind == Kind::Generator => {
            while let Some(item) = w.items.v.get(w.at.get()) {
                w.at.set(w.at.get() + 1);
                if eq(item, v)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Iter(w) => contains(&w.items.v, v),
        Value::Undefined(_) => Ok(false),
        Value::Range(..) => contains(&of.iterate()?, v),
        _ => wrong(format!("argument of type '{}' is not iterable", of.type_name())),
    }
}

pub fn compare(cmp: Cmp, a: &Value, b: &Value) -> R<bool> {
    Ok(match cmp {
        Cmp::Eq => eq(a, b)?,
        Cmp::Ne => !eq(a, b)?,
        Cmp::Lt => order(a, b, "<")? == Some(Ordering::Less),
        Cmp::Gt => order(a, b, ">")? == Some(Ordering::Greater),
        Cmp::Le => matches!(order(a, b, "<=")?, Some(Ordering::Less | Ordering::Equal)),
        Cmp::Ge => matches!(order(a, b, ">=")?, Some(Ordering::Greater | Ordering::Equal)),
        Cmp::In => is_in(a, b)?,
        Cmp::NotIn => !is_in(a, b)?,
    })
}

/// Sorts by keys that Python can order; fails at the first comparison that Python refuses.
pub fn sort_by_key(items: Vec<Value>, reverse: bool, key: impl Fn(&Value) -> R<Value>) -> R<Vec<Value>> {
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        budget::spend(2)?;
        keyed.push((key(&item)?, item));
    }
    let keyed = merge_sort(keyed, &|a, b| {
        let (a, b) = if reverse { (&b.0, &a.0) } else { (&a.0, &b.0) };
        Ok(order(a, b, "<")? == Some(Ordering::Less))
    })?;
    Ok(keyed.into_iter().map(|(_, v)| v).collect())
}

/// Sorts in a stable way and stops at the first error. It accepts an inconsistent order (NaN), for which slice::sort_by
/// may panic.
fn merge_sort<T>(mut items: Vec<T>, less: &impl Fn(&T, &T) -> R<bool>) -> R<Vec<T>> {
    if items.len() < 2 {
        return Ok(items);
    }
    budget::spend(items.len())?;
    let right = items.split_off(items.len() / 2);
    let n = items.len() + right.len();
    let left = merge_sort(items, less)?;
    let (mut left, mut right) = (left.into_iter(), merge_sort(right, less)?.into_iter());
    let (mut x, mut y) = (left.next(), right.next());
    let mut out = Vec::with_capacity(n);
    loop {
        let take_right = match (&x, &y) {
            (Some(x), Some(y)) => less(y, x)?,
            (None, None) => return Ok(out),
            (x, _) => x.is_none(),
        };
        let side = if take_right { &mut y } else { &mut x };
        out.extend(side.take());
        *side = if take_right { right.next() } else { left.next() };
    }
}
