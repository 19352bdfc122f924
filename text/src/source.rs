//! From a path to a model: finds the file, hashes what the tokenizer depends on, maps the compiled
//! form from the cache or makes it. Special tokens' names come from the small files beside it.

use crate::compiled::{compile, write_atomically, Compiled};
use crate::error::{fail, invalid, io, Code, Result};
use crate::gguf::{self, Metadata};
use crate::gguf_vocab;
use crate::spm::{self, Frame, Spm};
use crate::tokenizer_json::{self, Parsed};
use serde_json::Value;
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

/// Small JSON files are not read beyond this (tokenizer_config.json of Gemma has 1.2 MB).
const MAX_SMALL_FILE: u64 = 64 << 20;

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

pub fn read_json(path: &Path) -> Result<Option<Value>> {
    match read_small(path)? {
        None => Ok(None),
        Some(text) => {
            serde_json::from_str(&text).map(Some).map_err(|e| invalid(format!("{}: {e}", path.display())))
        }
    }
}

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
    let mut special = Special::default();
    for name in ["tokenizer_config.json", "special_tokens_map.json"] {
        if let Some(v) = read_json(&folder.join(name))? {
            special.bos = special.bos.or_else(|| token_text(&v["bos_token"]));
            special.eos = special.eos.or_else(|| token_text(&v["eos_token"]));
        }
    }
    if let Some(v) = read_json(&folder.join("config.json"))? {
        let id = |v: &Value| v.as_u64().or_else(|| v[0].as_u64()).and_then(|i| u32::try_from(i).ok());
        special.bos_id = id(&v["bos_token_id"]);
        special.eos_id = id(&v["eos_token_id"]);
    }
    Ok(special)
}

pub fn open(path: &Path, cache_dir: Option<&Path>) -> Result<Opened> {
    let file = match path.is_dir() {
        true => tokenizer_of_folder(path)?,
        false => path.to_owned(),
    };
    let map = map_file(&file)?;
    let ends = |e: &str| file.extension().is_some_and(|x| x == e);
    if ends("model") || !ends("json") && spm::is_model(&map) {
        return open_spm(&file, &map);
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

/// tokenizer.json says it all; a tokenizer.model needs its neighbours.
fn tokenizer_of_folder(folder: &Path) -> Result<PathBuf> {
    let names = ["tokenizer.json", "tokenizer.model"];
    match names.iter().map(|n| folder.join(n)).find(|f| f.exists()) {
        Some(file) => Ok(file),
        None => {
            fail(Code::Unsupported, format!("{}: no tokenizer.json, no tokenizer.model", folder.display()))
        }
    }
}

fn open_spm(file: &Path, bytes: &[u8]) -> Result<Opened> {
    if bytes.len() as u64 > MAX_SMALL_FILE {
        return fail(Code::Limit, format!("{}: larger than {MAX_SMALL_FILE} bytes", file.display()));
    }
    let opened = spm::open(bytes, Some(&folder_of(file)))?;
    let model = Model::Spm { model: Box::new(opened.spm), config: opened.config, frame: opened.frame };
    Ok(Opened { model, special: opened.special })
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
