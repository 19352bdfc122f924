//! Converts the vocabulary in a GGUF file to a `Source`, as transformers does for the same models. SentencePiece scores
//! are converted to ranked merges, and byte-level BPE has its own merges. The name in tokenizer.ggml.pre selects a
//! published pre-tokenizer.

use super::pre_tokenizers;
use crate::base::error::{fail, invalid, Code, Result};
use crate::files::gguf::Metadata;
use crate::vocab::table::{BpeFlags, Merge, Source, Vocab};
use serde_json::{json, Value};
use std::collections::HashMap;

// Values of tokenizer.ggml.token_type.
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;

struct Tokens<'a> {
    texts: Vec<&'a str>,
    types: Vec<i64>,
    vocab: Vocab,
}

pub fn read(meta: &Metadata) -> Result<Source> {
    let model = meta
        .text("tokenizer.ggml.model")
        .ok_or_else(|| invalid("the GGUF file has no tokenizer (tokenizer.ggml.model)"))?;
    let tokens = read_tokens(meta)?;
    match model {
        "llama" | "gemma" => read_spm(meta, tokens),
        "gpt2" => read_byte_level(meta, tokens),
        other => fail(
            Code::Unsupported,
            format!("tokenizer.ggml.model '{other}' of the GGUF file is not supported"),
        ),
    }
}

fn read_tokens<'a>(meta: &Metadata<'a>) -> Result<Tokens<'a>> {
    let list = meta
        .array("tokenizer.ggml.tokens")
        .ok_or_else(|| invalid("the GGUF file has no tokenizer.ggml.tokens"))?;
    let (mut texts, mut vocab) = (Vec::new(), Vocab::default());
    for (id, bytes) in list.strings()?.enumerate() {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| invalid(format!("token {id} of the GGUF file is not UTF-8")))?;
        texts.push(text);
        // When two ids have the same text, the first id is the token, because a text can only have one id.
        if !text.is_empty() && vocab.id(text).is_none() {
            vocab.insert(text, id as u32)?;
        }
    }
    if texts.is_empty() {
        return Err(invalid("the vocabulary of the GGUF file is empty"));
    }
    let types = match meta.array("tokenizer.ggml.token_type") {
        Some(a) => a.i64s()?,
        None => vec![1; texts.len()],
    };
    if types.len() != texts.len() {
        return Err(invalid(format!(
            "the GGUF file has {} tokens but {} token types",
            texts.len(),
            types.len()
        )));
    }
    Ok(Tokens { texts, types, vocab })
}

fn added_tokens(t: &Tokens) -> Value {
    let mut added = Vec::new();
    for (id, (text, kind)) in t.texts.iter().zip(&t.types).enumerate() {
        let listed = matches!(*kind, UNKNOWN | CONTROL | USER_DEFINED | UNUSED);
        if !listed || text.is_empty() || t.vocab.id(text) != Some(id as u32) {
            continue;
        }
        added.push(json!({
            "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": matches!(*kind, UNKNOWN | CONTROL),
        }));
    }
    Value::Array(added)
}

/// Returns a TemplateProcessing for add_bos_token and add_eos_token; null when neither is set.
fn post_processor(meta: &Metadata, t: &Tokens, bos_default: bool) -> Value {
    let wanted = |flag: &str, id: &str, default: bool| {
        let on = meta.bool(flag).unwrap_or(default);
        let id = meta.u32(id).filter(|_| on)?;
        Some((id, (*t.texts.get(id as usize)?).to_owned()))
    };
    let bos = wanted("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", bos_default);
    let eos = wanted("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false);
    if bos.is_none() && eos.is_none() {
        return Value::Null;
    }
    let mut special = serde_json::Map::new();
    for (id, text) in bos.iter().chain(&eos) {
        special.insert(text.clone(), json!({"id": text, "ids": [id], "tokens": [text]}));
    }
    let part = |type_id: u32, name: &str| {
        let token = |t: &Option<(u32, String)>| {
            t.as_ref().map(|(_, text)| json!({"SpecialToken": {"id": text, "type_id": type_id}}))
        };
        let sequence = json!({"Sequence": {"id": name, "type_id": type_id}});
        [token(&bos), Some(sequence), token(&eos)].into_iter().flatten().collect::<Vec<_>>()
    };
    let pair: Vec<Value> = part(0, "A").into_iter().chain(part(1, "B")).collect();
    json!({"type": "TemplateProcessing", "single": part(0, "A"), "pair": pair, "special_tokens": special})
}

fn read_spm(meta: &Metadata, t: Tokens) -> Result<Source> {
    let scores = meta
        .array("tokenizer.ggml.scores")
        .ok_or_else(|| invalid("the GGUF file has no tokenizer.ggml.scores"))?;
    let scores = scores.f32s()?;
    if scores.len() != t.texts.len() {
        return Err(invalid(format!(
            "the GGUF file has {} tokens but {} scores",
            t.texts.len(),
            scores.len()
        )));
    }
    let prefix_space = meta.bool("tokenizer.ggml.add_space_prefix").unwrap_or(true);
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let back = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
    let (normalizer, strip) = match prefix_space {
        true => (
            json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}),
            vec![json!({"type": "Strip", "content": " ", "start": 1, "stop": 0})],
        ),
        false => (replace, vec![]),
    };
    let mut decoders = vec![back, json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
    decoders.extend(strip);
    let config = json!({
        "normalizer": normalizer, "pre_tokenizer": null,
        "post_processor": post_processor(meta, &t, true),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "added_tokens": added_tokens(&t),
    });
    let merges = merges_of_scores(&t, &scores);
    let unk = meta.u32("tokenizer.ggml.unknown_token_id").filter(|&id| (id as usize) < t.texts.len());
    let unk = unk.or_else(|| t.vocab.id("<unk>"));
    Ok(Source {
        vocab: t.vocab,
        merges,
        flags: BpeFlags { fuse_unk: true, byte_fallback: true, ignore_merges: false },
        unk,
        prefix: String::new(),
        suffix: String::new(),
        config: config.to_string(),
    })
}

