//! Errors of the command line and of the configuration file, with advice.

use crate::args::CommandLine;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use std::any::TypeId;
use std::error::Error;
use std::ffi::OsString;
use std::net::{AddrParseError, IpAddr};
use std::num::ParseIntError;

/// Characters per permitted edit: a word may have one wrong letter or two swapped ones, and one more for each such
/// length.
const CHARACTERS_PER_EDIT: usize = 5;
const SOCKET_ADDRESS: &str =
    "write ADDRESS:PORT, such as 127.0.0.1:9420 (an IPv6 address in brackets)";
/// Shortest beginning of an option that is taken for it.
const ABBREVIATION_BYTES_MIN: usize = 3;
/// nvme-cli's commands with another name here.
const COMMANDS: [(&str, &str); 6] = [
    ("connect", "attach"),
    ("connect-all", "attach --discover"),
    ("disconnect", "detach"),
    ("disconnect-all", "detach --all"),
    ("list-subsys", "list"),
    ("id-ctrl", "identify"),
];

/// Returns the word of `known` that is most similar to `word`, if one is similar enough.
pub(crate) fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let edits = |one: &&str| strsim::damerau_levenshtein(word, one);
    let best = known.into_iter().min_by_key(edits)?;
    let most = (word.chars().count() / CHARACTERS_PER_EDIT).max(1);
    (edits(&best) <= most).then_some(best)
}

/// Adds advice to an error that only names the problem. `arguments` are those of the process.
pub(crate) fn explained(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument {
        suggest_option(&mut error, arguments);
    }
    let text = match error.kind() {
        ErrorKind::ValueValidation => bad_value(&error),
        ErrorKind::InvalidSubcommand => other_command(&error),
        _ => None,
    };
    match text {
        Some(text) => {
            let text = format!("{text}\n\nFor more information, try '--help'.\n");
            clap::Error::raw(error.kind(), text)
        }
        None => error,
    }
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

/// Suggests the option of the command that is nearest to an unknown one, or none.
fn suggest_option(error: &mut clap::Error, arguments: &[OsString]) {
    let given = context(error, ContextKind::InvalidArg).and_then(|arg| arg.strip_prefix("--"));
    let Some(given) = given.map(|given| given.split('=').next().unwrap_or(given).to_owned()) else {
        return;
    };
    let nearest = nearest_option(&given, arguments).map(|option| format!("--{option}"));
    let was = context(error, ContextKind::SuggestedArg).map(str::to_owned);
    if was == nearest {
        return;
    }
    // The usage is that of the other option.
    error.remove(ContextKind::Usage);
    match nearest {
        Some(option) => {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(option));
        }
        None => drop(error.remove(ContextKind::SuggestedArg)),
    }
}

/// Returns the option of the command in `arguments` whose name begins with `given`, or differs in few letters.
fn nearest_option(given: &str, arguments: &[OsString]) -> Option<String> {
    let mut command = CommandLine::command();
    command.build();
    let mut command = &command;
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let options: Vec<&str> = shown.filter_map(Arg::get_long).collect();
    let whole = options.iter().copied().filter(|option| option.starts_with(given));
    let mut whole = whole.filter(|_| given.len() >= ABBREVIATION_BYTES_MIN);
    let found = match (whole.next(), whole.next()) {
        (Some(only), None) => Some(only),
        _ => closest(given, options.iter().copied()),
    };
    found.map(str::to_owned)
}

fn other_command(error: &clap::Error) -> Option<String> {
    let given = context(error, ContextKind::InvalidSubcommand)?;
    let (_, here) = COMMANDS.into_iter().find(|(word, _)| *word == given)?;
    Some(format!("there is no command {given} here: roadtrain {here} does that"))
}

fn bad_value(error: &clap::Error) -> Option<String> {
    let source = error.source()?;
    let (value, option) =
        (context(error, ContextKind::InvalidValue)?, context(error, ContextKind::InvalidArg)?);
    let hint = if source.is::<ParseIntError>() {
        number_hint(option)
    } else if source.is::<AddrParseError>() {
        address_hint(option)
    } else {
        return None;
    };
    Some(format!("invalid value '{value}' for '{option}': {hint}"))
}

/// Returns advice with the range of an option's numbers.
fn number_hint(option: &str) -> String {
    let kinds = [
        (TypeId::of::<u8>(), u64::from(u8::MAX)),
        (TypeId::of::<u16>(), u16::MAX.into()),
        (TypeId::of::<u32>(), u32::MAX.into()),
    ];
    let kind = kinds.into_iter().find(|(kind, _)| takes(option, *kind));
    let range = |(_, most)| format!("write a number from 0 to {most}");
    kind.map_or_else(|| "write a number".to_owned(), range)
}

fn address_hint(option: &str) -> String {
    let is_ip = takes(option, TypeId::of::<IpAddr>());
    if is_ip { "write an IP address".to_owned() } else { SOCKET_ADDRESS.to_owned() }
}

