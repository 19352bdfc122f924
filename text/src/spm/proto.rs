//! Reads tokenizer.model, a protobuf of SentencePiece (sentencepiece_model.proto), without a protobuf library. This file
//! reads the pieces with scores and types, the normalization, and the few trainer settings that change ids. The bytes are
//! not trusted. Every length is checked against the bytes that remain. Unknown fields are skipped, and a known field with
//! another wire type is an error.

use crate::base::error::{fail, invalid, Code, Result};
use crate::vocab::table::MAX_ID;

/// Longest allowed piece in bytes. Trainers cut pieces at 16 characters. It is limited because the encoder may compare
/// that many bytes at every position of a text.
const MAX_PIECE: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

pub struct Piece<'a> {
    pub text: &'a str,
    pub score: f32,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Unigram,
    Bpe,
}

pub struct NormalizerSpec<'a> {
    pub charsmap: &'a [u8],
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    pub escape_whitespaces: bool,
}

/// Holds the fields of a ModelProto. The defaults are those of the .proto file.
pub struct ModelProto<'a> {
    pub pieces: Vec<Piece<'a>>,
    pub algorithm: Algorithm,
    pub byte_fallback: bool,
    pub bos: &'a str,
    pub eos: &'a str,
    pub normalizer: NormalizerSpec<'a>,
}

#[derive(Clone, Copy)]
enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
    Fixed64,
}

struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for i in 0..10 {
            let (&b, rest) = self.left.split_first().ok_or_else(|| cut("a number"))?;
            self.left = rest;
            value |= u64::from(b & 0x7f) << (7 * i);
            if b < 0x80 {
                return Ok(value);
            }
        }
        Err(invalid("tokenizer.model has a number of more than ten bytes"))
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        if n > self.left.len() as u64 {
            return Err(cut("a field"));
        }
        let (bytes, rest) = self.left.split_at(n as usize);
        self.left = rest;
        Ok(bytes)
    }

    /// Returns the number and the value of the next field; None at the end of the message.
    fn next(&mut self) -> Result<Option<(u64, Field<'a>)>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => self.take(8).map(|_| Field::Fixed64)?,
            2 => {
                let n = self.varint()?;
                Field::Bytes(self.take(n)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().unwrap_or_default())),
            other => {
                return Err(invalid(format!(
                "tokenizer.model has the unknown wire type {other}; it is probably not a SentencePiece model"
            )))
            }
        };
        Ok(Some((tag >> 3, field)))
    }
}

fn cut(what: &str) -> crate::base::error::TextError {
    invalid(format!("tokenizer.model: {what} ends after the end of the file"))
}

fn other_type(name: &str) -> crate::base::error::TextError {
    invalid(format!("tokenizer.model: {name} has a wrong wire type"))
}

impl<'a> Field<'a> {
    fn bytes(self, name: &str) -> Result<&'a [u8]> {
        match self {
            Field::Bytes(b) => Ok(b),
            _ => Err(other_type(name)),
        }
    }

    fn text(self, name: &str) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(name)?)
            .map_err(|_| invalid(format!("tokenizer.model: {name} is not UTF-8")))
    }

    fn number(self, name: &str) -> Result<u64> {
        match self {
            Field::Varint(v) => Ok(v),
            _ => Err(other_type(name)),
        }
    }

    fn bool(self, name: &str) -> Result<bool> {
        Ok(self.number(name)? != 0)
    }
}

pub fn parse(bytes: &[u8]) -> Result<ModelProto<'_>> {
    let mut m = ModelProto {
        pieces: vec![],
        algorithm: Algorithm::Unigram,
        byte_fallback: false,
        bos: "<s>",
        eos: "</s>",
        normalizer: NormalizerSpec {
            charsmap: &[],
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        },
    };
    let mut r = Reader { left: bytes };
    while let Some((number, field)) = r.next()? {
        match number {
            1 => {
                if m.pieces.len() >= MAX_ID as usize {
                    return fail(Code::Limit, format!("tokenizer.model has more than {MAX_ID} pieces"));
                }
                let piece = read_piece(field.bytes("pieces")?, m.pieces.len())?;
                m.pieces.push(piece);
            }
            2 => read_trainer(field.bytes("trainer_spec")?, &mut m)?,
            3 => read_normalizer(field.bytes("normalizer_spec")?, &mut m.normalizer)?,
            5 => read_denormalizer(field.bytes("denormalizer_spec")?)?,
            _ => {}
        }
    }
    if m.pieces.is_empty() {
        return Err(invalid("tokenizer.model has no pieces"));
    }
    Ok(m)
}

