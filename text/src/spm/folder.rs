//! Opens a folder with a tokenizer.model and no tokenizer.json. The small JSON files beside the model describe its
//! special and added tokens. These files are read as transformers' LlamaTokenizer and GemmaTokenizer read them
//! (from_pretrained of the classes that run SentencePiece itself).

use super::encoder::{Frame, Spm};
use super::model::Model;
use super::proto;
use crate::base::error::{fail, invalid, Code, Result};
use crate::files::token_config::{read_json, token_config, token_text, Special, ADDITIONAL};
use crate::vocab::table::MAX_ID;
use serde_json::{json, Map, Value};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Names of the special tokens. Tokens that the model lacks get their ids in this order.
pub const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

struct Class {
    name: &'static str,
    /// default tokens of the class, used when the files name none
    defaults: &'static [(&'static str, &'static str)],
    /// true when the class puts a space before the text and has a legacy mode
    is_llama: bool,
}

const CLASSES: [Class; 2] = [
    Class {
        name: "LlamaTokenizer",
        defaults: &[("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")],
        is_llama: true,
    },
    Class {
        name: "GemmaTokenizer",
        defaults: &[
            ("bos_token", "<bos>"),
            ("eos_token", "<eos>"),
            ("unk_token", "<unk>"),
            ("pad_token", "<pad>"),
        ],
        is_llama: false,
    },
];

/// Number of spaces that decoding strips when the model drops all spaces at the beginning of a text.
const ALL_BLANKS: usize = 1 << 20;

/// Holds a model, the parts of a tokenizer.json around it (as JSON), and the tokens that are added to texts.
pub struct Opened {
    pub spm: Spm,
    pub config: String,
    pub frame: Frame,
    pub special: Special,
}

struct Added {
    text: String,
    id: u32,
    special: bool,
    lstrip: bool,
    rstrip: bool,
    single_word: bool,
}

fn class_of(config: &Value) -> Result<Option<&'static Class>> {
    let Some(name) = config["tokenizer_class"].as_str() else { return Ok(None) };
    let plain = name.strip_suffix("Fast").unwrap_or(name);
    match CLASSES.iter().find(|c| c.name == plain) {
        Some(c) => Ok(Some(c)),
        None => fail(
            Code::Unsupported,
            format!(
                "tokenizer_config.json: tokenizer_class '{name}' with a tokenizer.model is not supported. \
                     Supported classes: LlamaTokenizer, GemmaTokenizer"
            ),
        ),
    }
}

/// Reads a flag by Python's truth rules. A null is false, and the default applies only when the key is missing.
fn flag(config: &Value, name: &str, default: bool) -> bool {
    match config.get(name) {
        None => default,
        Some(Value::Null) => false,
        Some(Value::Bool(b)) => *b,
        Some(Value::Number(n)) => n.as_f64() != Some(0.0),
        Some(Value::String(s)) => !s.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
    }
}

/// Returns true for the legacy mode. A null counts as legacy too: transformers' default is None, and None means true.
fn is_legacy(config: &Value) -> bool {
    config["legacy"].is_null() || flag(config, "legacy", true)
}

/// Returns the named tokens of a model (bos_token, …) and their texts.
pub fn named_texts(bytes: &[u8], folder: &Path) -> Result<Vec<(&'static str, String)>> {
    let config = token_config(folder, false)?;
    let named = named_tokens(&config, class_of(&config)?, &proto::parse(bytes)?);
    Ok(named.into_iter().filter(|n| n.name != ADDITIONAL).map(|n| (n.name, n.text)).collect())
}

/// Opens a model. Without a folder, only the model's own settings apply.
pub fn open(bytes: &[u8], folder: Option<&Path>) -> Result<Opened> {
    let proto = proto::parse(bytes)?;
    let model = Model::new(&proto)?;
    let config = folder.map_or_else(|| Ok(json!({})), |f| token_config(f, false))?;
    let class = class_of(&config)?;
    let named = named_tokens(&config, class, &proto);
    let mut added = match (config["added_tokens_decoder"].as_object(), folder) {
        (Some(list), _) => of_decoder(list)?,
        (None, Some(f)) => {
            of_added_json(read_json(&f.join("added_tokens.json"))?.unwrap_or_default(), &named)?
        }
        (None, None) => vec![],
    };
    add_named(&mut added, &named, &model);

    let is_llama = class.is_none_or(|c| c.is_llama);
    let legacy = !is_llama || is_legacy(&config);
    let prefix_space = is_llama && flag(&config, "add_prefix_space", true);
    let id_of = |name: &str| {
        let text = &named.iter().find(|t| t.name == name)?.text;
        added.iter().find(|a| a.text == *text).map(|a| a.id)
    };
    let names: HashSet<&str> = named.iter().map(|n| n.text.as_str()).collect();
    let frame = Frame {
        bos: id_of("bos_token").filter(|_| flag(&config, "add_bos_token", true)),
        eos: id_of("eos_token").filter(|_| flag(&config, "add_eos_token", false)),
        legacy,
        prefix_space: prefix_space && !legacy,
        blank: model.id("▁"),
        named: added
            .iter()
            .filter(|a| names.contains(a.text.as_str()))
            .map(|a| (a.id, a.text.clone()))
            .collect(),
    };
    let special = Special { bos_id: id_of("bos_token"), eos_id: id_of("eos_token"), ..Special::default() };
    let strip = match (proto.normalizer.remove_extra_whitespaces, legacy) {
        (true, _) => ALL_BLANKS,
        (_, true) => usize::from(
            proto.normalizer.add_dummy_prefix || class.is_some_and(|c| c.is_llama) && prefix_space,
        ),
        (_, false) => usize::from(prefix_space),
    };
    let unk = named.iter().find(|t| t.name == "unk_token").map_or("<unk>", |t| &t.text);
    let extra = added.iter().map(|a| (a.text.clone(), a.id)).collect();
    let config = pipeline(&added, strip, model.has_bytes());
    Ok(Opened { spm: Spm::new(model, legacy, unk, extra)?, config, frame, special })
}