/// True if the option's values have that type.
fn takes(option: &str, kind: TypeId) -> bool {
    let mut command = CommandLine::command();
    command.build();
    find(&command, option).is_some_and(|arg| arg.get_value_parser().type_id() == kind)
}

/// Finds an option or parameter by its form in errors, such as `--trsvcid <PORT>`.
fn find<'a>(command: &'a Command, shown: &str) -> Option<&'a Arg> {
    let own = command.get_arguments().find(|arg| arg.to_string() == shown);
    own.or_else(|| command.get_subcommands().find_map(|sub| find(sub, shown)))
}

/// Makes an error of the configuration file readable.
pub(crate) fn readable(error: &str) -> String {
    let lines = error.lines().map(|line| {
        let unknown = line.strip_prefix("unknown field ").and_then(unknown_key);
        unknown.unwrap_or_else(|| readable_line(line))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn readable_line(line: &str) -> String {
    if line == "invalid socket address syntax" {
        return SOCKET_ADDRESS.to_owned();
    }
    let kinds = [("u8", u64::from(u8::MAX)), ("u16", u16::MAX.into()), ("u32", u32::MAX.into())];
    let kind = kinds.into_iter().find_map(|(kind, most)| {
        let what = line.strip_suffix(kind)?.strip_suffix("expected ")?;
        Some(format!("{what}expected a number from 0 to {most}"))
    });
    let plain = || line.strip_suffix("expected u64").map(|what| format!("{what}expected a number"));
    kind.or_else(plain).unwrap_or_else(|| line.to_owned())
}

/// Returns an error for an unknown key with a suggestion, from "`KEY`, expected one of `A`, `B`".
fn unknown_key(text: &str) -> Option<String> {
    let mut quoted = text.split('`').skip(1).step_by(2);
    let key = quoted.next()?;
    let closest = closest(key, quoted)?;
    Some(format!("unknown key {key}: did you mean {closest}?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn errors_say_what_to_write() {
        for (line, hint) in [
            ("serve -a h -s x -n nqn.x:y --namespace mem:1GiB", "write a number from 0 to 65535"),
            ("serve -a h -n nqn.x:y --namespace mem:1GiB --metrics 9420", SOCKET_ADDRESS),
            ("discover -a h -w x", "write an IP address"),
            ("disconnect all", "roadtrain detach does that"),
            ("connect -a h", "roadtrain attach does that"),
        ] {
            let text = error_of(line);
            assert!(text.contains(hint) && text.contains("--help"), "{line}: {text}");
        }
        let error = CommandLine::try_parse_from(["roadtrain", "serve", "--cor"]).unwrap_err();
        let (text, arguments) = (error.to_string(), words("serve --cor"));
        assert_eq!(explained(error, &arguments).to_string(), text, "it says all itself");
    }

    #[test]
    fn the_nearest_option_is_suggested_or_none() {
        for (line, option) in [
            ("serve --adress 192.0.2.7", None),
            ("serve --colour", None),
            ("serve --namespce mem:1GiB", Some("--namespace")),
            ("serve --trsvc=4420", Some("--trsvcid")),
            ("ctl host allow --hostnqm nqn.x:y", Some("--hostnqn")),
            ("serve --zzz", None),
        ] {
            let text = error_of(line);
            let suggested = text.split("a similar argument exists: '").nth(1);
            let suggested = suggested.and_then(|rest| rest.split('\'').next());
            assert_eq!(suggested, option, "{line}: {text}");
            assert!(text.contains("unexpected argument") && text.contains("--help"), "{text}");
        }
    }

    fn words(line: &str) -> Vec<OsString> {
        format!("roadtrain {line}").split(' ').map(OsString::from).collect()
    }

    fn error_of(line: &str) -> String {
        explained(CommandLine::try_parse_from(words(line)).unwrap_err(), &words(line)).to_string()
    }

    #[test]
    fn errors_of_the_file_say_what_to_write() {
        for (error, said) in [
            (
                "x\ninvalid value: integer `99999`, expected u16",
                "expected a number from 0 to 65535",
            ),
            ("invalid type: string \"x\", expected u64", "expected a number"),
            ("invalid socket address syntax", SOCKET_ADDRESS),
            (
                "unknown field `adress`, expected one of `port`, `address`, `tls`",
                "unknown key adress: did you mean address?",
            ),
            (
                "unknown field `zzz`, expected `port` or `tls`",
                "unknown field `zzz`, expected `port` or `tls`",
            ),
        ] {
            assert!(readable(error).ends_with(said), "{}", readable(error));
        }
        assert_eq!(closest("sze", ["size", "nsid"]), Some("size"));
        assert_eq!(closest("lab", ["size", "lba"]), Some("lba"));
        assert_eq!(
            closest("read_bandwith", ["read-bandwidth", "bandwidth"]),
            Some("read-bandwidth")
        );
        assert_eq!(closest("q", ["size", "nsid"]), None);
    }
}
