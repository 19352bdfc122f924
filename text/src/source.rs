//! From a path to a model: finds the file, hashes what the tokenizer depends on, maps the compiled
//! form from the cache or makes it. Special tokens' names come from the small files beside it.

use crate::compiled::{compile, write_atomically, Compiled};
use crate::error::{fail, invalid, io, Code, Result, TextError};
use crate::gguf::{self, Metadata};
use crate::gguf_vocab;
use crate::spm::{self, Frame, Spm};
use crate::tokenizer_json::{self, Parsed};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

pub enum Model {
    Compiled(Compiled),
    Crate { model: String, config: String },
    Spm { model: Box<Spm>, config: String, frame: Frame },
}

#[derive(Clone, Debug, Default)]
pub struct Special {
    pub bos: Option<String>,
    pub eos: Option<String>,
    pub bos_id: Option<u32>,
    pub eos_id: Option<u32>,
}

pub struct Opened {
    pub model: Model,
    pub special: Special,
}

/// Small files are not read beyond this (tokenizer_config.json of Gemma has 1.2 MB).
const MAX_SMALL_FILE: u64 = 64 << 20;
/// Nor is JSON of more values parsed: two bytes of text become up to 600 of memory. Gemma's has 45,000,
/// a speech model's with 65,536 added tokens half a million.
pub const MAX_JSON_VALUES: usize = 1 << 20;

pub fn map_file(path: &Path) -> Result<memmap2::Mmap> {
    // before opening: the open of a FIFO would wait for a writer
    if !std::fs::metadata(path).map_err(|e| io(path.display(), e))?.is_file() {
        return Err(invalid(format!("{}: not a regular file", path.display())));
    }
    let file = File::open(path).map_err(|e| io(path.display(), e))?;
    if file.metadata().map_err(|e| io(path.display(), e))?.len() == 0 {
        return Err(invalid(format!("{}: empty", path.display())));
    }
    // SAFETY: model files are not changed while they are read; a file cut under us is the operator's act.
    unsafe { memmap2::Mmap::map(&file) }.map_err(|e| io(path.display(), e))
}

pub fn read_small(path: &Path) -> Result<Option<String>> {
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io(path.display(), e)),
        Ok(m) if !m.is_file() => return Err(invalid(format!("{}: not a regular file", path.display()))),
        Ok(m) if m.len() > MAX_SMALL_FILE => {
            return fail(Code::Limit, format!("{}: larger than {MAX_SMALL_FILE} bytes", path.display()))
        }
        Ok(_) => {}
    }
    std::fs::read_to_string(path).map(Some).map_err(|e| io(path.display(), e))
}

/// Before JSON is parsed: it has no more values than this.
pub fn check_values(text: &str, most: usize, what: impl Display) -> Result<()> {
    // Each value but the first stands behind one of these.
    match text.bytes().filter(|b| matches!(b, b',' | b'[' | b'{')).count() < most {
        true => Ok(()),
        false => fail(Code::Limit, format!("{what}: has more than {most} values")),
    }
}

/// A small file that holds a JSON object.
pub fn read_json(path: &Path) -> Result<Option<Map<String, Value>>> {
    let Some(text) = read_small(path)? else { return Ok(None) };
    check_values(&text, MAX_JSON_VALUES, path.display())?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => Ok(Some(map)),
        Ok(_) => Err(invalid(format!("{}: is not a JSON object", path.display()))),
        Err(e) => Err(invalid(format!("{}: {e}", path.display()))),
    }
}

/// What tokenizer_config.json and special_tokens_map.json say together, as transformers joins them: where
/// the first one lists no added_tokens_decoder, the files are of before 2023 and the second one wins. Else
/// that one is not asked, and `fill` takes from it what the first one leaves out (and transformers from a
/// class that need not be known here).
pub fn token_config(folder: &Path, fill: bool) -> Result<Value> {
    let mut config = read_json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let listed = config.get("added_tokens_decoder").is_some_and(Value::is_object);
    let map = match listed && !fill {
        true => None,
        false => read_json(&folder.join("special_tokens_map.json"))?,
    };
    for (key, said) in map.into_iter().flatten() {
        match (config.get_mut(&key), said) {
            (Some(_), _) if listed => {}
            (Some(Value::Array(all)), Value::Array(more)) if key == ADDITIONAL => all.extend(more),
            (_, said) => {
                config.insert(key, said);
            }
        }
    }
    Ok(Value::Object(config))
}

pub const ADDITIONAL: &str = "additional_special_tokens";

