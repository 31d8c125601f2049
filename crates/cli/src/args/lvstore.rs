//! `--lvstore NAME=DIRECTORY,size=SIZE,lba=N`, and `[[lvstore]]` of a configuration file: a store of volumes.

use crate::units::{parse_size, size_field};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

/// A store of volumes in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LvStoreArg {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// Its quota in bytes.
    #[serde(default, with = "size_field", skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Block size of its volumes in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lba: Option<u32>,
}

impl FromStr for LvStoreArg {
    type Err = String;

    fn from_str(text: &str) -> Result<LvStoreArg, String> {
        let hint = "write NAME=DIRECTORY,size=SIZE, such as vols=/srv/vols,size=1TiB";
        let (name, rest) = text.split_once('=').ok_or(hint)?;
        let mut parts = rest.split(',');
        let path = parts.next().filter(|path| !path.is_empty() && !name.is_empty()).ok_or(hint)?;
        let mut spec = LvStoreArg { name: name.into(), path: path.into(), size: None, lba: None };
        for part in parts {
            match part.split_once('=') {
                Some(("size", size)) if spec.size.is_none() => spec.size = Some(parse_size(size)?),
                Some(("lba", "512")) if spec.lba.is_none() => spec.lba = Some(512),
                Some(("lba", "4096" | "4k" | "4KiB")) if spec.lba.is_none() => {
                    spec.lba = Some(4096)
                }
                _ => {
                    return Err(format!(
                        "'{part}' is no option of a store: {hint}; lba is 512 or 4096"
                    ));
                }
            }
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_read() {
        let spec: LvStoreArg = "vols=/srv/v,size=1GiB,lba=4096".parse().unwrap();
        let (path, size) = ("/srv/v".into(), Some(1 << 30));
        assert_eq!(spec, LvStoreArg { name: "vols".into(), path, size, lba: Some(4096) });
        assert_eq!("a=b".parse::<LvStoreArg>().unwrap().size, None);
        for bad in
            ["", "a", "a=", "=b", "a=b,size", "a=b,size=x", "a=b,lba=1k", "a=b,size=1,size=2"]
        {
            assert!(bad.parse::<LvStoreArg>().is_err(), "{bad}");
        }
    }
}
