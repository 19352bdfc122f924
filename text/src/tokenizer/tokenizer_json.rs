//! Reads a tokenizer.json into a `Source` without a JSON tree. The small parts stay raw text, and the vocabulary and
//! merges are streamed into flat tables.

use crate::base::error::{not_valid, Result};
use crate::files::json_limits::{check_values, MAX_JSON_VALUES};
use crate::vocab::table::{BpeFlags, Merge, Source, Vocab};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt;

/// Most JSON values of a model that is left to the tokenizers crate. The crate builds a JSON tree, so the number is
/// limited. A vocabulary of 256,000 pieces has 800,000 values.
const MAX_MODEL_VALUES: usize = 1 << 22;

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
    #[serde(borrow, default)]
    normalizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    post_processor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    decoder: Option<&'a RawValue>,
    #[serde(borrow, default)]
    added_tokens: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    dropout: Option<f32>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: Option<bool>,
    #[serde(default)]
    byte_fallback: Option<bool>,
    #[serde(default)]
    ignore_merges: Option<bool>,
    #[serde(borrow, default)]
    vocab: Option<&'a RawValue>,
    #[serde(borrow, default)]
    merges: Option<&'a RawValue>,
}

/// Distinguishes the two kinds of tokenizer.json.
pub enum Parsed {
    Bpe(Source),
    /// another model, or a BPE that is left to the tokenizers crate: the raw text of `model` and the small parts
    Other {
        model: String,
        config: String,
    },
}

pub fn parse(json: &[u8]) -> Result<Parsed> {
    let file: File = serde_json::from_slice(json).map_err(|e| not_valid("tokenizer.json", e))?;
    let or_null = |v: Option<&RawValue>| v.map_or("null", RawValue::get).to_owned();
    let config = format!(
        "{{\"normalizer\":{},\"pre_tokenizer\":{},\"post_processor\":{},\"decoder\":{},\"added_tokens\":{}}}",
        or_null(file.normalizer),
        or_null(file.pre_tokenizer),
        or_null(file.post_processor),
        or_null(file.decoder),
        file.added_tokens.map_or("[]", RawValue::get)
    );
    check_values(&config, MAX_JSON_VALUES, "tokenizer.json without its model")?;
    let other = |config| {
        check_values(file.model.get(), MAX_MODEL_VALUES, "the model in tokenizer.json")?;
        Ok(Parsed::Other { model: file.model.get().to_owned(), config })
    };
    // Only the model's kind is read first, because the types of the other fields depend on it.
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type", default)]
        kind: Option<String>,
    }
    let kind: Kind =
        serde_json::from_str(file.model.get()).map_err(|e| not_valid("the model in tokenizer.json", e))?;
    if kind.kind.as_deref().is_some_and(|k| k != "BPE") {
        return other(config);
    }
    let m: Model = match serde_json::from_str(file.model.get()) {
        Ok(m) => m,
        Err(_) if kind.kind.is_none() => return other(config),
        Err(e) => return Err(not_valid("the model in tokenizer.json", e)),
    };
    let (Some(raw_vocab), Some(raw_merges)) = (m.vocab, m.merges) else {
        return other(config);
    };
    if m.kind.is_none() && !raw_vocab.get().starts_with('{') || m.dropout.is_some_and(|d| d != 0.0) {
        return other(config);
    }
    let mut vocab = Vocab::default();
    read_vocab(raw_vocab, &mut vocab)?;
    let unk = match &m.unk_token {
        Some(t) => match vocab.id(t) {
            Some(id) => Some(id),
            None => return other(config), // the tokenizers crate reports the error when it reads the model
        },
        None => None,
    };
    if vocab.has_shared_ids() {
        return other(config);
    }
    let prefix = m.continuing_subword_prefix.unwrap_or_default();
    let merges = read_merges(raw_merges, &vocab, &prefix)?;
    Ok(Parsed::Bpe(Source {
        merges,
        vocab,
        flags: BpeFlags {
            fuse_unk: m.fuse_unk.unwrap_or(false),
            byte_fallback: m.byte_fallback.unwrap_or(false),
            ignore_merges: m.ignore_merges.unwrap_or(false),
        },
        unk,
        prefix,
        suffix: m.end_of_word_suffix.unwrap_or_default(),
        config,
    }))
}