/// The folder of a model's small files: the path itself, or where the file lies.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.to_owned(),
        false => path.parent().unwrap_or(Path::new(".")).to_owned(),
    }
}

/// The text of a special token in tokenizer_config.json: a string, or an object with "content".
pub fn token_text(v: &Value) -> Option<String> {
    v.as_str().or_else(|| v["content"].as_str()).map(str::to_owned)
}

fn special_of_folder(folder: &Path) -> Result<Special> {
    let config = token_config(folder, true)?;
    let ids = read_json(&folder.join("config.json"))?.unwrap_or_default();
    let id = |name: &str| {
        let v = ids.get(name)?;
        v.as_u64().or_else(|| v[0].as_u64()).and_then(|i| u32::try_from(i).ok())
    };
    Ok(Special {
        bos: token_text(&config["bos_token"]),
        eos: token_text(&config["eos_token"]),
        bos_id: id("bos_token_id"),
        eos_id: id("eos_token_id"),
    })
}

pub fn open(path: &Path, cache_dir: Option<&Path>) -> Result<Opened> {
    let file = tokenizer_file(path).ok_or_else(|| TextError {
        code: Code::Unsupported,
        message: format!("{}: no tokenizer.json, no tokenizer.model", path.display()),
    })?;
    let map = map_file(&file)?;
    if is_spm(&file, &map)? {
        let opened = spm::open(&map, Some(&folder_of(&file)))?;
        let model = Model::Spm { model: Box::new(opened.spm), config: opened.config, frame: opened.frame };
        return Ok(Opened { model, special: opened.special });
    }
    if gguf::is_gguf(&map) {
        let meta = Metadata::parse(&map)?;
        let hash = xxh3_128(&map[..meta.len]);
        let model = cached(cache_dir, hash, || Ok(Parsed::Bpe(gguf_vocab::read(&meta)?)))?;
        let special = Special {
            bos_id: meta.u32("tokenizer.ggml.bos_token_id"),
            eos_id: meta.u32("tokenizer.ggml.eos_token_id"),
            ..Special::default()
        };
        return Ok(Opened { model, special });
    }
    let hash = xxh3_128(&map);
    let model = cached(cache_dir, hash, || tokenizer_json::parse(&map))?;
    Ok(Opened { model, special: special_of_folder(&folder_of(&file))? })
}

/// The file itself, or a folder's: tokenizer.json says it all; a tokenizer.model needs its neighbours.
fn tokenizer_file(path: &Path) -> Option<PathBuf> {
    match path.is_dir() {
        true => ["tokenizer.json", "tokenizer.model"].iter().map(|n| path.join(n)).find(|f| f.exists()),
        false => Some(path.to_owned()),
    }
}

fn is_spm(file: &Path, bytes: &[u8]) -> Result<bool> {
    let ends = |e: &str| file.extension().is_some_and(|x| x == e);
    let is = ends("model") || !ends("json") && spm::is_model(bytes);
    match is && bytes.len() as u64 > MAX_SMALL_FILE {
        true => fail(Code::Limit, format!("{}: larger than {MAX_SMALL_FILE} bytes", file.display())),
        false => Ok(is),
    }
}

/// The tokenizer.model that this model's tokenizer comes from, if it is one.
pub fn map_spm(path: &Path) -> Result<Option<memmap2::Mmap>> {
    match tokenizer_file(path).filter(|f| f.is_file()) {
        Some(file) => {
            let map = map_file(&file)?;
            Ok(is_spm(&file, &map)?.then_some(map))
        }
        None => Ok(None),
    }
}

fn cached(cache_dir: Option<&Path>, hash: u128, parse: impl FnOnce() -> Result<Parsed>) -> Result<Model> {
    let at = cache_dir.map(|d| d.join(format!("tokenizer-{hash:032x}.bin")));
    if let Some(c) = at.as_deref().and_then(|p| Compiled::open(p, hash).ok()) {
        return Ok(Model::Compiled(c));
    }
    let source = match parse()? {
        Parsed::Other { model, config } => return Ok(Model::Crate { model, config }),
        Parsed::Bpe(source) => source,
    };
    let words = compile(source, hash)?;
    if let Some(path) = at {
        // A cache that cannot be written costs time at each start, not the start itself.
        if write_atomically(&words, &path).is_ok() {
            if let Ok(c) = Compiled::open(&path, hash) {
                return Ok(Model::Compiled(c));
            }
        }
    }
    Ok(Model::Compiled(Compiled::from_words(words)?))
}
