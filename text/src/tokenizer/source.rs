//! Opens a model's tokenizer from a path. It finds the file, hashes the bytes that the tokenizer depends on, and maps the
//! compiled form from the cache or makes it. The names of special tokens come from the small files beside the tokenizer.

use super::compiled::{compile, write_atomically, Compiled};
use super::gguf_vocab;
use super::tokenizer_json::{self, Parsed};
use crate::base::error::{fail, Code, Result, TextError};
use crate::files::gguf::{self, Metadata};
use crate::files::open::{folder_of, map_file, MAX_SMALL_FILE};
use crate::files::token_config::{read_json, token_config, token_text, Special};
use crate::spm::{self, Frame, Spm};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

pub enum Model {
    Compiled(Compiled),
    Crate { model: String, config: String },
    Spm { model: Box<Spm>, config: String, frame: Frame },
}

pub struct Opened {
    pub model: Model,
    pub special: Special,
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
        message: format!("the folder {} has neither tokenizer.json nor tokenizer.model", path.display()),
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

/// Returns the path itself when it is a file, or else the tokenizer's file in the folder. tokenizer.json is preferred,
/// because it is complete, while a tokenizer.model needs the files beside it.
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
        true => fail(Code::Limit, format!("{} is larger than {MAX_SMALL_FILE} bytes", file.display())),
        false => Ok(is),
    }
}

/// Maps the tokenizer.model of this model, if the model has one as its tokenizer.
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
        // A cache that cannot be written costs time at each start, but does not make the start fail.
        if write_atomically(&words, &path).is_ok() {
            if let Ok(c) = Compiled::open(&path, hash) {
                return Ok(Model::Compiled(c));
            }
        }
    }
    Ok(Model::Compiled(Compiled::from_words(words)?))
}
