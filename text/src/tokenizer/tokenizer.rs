//! Holds one opened tokenizer: the pipeline of the tokenizers crate over a compiled model (or that crate's own model),
//! the table of added tokens, the special ids, and the rule for streaming. The tokenizer is immutable after opening.

use super::borders::Borders;
use super::bpe::{self, AnyModel};
use super::compiled::Compiled;
use super::fast::Fast;
use super::pipeline::Pipeline;
use super::source;
use crate::base::error::{fail, invalid, not_valid, Code, Result, TextError};
use crate::spm::Frame;
use crate::vocab::pieces::{Pieces, Start};
use crate::vocab::table::{MAX_ID, NONE};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper};

/// Holds a token that the compiled table lacks, or has with another text.
struct Added {
    bytes: Box<[u8]>,
    special: bool,
}

pub struct Tokenizer {
    /// pipeline of the tokenizers crate; None for "builtin:bytes"
    pub pipeline: Option<Pipeline>,
    compiled: Option<Arc<Compiled>>,
    added: HashMap<u32, Added>,
    /// control pieces of a tokenizer.model: special, unless added tokens say otherwise
    controls: HashSet<u32>,
    /// raw bytes by id, when the model is the tokenizers crate's own
    crate_bytes: Vec<Option<Box<[u8]>>>,
    pub pieces: Pieces,
    n_ids: u32,
    max_token_bytes: usize,
    /// text parts that are added around a text; only for a tokenizer.model
    frame: Option<Frame>,
    /// fast path to ids, when it is known to give the same ids; made for the first text
    fast: OnceLock<Option<Fast>>,
    /// places for cuts; made for the first text that is far longer than its limit
    borders: OnceLock<Option<Borders>>,
    pub bos: u32,
    pub eos: u32,
}

pub const BYTES: &str = "builtin:bytes";
const BYTES_SPECIAL: [&str; 3] = ["<bos>", "<eos>", "<pad>"];
/// Longest accepted text in bytes: positions are kept in 32 bits.
const MAX_TEXT: usize = 1 << 30;
/// Number of bytes per allowed id above which a text is probed from its beginning. Most texts have half as many bytes for
/// each id.
const PROBE_BYTES_PER_ID: usize = 8;
const PROBE_MIN: usize = 1 << 16;

fn crate_error(e: tokenizers::Error) -> TextError {
    TextError { code: Code::Invalid, message: e.to_string() }
}

/// Returns the ids of a text, or None when there are more than max_ids.
fn within(p: &Pipeline, text: &str, add_special: bool, max_ids: usize) -> Result<Option<Vec<u32>>> {
    bpe::set_budget(max_ids);
    let encoded = p.encode_fast(text, add_special);
    bpe::set_budget(usize::MAX);
    match encoded {
        Ok(e) => Ok((e.get_ids().len() <= max_ids).then(|| e.get_ids().to_vec())),
        Err(e) if e.to_string() == bpe::OVER_BUDGET => Ok(None),
        Err(e) => Err(crate_error(e)),
    }
}

impl Tokenizer {
    pub fn open(path: &str, cache_dir: Option<&Path>) -> Result<Tokenizer> {
        if path == BYTES {
            return Ok(Self::bytes());
        }
        let opened = source::open(Path::new(path), cache_dir)?;
        let mut t = match opened.model {
            source::Model::Compiled(c) => {
                let config = c.config().to_owned();
                Self::assemble(AnyModel::Compiled(Arc::new(c)), &config)?
            }
            source::Model::Crate { model, config } => {
                let model =
                    serde_json::from_str(&model).map_err(|e| not_valid("the model in tokenizer.json", e))?;
                Self::assemble(AnyModel::Crate(Box::new(model)), &config)?
            }
            source::Model::Spm { model, config, frame } => {
                let mut t = Self::assemble(AnyModel::Spm(model), &config)?;
                t.frame = Some(frame);
                t
            }
        };
        let id = |name: Option<String>, number: Option<u32>| {
            name.map(|n| t.token_id(&n))
                .filter(|&i| i != NONE)
                .or(number.filter(|&i| i < t.n_ids))
                .unwrap_or(NONE)
        };
        let (bos, eos) =
            (id(opened.special.bos, opened.special.bos_id), id(opened.special.eos, opened.special.eos_id));
        (t.bos, t.eos) = (bos, eos);
        Ok(t)
    }