fn read_piece(bytes: &[u8], id: usize) -> Result<Piece<'_>> {
    let mut p = Piece { text: "", score: 0.0, kind: Kind::Normal };
    let mut r = Reader { left: bytes };
    while let Some((number, field)) = r.next()? {
        match (number, field) {
            (1, f) => p.text = f.text(&format!("piece {id}"))?,
            (2, Field::Fixed32(bits)) => p.score = f32::from_bits(bits) + 0.0, // adding 0.0 converts -0 to 0
            (2, _) => return Err(other_type("a score")),
            (3, f) => {
                p.kind = match f.number("a type")? {
                    1 => Kind::Normal,
                    2 => Kind::Unknown,
                    3 => Kind::Control,
                    4 => Kind::UserDefined,
                    5 => Kind::Unused,
                    6 => Kind::Byte,
                    t => {
                        return Err(invalid(format!("tokenizer.model: piece {id} has the unknown type {t}")))
                    }
                }
            }
            _ => {}
        }
    }
    if p.text.is_empty() {
        return Err(invalid(format!("tokenizer.model: piece {id} is empty")));
    }
    if p.text.len() > MAX_PIECE {
        return Err(invalid(format!("tokenizer.model: piece {id} is longer than {MAX_PIECE} bytes")));
    }
    if p.score.is_nan() {
        return Err(invalid(format!("tokenizer.model: the score of piece {id} is not a number")));
    }
    Ok(p)
}

fn read_trainer<'a>(bytes: &'a [u8], m: &mut ModelProto<'a>) -> Result<()> {
    let mut r = Reader { left: bytes };
    while let Some((number, field)) = r.next()? {
        match number {
            3 => {
                m.algorithm = match field.number("model_type")? {
                    1 => Algorithm::Unigram,
                    2 => Algorithm::Bpe,
                    other => {
                        let name =
                            ["", "", "", "word", "char"].get(other as usize).copied().unwrap_or("unknown");
                        return fail(
                            Code::Unsupported,
                            format!("tokenizer.model: model_type {other} ({name}) is not supported. Supported types: unigram, bpe"),
                        );
                    }
                }
            }
            24 if field.bool("treat_whitespace_as_suffix")? => {
                return fail(
                    Code::Unsupported,
                    "tokenizer.model: treat_whitespace_as_suffix is not supported",
                );
            }
            35 => m.byte_fallback = field.bool("byte_fallback")?,
            46 => m.bos = field.text("bos_piece")?,
            47 => m.eos = field.text("eos_piece")?,
            _ => {}
        }
    }
    Ok(())
}

fn read_normalizer<'a>(bytes: &'a [u8], n: &mut NormalizerSpec<'a>) -> Result<()> {
    let mut r = Reader { left: bytes };
    while let Some((number, field)) = r.next()? {
        match number {
            2 => n.charsmap = field.bytes("precompiled_charsmap")?,
            3 => n.add_dummy_prefix = field.bool("add_dummy_prefix")?,
            4 => n.remove_extra_whitespaces = field.bool("remove_extra_whitespaces")?,
            5 => n.escape_whitespaces = field.bool("escape_whitespaces")?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks the normalization of decoded texts. Only an empty normalization is supported; every model with a decoder has an
/// empty one.
fn read_denormalizer(bytes: &[u8]) -> Result<()> {
    let mut r = Reader { left: bytes };
    while let Some((number, field)) = r.next()? {
        if number == 2 && !field.bytes("precompiled_charsmap")?.is_empty() {
            return fail(
                Code::Unsupported,
                "tokenizer.model: denormalizer_spec with a precompiled_charsmap is not supported",
            );
        }
    }
    Ok(())
}
