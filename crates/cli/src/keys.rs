//! `roadtrain keys`: generates keys, checks them, and shows derived values.

pub(crate) mod authentication;
pub(crate) mod file;
pub(crate) mod keyring;

use crate::args::{DhchapKeyArgs, GlobalArgs, KeysArgs, KeysCommand, ShowKeyArgs, TlsKeyArgs};
use crate::failure::{CommandFailure, CommandResult};
use crate::identity::check_nqn;
use crate::output;
use roadtrain_proto::security::{
    Derivation, DhchapKey, Hash, IdentityVersion, KeyError, Secret, Suite, TlsKey,
};
use serde::Serialize;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use zeroize::Zeroizing;

/// Runs `roadtrain keys`.
pub(crate) fn run(args: &KeysArgs, global: &GlobalArgs) -> CommandResult {
    match &args.command {
        KeysCommand::Tls(args) => tls(args, global),
        KeysCommand::Dhchap(args) => dhchap(args, global),
        KeysCommand::Show(args) => show(args, global),
    }
}

/// A key's line, as JSON.
#[derive(Serialize)]
struct NewKey<'a> {
    key: &'a str,
}

fn tls(args: &TlsKeyArgs, global: &GlobalArgs) -> CommandResult {
    let hash = args.hmac.hash();
    let secret = bytes(args.secret.as_deref(), hash.bytes())?;
    let key = TlsKey::new(Some(hash), &secret).map_err(wrong_secret)?;
    print_key(&key.print(), global)
}

/// Generates a random key for TLS.
pub(crate) fn new_tls_key() -> CommandResult<TlsKey> {
    let secret = bytes(None, Hash::Sha256.bytes())?;
    TlsKey::new(Some(Hash::Sha256), &secret).map_err(wrong_secret)
}

/// Generates a random key for authentication.
///
/// # Errors
/// No random bytes are available.
pub(crate) fn new_dhchap_key() -> CommandResult<DhchapKey> {
    let hash = Hash::Sha256;
    DhchapKey::new(Some(hash), &bytes(None, hash.bytes())?).map_err(wrong_secret)
}

fn dhchap(args: &DhchapKeyArgs, global: &GlobalArgs) -> CommandResult {
    let hash = args.hmac.hash();
    let secret = bytes(args.secret.as_deref(), hash.map_or(32, Hash::bytes))?;
    let mut key = DhchapKey::new(hash, &secret).map_err(wrong_secret)?;
    if let Some(nqn) = args.hostnqn.as_ref().or(args.nqn.as_ref()) {
        check_nqn(nqn).map_err(CommandFailure::usage)?;
        key = DhchapKey::new(hash, key.transform(nqn).reveal()).map_err(wrong_secret)?;
    }
    print_key(&key.print(), global)
}

fn print_key(key: &str, global: &GlobalArgs) -> CommandResult {
    if global.json { output::json(&NewKey { key }) } else { output::line(key) }
}

fn wrong_secret(error: KeyError) -> CommandFailure {
    CommandFailure::usage(format!("--secret: {error}"))
}

/// Parses the secret, or returns random bytes.
fn bytes(secret: Option<&str>, count: usize) -> CommandResult<Zeroizing<Vec<u8>>> {
    let Some(text) = secret else {
        let mut bytes = Zeroizing::new(vec![0; count]);
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        return Ok(bytes);
    };
    let bad = || CommandFailure::usage("--secret: write bytes in hexadecimal, two digits each");
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for at in (0..text.len()).step_by(2) {
        bytes.push(u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| bad())?);
    }
    Ok(bytes)
}

/// A key, and values derived from it.
#[derive(Serialize)]
struct ShownKey {
    /// Purpose of the key.
    kind: &'static str,
    /// Its hash.
    hash: Option<String>,
    /// The identity of the PSK.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    /// The cipher suite of the PSK.
    #[serde(skip_serializing_if = "Option::is_none")]
    suite: Option<&'static str>,
    /// The PSK.
    #[serde(skip_serializing_if = "Option::is_none")]
    psk: Option<String>,
    /// The key transformed for the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    host_secret: Option<String>,
    /// The key transformed for the subsystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    controller_secret: Option<String>,
}

impl ShownKey {
    fn new(kind: &'static str, hash: Option<Hash>) -> Self {
        ShownKey {
            kind,
            hash: hash.map(|hash| hash.to_string()),
            identity: None,
            suite: None,
            psk: None,
            host_secret: None,
            controller_secret: None,
        }
    }

    /// Formats the output: derived values, one a line, or that the key is valid.
    fn text(&self) -> String {
        let secrets = [&self.psk, &self.host_secret, &self.controller_secret];
        let derived = [&self.identity].into_iter().chain(secrets).flatten();
        let lines: Vec<&str> = derived.map(String::as_str).collect();
        if lines.is_empty() {
            let hash = self.hash.as_deref().unwrap_or("no hash");
            return format!("a valid key for {}, {hash}", self.kind);
        }
        lines.join("\n")
    }
}

fn show(args: &ShowKeyArgs, global: &GlobalArgs) -> CommandResult {
    for nqn in [&args.hostnqn, &args.nqn].into_iter().flatten() {
        check_nqn(nqn).map_err(CommandFailure::usage)?;
    }
    let line = file::line("KEY", &args.key)?;
    let wrong =
        |error: KeyError| CommandFailure::usage(format!("{}: {error}", file::name(&args.key)));
    let shown = if line.starts_with("DHHC-1") {
        show_dhchap(&DhchapKey::parse(&line).map_err(wrong)?, args)
    } else {
        show_tls(&TlsKey::parse(&line).map_err(wrong)?, args)?
    };
    if global.json { output::json(&shown) } else { output::line(&shown.text()) }
}

fn show_tls(key: &TlsKey, args: &ShowKeyArgs) -> CommandResult<ShownKey> {
    let mut shown = ShownKey::new("TLS", key.hash());
    let (hostnqn, subnqn) = match (&args.hostnqn, &args.nqn) {
        (Some(hostnqn), Some(subnqn)) => (hostnqn, subnqn),
        (None, None) if !args.reveal => return Ok(shown),
        _ => {
            return Err(CommandFailure::usage(
                "a PSK is derived for --hostnqn and --nqn: give both",
            ));
        }
    };
    let version = if args.identity == 0 { IdentityVersion::V0 } else { IdentityVersion::V1 };
    let psk = key.tls_psk_by(hostnqn, subnqn, Derivation { version, compat: args.compat });
    shown.suite = Some(match psk.suite {
        Suite::Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
        Suite::Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
    });
    shown.psk = args.reveal.then(|| hex(&psk.psk));
    shown.identity = Some(psk.identity);
    Ok(shown)
}

fn show_dhchap(key: &DhchapKey, args: &ShowKeyArgs) -> ShownKey {
    let secret = |nqn: &Option<String>| {
        let nqn = nqn.as_ref().filter(|_| args.reveal)?;
        Some(hex(&key.transform(nqn)))
    };
    let mut shown = ShownKey::new("authentication", key.hash());
    (shown.host_secret, shown.controller_secret) = (secret(&args.hostnqn), secret(&args.nqn));
    shown
}

fn hex(secret: &Secret) -> String {
    let mut text = String::with_capacity(secret.reveal().len() * 2);
    for byte in secret.reveal() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