/// Builds a tokenizer.json without a model. `strip` is the number of spaces that decoding removes from the beginning of a
/// text.
fn pipeline(added: &[Added], strip: usize, byte_fallback: bool) -> String {
    let mut decoders = vec![json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "})];
    if byte_fallback {
        decoders.push(json!({"type": "ByteFallback"}));
    }
    decoders.push(json!({"type": "Fuse"}));
    if strip > 0 {
        decoders.push(json!({"type": "Strip", "content": " ", "start": strip, "stop": 0}));
    }
    let added: Vec<Value> = added
        .iter()
        .map(|a| {
            json!({"id": a.id, "content": a.text, "single_word": a.single_word, "lstrip": a.lstrip,
                   "rstrip": a.rstrip, "normalized": false, "special": a.special})
        })
        .collect();
    json!({"normalizer": null, "pre_tokenizer": null, "post_processor": null,
           "decoder": {"type": "Sequence", "decoders": decoders}, "added_tokens": added})
    .to_string()
}

struct Named {
    name: &'static str,
    text: String,
    lstrip: bool,
    rstrip: bool,
    said: bool,
}

fn named_tokens(config: &Value, class: Option<&Class>, proto: &proto::ModelProto) -> Vec<Named> {
    let mut all: Vec<Named> = vec![];
    let mut add = |name: &'static str, text: String, v: &Value| {
        if !text.is_empty() {
            let (lstrip, rstrip) = (flag(v, "lstrip", false), flag(v, "rstrip", false));
            all.push(Named { name, text, lstrip, rstrip, said: !v.is_null() });
        }
    };
    for name in NAMES {
        let said = config.get(name);
        let default = match (name, class) {
            (_, Some(c)) => c.defaults.iter().find(|(n, _)| *n == name).map(|(_, text)| *text),
            ("bos_token", None) => Some(proto.bos),
            ("eos_token", None) => Some(proto.eos),
            ("unk_token", None) => Some("<unk>"),
            _ => None,
        };
        match (said, default) {
            (Some(v), _) => {
                if let Some(text) = token_text(v) {
                    add(name, text, v);
                }
            }
            // the files do not mention the token: it exists only when the class or the model has it
            (None, Some(text)) if class.is_some() || proto.pieces.iter().any(|p| p.text == text) => {
                add(name, text.to_owned(), &Value::Null);
            }
            _ => {}
        }
    }
    for v in config[ADDITIONAL].as_array().into_iter().flatten() {
        if let Some(text) = token_text(v) {
            add(ADDITIONAL, text, v);
        }
    }
    all
}

fn checked_id(v: Option<u64>, text: &str, file: &str) -> Result<u32> {
    match v {
        Some(id) if id < u64::from(MAX_ID) => Ok(id as u32),
        _ => Err(invalid(format!("{file}: the token '{text}' must have an id less than {MAX_ID}"))),
    }
}

fn of_decoder(list: &Map<String, Value>) -> Result<Vec<Added>> {
    let file = "tokenizer_config.json: added_tokens_decoder";
    let mut added = vec![];
    for (id, v) in list {
        let text =
            v["content"].as_str().ok_or_else(|| invalid(format!("{file}: the token {id} has no content")))?;
        added.push(Added {
            text: text.to_owned(),
            id: checked_id(id.parse().ok(), text, file)?,
            special: flag(v, "special", false),
            lstrip: flag(v, "lstrip", false),
            rstrip: flag(v, "rstrip", false),
            single_word: flag(v, "single_word", false),
        });
    }
    Ok(added)
}

fn of_added_json(list: Map<String, Value>, named: &[Named]) -> Result<Vec<Added>> {
    let names: HashSet<&str> = named.iter().map(|n| n.text.as_str()).collect();
    let mut added = vec![];
    for (text, id) in list {
        added.push(Added {
            id: checked_id(id.as_u64(), &text, "added_tokens.json")?,
            special: names.contains(text.as_str()),
            text,
            lstrip: false,
            rstrip: false,
            single_word: false,
        });
    }
    Ok(added)
}

/// Adds the named tokens, which are special. A token that is not listed gets the id of the model's piece, or a new id
/// after all other ids.
fn add_named(added: &mut Vec<Added>, named: &[Named], model: &Model) {
    let beyond = added.iter().filter(|a| a.id >= model.n_pieces()).count() as u32;
    let mut next = model.n_pieces() + beyond;
    // index of the tokens by text; for a text that occurs twice, the first token counts
    let mut known = HashMap::new();
    added.iter().enumerate().for_each(|(i, a)| {
        known.entry(a.text.clone()).or_insert(i);
    });
    for n in named {
        if let Some(&i) = known.get(&n.text) {
            let a = &mut added[i];
            a.special = true;
            if !n.said {
                (a.lstrip, a.rstrip, a.single_word) = (false, false, false);
            }
            continue;
        }
        let id = model.id(&n.text).unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        known.insert(n.text.clone(), added.len());
        added.push(Added {
            text: n.text.clone(),
            id,
            special: true,
            lstrip: n.lstrip,
            rstrip: n.rstrip,
            single_word: false,
        });
    }
}
