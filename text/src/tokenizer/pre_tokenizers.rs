//! Lists the pre-tokenizers that GGUF files name in tokenizer.ggml.pre. They are equal to those in their models'
//! tokenizer.json. An unknown name is refused, because a wrong split gives wrong ids without any error.

use serde_json::{json, Value};

pub struct PreTokenizer {
    /// patterns, applied one after the other; each match is a piece of its own
    patterns: &'static [&'static str],
    /// true when the byte-level step uses GPT-2's own split
    use_regex: bool,
    pub nfc: bool,
    pub ignore_merges: bool,
    pub add_bos: bool,
}

const GPT2: PreTokenizer =
    PreTokenizer { patterns: &[], use_regex: true, nfc: false, ignore_merges: false, add_bos: false };

pub const DIGITS_3: &str = r"\p{N}{1,3}";
pub const LLAMA3_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub const QWEN2_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub const QWEN35_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub const O200K_SPLIT: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub const TEKKEN_SPLIT: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub const CJK_SPLIT: &str = "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";
pub const DEEPSEEK_V3_SPLIT: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// Letters that have a case, as listed in deepseek-llm. They are written as escapes, because a tool that normalizes this
/// file would change some of them.
const DEEPSEEK_LETTERS: &str =
    "\\s?[A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\
     \u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\
     \u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\
     \u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\
     \u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\
     \u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\
     \u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\
     \u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\
     \u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\
     \u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\
     \u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\
     \u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\
     \u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\
     \u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]+";
const DEEPSEEK_CJK: &str = "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+";
/// Patterns of llama.cpp for a file that names no pre-tokenizer.
const DEFAULT_SPLITS: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

const fn split(patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { patterns, use_regex: false, ..GPT2 }
}

pub fn by_name(name: &str) -> Option<PreTokenizer> {
    Some(match name {
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "mpt" | "olmo"
        | "gigachat" | "roberta-bpe" | "trillion" => GPT2,
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" => {
            PreTokenizer { ignore_merges: true, add_bos: true, ..split(&[LLAMA3_SPLIT]) }
        }
        "smaug-bpe" | "dbrx" | "glm4" | "chatglm-bpe" => split(&[LLAMA3_SPLIT]),
        "qwen2" | "deepseek-r1-qwen" | "megrez" => PreTokenizer { nfc: true, ..split(&[QWEN2_SPLIT]) },
        "qwen35" => PreTokenizer { nfc: true, ..split(&[QWEN35_SPLIT]) },
        "stablelm2" => split(&[QWEN2_SPLIT]),
        "gpt-4o" => split(&[O200K_SPLIT]),
        "llama4" => PreTokenizer { add_bos: true, ..split(&[O200K_SPLIT]) },
        "tekken" => PreTokenizer { ignore_merges: true, add_bos: true, ..split(&[TEKKEN_SPLIT]) },
        "deepseek-v3" => split(&[DIGITS_3, CJK_SPLIT, DEEPSEEK_V3_SPLIT]),
        "deepseek-llm" => split(&[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            "\\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+",
            r"\s+$",
            DEEPSEEK_CJK,
            r"\p{N}+",
        ]),
        "deepseek-coder" => split(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"]),
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" => {
            PreTokenizer { patterns: &[r"\p{N}"], ..GPT2 }
        }
        "default" => split(&DEFAULT_SPLITS),
        _ => return None,
    })
}

impl PreTokenizer {
    pub fn to_json(&self) -> Value {
        let mut steps: Vec<Value> = self
            .patterns
            .iter()
            .map(|p| json!({"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": false}))
            .collect();
        steps.push(json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": self.use_regex,
        }));
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}