/// Passes a string to a function without keeping it.
struct Text<F>(F);

impl<'de, T, F: FnOnce(&str) -> T> DeserializeSeed<'de> for Text<F> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> std::result::Result<T, D::Error> {
        d.deserialize_str(self)
    }
}

impl<'de, T, F: FnOnce(&str) -> T> Visitor<'de> for Text<F> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E>(self, v: &str) -> std::result::Result<T, E> {
        Ok((self.0)(v))
    }
}

fn read_vocab(raw: &RawValue, vocab: &mut Vocab) -> Result<()> {
    struct Entries<'v>(&'v mut Vocab);
    impl<'de> Visitor<'de> for Entries<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an object of token texts and ids")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
            let mut key = String::new();
            loop {
                let take = |s: &str| {
                    key.clear();
                    key.push_str(s);
                };
                if map.next_key_seed(Text(take))?.is_none() {
                    break;
                }
                let id: u32 = map.next_value()?;
                self.0.insert(&key, id).map_err(|e| serde::de::Error::custom(e.message))?;
            }
            Ok(())
        }
    }
    serde_json::Deserializer::from_str(raw.get())
        .deserialize_map(Entries(vocab))
        .map_err(|e| not_valid("model.vocab in tokenizer.json", e))
}

fn read_merges(raw: &RawValue, vocab: &Vocab, prefix: &str) -> Result<Vec<Merge>> {
    struct Resolver<'v> {
        vocab: &'v Vocab,
        prefix_len: usize,
        joined: String,
        merges: Vec<Merge>,
    }
    impl Resolver<'_> {
        fn resolve(&mut self, left: &str, right: &str) -> std::result::Result<(), String> {
            let id = |t: &str| self.vocab.id(t).ok_or_else(|| format!("'{t}' is not in the vocabulary"));
            let (l, r) = (id(left)?, id(right)?);
            self.joined.clear();
            self.joined.push_str(left);
            self.joined.push_str(
                right.get(self.prefix_len..).ok_or("the right side of a merge is shorter than the prefix")?,
            );
            let merged = id(&self.joined)?;
            self.merges.push((l, r, merged));
            Ok(())
        }
    }
    impl<'de> DeserializeSeed<'de> for &mut Resolver<'_> {
        type Value = ();
        fn deserialize<D: Deserializer<'de>>(self, d: D) -> std::result::Result<(), D::Error> {
            d.deserialize_any(self)
        }
    }
    impl<'de> Visitor<'de> for &mut Resolver<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("\"left right\" or [left, right]")
        }
        fn visit_str<E: serde::de::Error>(self, v: &str) -> std::result::Result<(), E> {
            if v.starts_with("#version") {
                return Ok(());
            }
            match v.split_once(' ') {
                Some((l, r)) if !r.contains(' ') => self.resolve(l, r).map_err(E::custom),
                _ => Err(E::custom(format!("the merge '{v}' is not valid"))),
            }
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<(), A::Error> {
            let missing = || serde::de::Error::custom("a merge needs two texts");
            let left: String = seq.next_element()?.ok_or_else(missing)?;
            let right: String = seq.next_element()?.ok_or_else(missing)?;
            self.resolve(&left, &right).map_err(serde::de::Error::custom)?;
            match seq.next_element::<serde::de::IgnoredAny>()? {
                None => Ok(()),
                Some(_) => Err(serde::de::Error::custom("a merge has more than two texts")),
            }
        }
    }
    struct All<'r, 'v>(&'r mut Resolver<'v>);
    impl<'de> Visitor<'de> for All<'_, '_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a list of merges")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<(), A::Error> {
            while seq.next_element_seed(&mut *self.0)?.is_some() {}
            Ok(())
        }
    }
    let mut r = Resolver { vocab, prefix_len: prefix.len(), joined: String::new(), merges: vec![] };
    serde_json::Deserializer::from_str(raw.get())
        .deserialize_seq(All(&mut r))
        .map_err(|e| not_valid("model.merges in tokenizer.json", e))?;
    Ok(r.merges)
}
