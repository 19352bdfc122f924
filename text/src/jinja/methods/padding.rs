//! Implements the methods of str that pad a text to a width.

use crate::jinja::budget;
use crate::jinja::fail::{wrong, R};
use crate::jinja::number::int_arg;
use crate::jinja::value::{Args, Value};

/// Reads a width argument. The width must be at least 0, and small enough for the memory limit.
pub fn width_arg(v: &Value) -> R<usize> {
    let n = usize::try_from(int_arg(v)?.max(0)).unwrap_or(usize::MAX);
    budget::room(n).map(|()| n)
}

pub fn padded(text: &str, width: usize, fill: char, how: &str) -> R<Value> {
    budget::glance(text.len())?;
    let n = text.chars().count();
    let room = width.saturating_sub(n);
    budget::room(text.len() + room * fill.len_utf8())?;
    let left = match how {
        "ljust" => 0,
        "rjust" => room,
        _ => room / 2 + (room & width & 1),
    };
    let run = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
    Ok(Value::from(format!("{}{text}{}", run(left), run(room - left))))
}

pub(super) fn pad(text: &str, args: Args, name: &str) -> R<Value> {
    let [width, fill] = args.bind(name, ["", ""], 1)?;
    let width = width_arg(&width.unwrap_or(Value::None))?;
    let fill = fill.unwrap_or_else(|| Value::from(" "));
    let mut chars = fill.as_str().unwrap_or_default().chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => padded(text, width, c, name),
        _ => wrong("The fill character must be exactly one character long"),
    }
}

pub(super) fn zfill(text: &str, args: Args) -> R<Value> {
    let [width] = args.bind("zfill", [""], 1)?;
    let width = width_arg(&width.unwrap_or(Value::None))?;
    let sign = usize::from(text.starts_with(['+', '-']));
    let zeros = "0".repeat(width.saturating_sub(text.chars().count()));
    Ok(Value::from(format!("{}{zeros}{}", &text[..sign], &text[sign..])))
}

pub(super) fn expandtabs(text: &str, args: Args) -> R<Value> {
    let [size] = args.bind("expandtabs", ["tabsize"], 0)?;
    let size = size.as_ref().map_or(Ok(8), width_arg)?;
    budget::room(text.len().saturating_add(text.matches('\t').count().saturating_mul(size)))?;
    budget::spend(text.len() / 8 + text.matches('\t').count().saturating_mul(size) / 16)?;
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' if size > 0 => {
                let n = size - column % size;
                out.extend(std::iter::repeat_n(' ', n));
                column += n;
            }
            '\t' => {}
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            c => {
                out.push(c);
                column += 1;
            }
        }
    }
    Ok(Value::from(out))
}