    fn bytes() -> Tokenizer {
        let added = |text: &str| Added { bytes: text.as_bytes().into(), special: true };
        Tokenizer {
            pipeline: None,
            compiled: None,
            added: (256..).zip(BYTES_SPECIAL).map(|(id, t)| (id, added(t))).collect(),
            controls: HashSet::new(),
            crate_bytes: (0..=255u8).map(|b| Some(Box::from([b]))).collect(),
            pieces: Pieces::ByteLevel,
            n_ids: 259,
            max_token_bytes: 1,
            frame: None,
            fast: OnceLock::new(),
            borders: OnceLock::new(),
            bos: 256,
            eos: 257,
        }
    }

    fn assemble(model: AnyModel, config: &str) -> Result<Tokenizer> {
        #[derive(serde::Deserialize)]
        struct Config {
            normalizer: Option<NormalizerWrapper>,
            pre_tokenizer: Option<PreTokenizerWrapper>,
            post_processor: Option<PostProcessorWrapper>,
            decoder: Option<DecoderWrapper>,
            added_tokens: Vec<AddedToken>,
        }
        let pieces = Pieces::of_config(config)?;
        let c: Config =
            serde_json::from_str(config).map_err(|e| not_valid("the tokenizer configuration", e))?;
        let compiled = match &model {
            AnyModel::Compiled(c) => Some(c.clone()),
            AnyModel::Crate(_) | AnyModel::Spm(_) => None,
        };
        let controls = match &model {
            AnyModel::Spm(m) => m.controls().collect(),
            AnyModel::Compiled(_) | AnyModel::Crate(_) => HashSet::new(),
        };
        let mut pipeline = Pipeline::new(model);
        pipeline.with_normalizer(c.normalizer).map_err(crate_error)?;
        pipeline
            .with_pre_tokenizer(c.pre_tokenizer)
            .with_post_processor(c.post_processor)
            .with_decoder(c.decoder);
        pipeline.add_tokens(c.added_tokens).map_err(crate_error)?;

        let mut added = HashMap::new();
        let vocabulary = pipeline.get_added_vocabulary();
        for &id in vocabulary.get_added_tokens_decoder().keys() {
            let text = vocabulary.simple_id_to_token(id).unwrap_or_default();
            let special = vocabulary.is_special_token(&text);
            let mut bytes = Vec::new();
            pieces.append_bytes(&text, &mut bytes);
            added.insert(id, Added { bytes: bytes.into(), special });
        }
        let top_added = added.keys().max().map_or(0, |id| id + 1);
        let (mut crate_bytes, mut longest) = (Vec::new(), 0);
        let n_ids = match &compiled {
            Some(c) => {
                longest = c.max_text();
                c.n_ids().max(top_added)
            }
            None => {
                for (text, id) in pipeline.get_vocab(false) {
                    if id >= MAX_ID {
                        return Err(invalid(format!("token id {id} is too large")));
                    }
                    let mut bytes = Vec::new();
                    pieces.append_bytes(&text, &mut bytes);
                    longest = longest.max(text.len());
                    if crate_bytes.len() <= id as usize {
                        crate_bytes.resize(id as usize + 1, None);
                    }
                    crate_bytes[id as usize] = Some(bytes.into());
                }
                (crate_bytes.len() as u32).max(top_added)
            }
        };
        longest = added.values().map(|a| a.bytes.len()).max().unwrap_or(0).max(longest).max(1);
        let (pipeline, max_token_bytes) = (Some(pipeline), longest);
        Ok(Tokenizer {
            pipeline,
            compiled,
            added,
            controls,
            crate_bytes,
            pieces,
            n_ids,
            max_token_bytes,
            frame: None,
            fast: OnceLock::new(),
            borders: OnceLock::new(),
            bos: NONE,
            eos: NONE,
        })
    }

    pub fn vocab_size(&self) -> u32 {
        self.n_ids
    }