/// Makes a merge for every way to split a token into two tokens. Merges of a token with a better score are first. For one
/// token, merges with a longer left part are first. This is the order of transformers' generate_merges.
fn merges_of_scores(t: &Tokens, scores: &[f32]) -> Vec<Merge> {
    let mut found: Vec<(f32, u16, u16, Merge)> = Vec::new();
    for (id, text) in t.texts.iter().enumerate() {
        if t.vocab.id(text) != Some(id as u32) || text.len() > usize::from(u16::MAX) {
            continue;
        }
        // These tokens are matched as a whole text and need no merge.
        if matches!(t.types[id], UNKNOWN | CONTROL) {
            continue;
        }
        let from = found.len();
        let n_chars = text.chars().count();
        for (i, (at, _)) in text.char_indices().enumerate().skip(1) {
            if let (Some(l), Some(r)) = (t.vocab.id(&text[..at]), t.vocab.id(&text[at..])) {
                found.push((scores[id], i as u16, (n_chars - i) as u16, (l, r, id as u32)));
            }
        }
        found[from..].sort_by_key(|m| (m.3 .0, m.3 .1));
    }
    // The sort is stable and descending, with ties in the order found, like Python's sort(reverse=True).
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2)));
    found.into_iter().map(|m| m.3).collect()
}

fn read_byte_level(meta: &Metadata, t: Tokens) -> Result<Source> {
    let pre = meta.text("tokenizer.ggml.pre").unwrap_or("default");
    let pre = pre_tokenizers::by_name(pre).ok_or_else(|| crate::base::error::TextError {
        code: Code::Unsupported,
        message: format!("tokenizer.ggml.pre '{pre}' of the GGUF file is not supported"),
    })?;
    let list = meta
        .array("tokenizer.ggml.merges")
        .ok_or_else(|| invalid("the GGUF file has no tokenizer.ggml.merges"))?;
    let mut merges = Vec::with_capacity(list.len().min(1 << 22) as usize);
    let mut seen: HashMap<(u32, u32), ()> = HashMap::new();
    for bytes in list.strings()? {
        let line =
            std::str::from_utf8(bytes).map_err(|_| invalid("a merge of the GGUF file is not UTF-8"))?;
        // The space in the middle separates the two parts. Byte-level texts contain no space: they write it as "Ġ".
        let (l, r) = line.split_once(' ').ok_or_else(|| {
            invalid(format!(
                "the merge '{line}' of the GGUF file is not valid; it must be two tokens with a space between them"
            ))
        })?;
        let id = |s: &str| {
            t.vocab
                .id(s)
                .ok_or_else(|| invalid(format!("a merge of the GGUF file uses '{s}', which is not a token")))
        };
        let (left, right, merged) = (id(l)?, id(r)?, id(&format!("{l}{r}"))?);
        if seen.insert((left, right), ()).is_none() {
            merges.push((left, right, merged));
        }
    }
    let config = json!({
        "normalizer": if pre.nfc { json!({"type": "NFC"}) } else { Value::Null },
        "pre_tokenizer": pre.to_json(),
        "post_processor": post_processor(meta, &t, pre.add_bos),
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "added_tokens": added_tokens(&t),
    });
    Ok(Source {
        vocab: t.vocab,
        merges,
        flags: BpeFlags { ignore_merges: pre.ignore_merges, ..BpeFlags::default() },
        unk: None,
        prefix: String::new(),
        suffix: String::new(),
        config: config.to_string(),
    })
}
