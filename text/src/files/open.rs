//! Opens a model's files. Only regular files are opened, and small files have a size limit.

use crate::base::error::{fail, invalid, io, Code, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Size limit of a small file in bytes (Gemma's tokenizer_config.json has 1.2 MB).
pub const MAX_SMALL_FILE: u64 = 64 << 20;
pub fn map_file(path: &Path) -> Result<memmap2::Mmap> {
    // The file's type is checked before the file is opened, because opening a FIFO would wait for a writer.
    if !std::fs::metadata(path).map_err(|e| io(path.display(), e))?.is_file() {
        return Err(invalid(format!("{} is not a regular file", path.display())));
    }
    let file = File::open(path).map_err(|e| io(path.display(), e))?;
    if file.metadata().map_err(|e| io(path.display(), e))?.len() == 0 {
        return Err(invalid(format!("{} is empty", path.display())));
    }
    // SAFETY: model files must not change while they are read. Only the operator can truncate one.
    unsafe { memmap2::Mmap::map(&file) }.map_err(|e| io(path.display(), e))
}

pub fn read_small(path: &Path) -> Result<Option<String>> {
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io(path.display(), e)),
        Ok(m) if !m.is_file() => return Err(invalid(format!("{} is not a regular file", path.display()))),
        Ok(m) if m.len() > MAX_SMALL_FILE => {
            return fail(Code::Limit, format!("{} is larger than {MAX_SMALL_FILE} bytes", path.display()))
        }
        Ok(_) => {}
    }
    std::fs::read_to_string(path).map(Some).map_err(|e| io(path.display(), e))
}

/// Returns the folder of a model's small files: the path itself when it is a folder, else its parent folder.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.to_owned(),
        false => path.parent().unwrap_or(Path::new(".")).to_owned(),
    }
}