    pub fn token_id(&self, text: &str) -> u32 {
        match &self.pipeline {
            Some(p) => p.token_to_id(text).unwrap_or(NONE),
            None if text.len() == 1 => u32::from(text.as_bytes()[0]),
            None => (256..).zip(BYTES_SPECIAL).find(|(_, t)| *t == text).map_or(NONE, |(id, _)| id),
        }
    }

    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        if let Some(a) = self.added.get(&id) {
            return Some(&a.bytes);
        }
        match &self.compiled {
            Some(c) => c.bytes(id),
            None => self.crate_bytes.get(id as usize)?.as_deref(),
        }
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.added.get(&id).map_or_else(|| self.controls.contains(&id), |a| a.special)
    }

    /// Returns true when a token's bytes and `start` are enough to decode it, without its neighbours.
    pub fn streams_by_bytes(&self) -> bool {
        !matches!(self.pieces, Pieces::Other)
    }

    pub fn start(&self) -> Start {
        self.pieces.start()
    }

    pub fn encode(&self, text: &str, add_special: bool, max_ids: usize) -> Result<Vec<u32>> {
        self.encode_by(text, add_special, max_ids, true)
    }

    /// Encodes a text. With `fast`, the fast path is used if the tokenizer has one.
    pub fn encode_by(&self, text: &str, add_special: bool, max_ids: usize, fast: bool) -> Result<Vec<u32>> {
        let over = || fail(Code::Limit, format!("the text is longer than {max_ids} tokens"));
        // Normalizers may shorten a text (NFC), but never to an eighth. Such a text is refused without running the
        // normalizers.
        if text.len() > MAX_TEXT || text.len() / 8 / self.max_token_bytes > max_ids {
            return over();
        }
        let Some(p) = &self.pipeline else {
            if text.len() > max_ids {
                return over();
            }
            return Ok(text.bytes().map(u32::from).collect());
        };
        if self.begins_with_more(p, text, max_ids) {
            return over();
        }
        let short = match &self.compiled {
            Some(c) if fast => {
                let short = self.fast.get_or_init(|| Fast::new(c, p));
                short.as_ref().and_then(|f| f.encode(c, text, add_special, max_ids))
            }
            _ => None,
        };
        if let Some(ids) = short {
            return ids.map_or_else(over, Ok);
        }
        let ids = match &self.frame {
            None => within(p, text, add_special, max_ids)?,
            Some(f) => within(p, &f.before(text), false, max_ids.saturating_add(1))?
                .map(|ids| f.after(text, ids, add_special))
                .filter(|ids| ids.len() <= max_ids),
        };
        match ids {
            Some(ids) => Ok(ids),
            None => over(),
        }
    }

    /// Returns true when the beginning of the text alone has more ids than allowed. The rest is then not encoded, because
    /// the pipeline uses about 60 bytes for each byte of its text. The beginning is doubled each time, because a text may
    /// begin with long tokens.
    fn begins_with_more(&self, p: &Pipeline, text: &str, max_ids: usize) -> bool {
        let mut take = max_ids.saturating_mul(PROBE_BYTES_PER_ID).max(PROBE_MIN);
        let most = text.len() / 4 * 3;
        if take > most {
            return false;
        }
        let Some(borders) = self.borders(p) else { return false };
        if borders.least_ids(text) > max_ids {
            return true;
        }
        // The cut at the end of the beginning changes a few ids at most, through the pre-tokenizer's pattern.
        let limit = max_ids.saturating_add(max_ids / 8 + 16);
        while take <= most {
            let begin = borders.before(text, take).map_or("", |cut| &text[..cut]);
            if matches!(within(p, begin, false, limit), Ok(None)) {
                return true;
            }
            take *= 2;
        }
        false
    }

    fn borders(&self, p: &Pipeline) -> Option<&Borders> {
        let make = || {
            let added: Vec<_> =
                p.get_added_vocabulary().get_added_tokens_decoder().values().cloned().collect();
            match p.get_model() {
                AnyModel::Compiled(c) => Borders::new(c, &self.pieces, &added),
                AnyModel::Spm(m) => Borders::of_spm(m, &added),
                AnyModel::Crate(_) => None,
            }
        };
        self.borders.get_or_init(make).as_ref()
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        if let Some(p) = &self.pipeline {
            // The pipeline skips only added tokens, so control pieces are removed here.
            let shown: Vec<u32>;
            let ids = match skip_special && !self.controls.is_empty() {
                true => {
                    shown = ids.iter().copied().filter(|&id| !self.is_special(id)).collect();
                    &shown
                }
                false => ids,
            };
            return p.decode(ids, skip_special).map_err(crate_error);
        }
        let mut bytes = Vec::with_capacity(ids.len());
        for &id in ids.iter().filter(|&&id| !(skip_special && self.is_special(id))) {
            bytes.extend_from_slice(self.token_bytes(id).unwrap_or_default());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
