//! Reads the metadata of a GGUF file (versions 2 and 3); it ignores the tensors. The bytes are not trusted: every length
//! is checked against the bytes that remain. Every count is checked against the fewest bytes that this number of elements
//! needs. Strings are checked for UTF-8 only when they are read as text.

use crate::base::error::{invalid, Result};
use std::collections::HashMap;

const MAX_KEYS: u64 = 1 << 16;

#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    U64(u64),
    I64(i64),
    F64(f64),
    Bool(bool),
    Text(&'a [u8]),
    Array(Array<'a>),
}

/// Holds the elements of an array in the file's own encoding; `strings`, `u32s` and `f32s` decode them.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    kind: u32,
    n: u64,
    bytes: &'a [u8],
}

pub struct Metadata<'a> {
    keys: HashMap<&'a str, Value<'a>>,
    /// bytes from the start of the file to the end of the metadata
    pub len: usize,
}

struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let left = (self.all.len() - self.at) as u64;
        if n > left {
            return Err(invalid(format!(
                "the GGUF file ends too early: {n} bytes are needed at byte {}, but only {left} are left",
                self.at
            )));
        }
        let bytes = &self.all[self.at..self.at + n as usize];
        self.at += n as usize;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().unwrap_or_default()))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().unwrap_or_default()))
    }

    fn text(&mut self) -> Result<&'a [u8]> {
        let n = self.u64()?;
        self.take(n)
    }

    fn value(&mut self, kind: u32) -> Result<Value<'a>> {
        if kind == 8 {
            return Ok(Value::Text(self.text()?));
        }
        if kind == 9 {
            return Ok(Value::Array(self.array()?));
        }
        let size = scalar_size(kind)
            .ok_or_else(|| invalid(format!("the GGUF file has a value of the unknown type {kind}")))?;
        Ok(scalar(kind, self.take(size)?))
    }

    fn array(&mut self) -> Result<Array<'a>> {
        let (kind, n) = (self.u32()?, self.u64()?);
        let from = self.at;
        if let Some(size) = scalar_size(kind) {
            let bytes =
                n.checked_mul(size).ok_or_else(|| invalid("the GGUF file has an array that is too long"))?;
            return Ok(Array { kind, n, bytes: self.take(bytes)? });
        }
        if kind != 8 {
            return Err(invalid(format!("the GGUF file has an array of the unsupported type {kind}")));
        }
        for _ in 0..n {
            self.text()?; // each element takes at least 8 bytes, so a loop with a wrong count ends at the file's end
        }
        Ok(Array { kind, n, bytes: &self.all[from..self.at] })
    }
}

fn scalar_size(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

fn scalar(kind: u32, b: &[u8]) -> Value<'_> {
    let mut w = [0u8; 8];
    w[..b.len()].copy_from_slice(b);
    let u = u64::from_le_bytes(w);
    match kind {
        1 => Value::I64(i64::from(u as u8 as i8)),
        3 => Value::I64(i64::from(u as u16 as i16)),
        5 => Value::I64(i64::from(u as u32 as i32)),
        6 => Value::F64(f64::from(f32::from_bits(u as u32))),
        7 => Value::Bool(u != 0),
        11 => Value::I64(u as i64),
        12 => Value::F64(f64::from_bits(u)),
        _ => Value::U64(u),
    }
}

impl<'a> Array<'a> {
    pub fn len(&self) -> u64 {
        self.n
    }

    pub fn strings(&self) -> Result<impl Iterator<Item = &'a [u8]>> {
        if self.kind != 8 {
            return Err(invalid("the GGUF file has another value where an array of strings must be"));
        }
        let mut r = Reader { all: self.bytes, at: 0 };
        Ok((0..self.n).map_while(move |_| r.text().ok()))
    }

    pub fn i64s(&self) -> Result<Vec<i64>> {
        Ok(self
            .scalars()?
            .map(|v| match v {
                Value::U64(u) => i64::try_from(u).unwrap_or(i64::MAX),
                Value::I64(i) => i,
                Value::Bool(b) => i64::from(b),
                _ => 0,
            })
            .collect())
    }

    pub fn f32s(&self) -> Result<Vec<f32>> {
        Ok(self
            .scalars()?
            .map(|v| match v {
                Value::F64(f) => f as f32,
                Value::U64(u) => u as f32,
                Value::I64(i) => i as f32,
                _ => 0.0,
            })
            .collect())
    }

    fn scalars(&self) -> Result<impl Iterator<Item = Value<'a>> + use<'a>> {
        let size = scalar_size(self.kind)
            .ok_or_else(|| invalid("the GGUF file has another value where an array of numbers must be"))?;
        let kind = self.kind;
        Ok(self.bytes.chunks_exact(size as usize).map(move |b| scalar(kind, b)))
    }
}

pub fn is_gguf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GGUF")
}

impl<'a> Metadata<'a> {
    pub fn parse(all: &'a [u8]) -> Result<Metadata<'a>> {
        let mut r = Reader { all, at: 0 };
        if !is_gguf(r.take(4)?) {
            return Err(invalid("this is not a GGUF file: it does not begin with GGUF"));
        }
        let version = r.u32()?;
        if !(2..=3).contains(&version) {
            return Err(invalid(format!(
                "the file has the GGUF version {version}; versions 2 and 3 are supported"
            )));
        }
        let _tensors = r.u64()?;
        let n = r.u64()?;
        if n > MAX_KEYS {
            return Err(invalid(format!("the GGUF file has {n} metadata keys, which is too many")));
        }
        let mut keys = HashMap::new();
        for _ in 0..n {
            let key = std::str::from_utf8(r.text()?)
                .map_err(|_| invalid("the GGUF file has a key that is not UTF-8"))?;
            let kind = r.u32()?;
            keys.insert(key, r.value(kind)?);
        }
        Ok(Metadata { keys, len: r.at })
    }

    pub fn text(&self, key: &str) -> Option<&'a str> {
        match self.keys.get(key)? {
            Value::Text(t) => std::str::from_utf8(t).ok(),
            _ => None,
        }
    }

    pub fn u32(&self, key: &str) -> Option<u32> {
        match *self.keys.get(key)? {
            Value::U64(u) => u32::try_from(u).ok(),
            Value::I64(i) => u32::try_from(i).ok(),
            _ => None,
        }
    }

    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.keys.get(key)? {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    pub fn array(&self, key: &str) -> Option<Array<'a>> {
        match self.keys.get(key)? {
            Value::Array(a) => Some(*a),
            _ => None,
        }
    }
}
