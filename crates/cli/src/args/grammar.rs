//! One grammar for the whole command line: an option of several commands has one letter, one value name and one help
//! text. The text begins with the same sentence; a command's peculiarities follow.

use super::CommandLine;
use clap::{Arg, Command, CommandFactory};
use std::collections::{BTreeMap, BTreeSet};

/// Letters with the options that they stand for. Letters of host options are nvme-cli's.
const LETTERS: [(char, &str); 20] = [
    ('C', "dhchap-ctrl-secret"),
    ('G', "ddgst"),
    ('I', "hostid"),
    ('Q', "queue-size"),
    ('S', "dhchap-secret"),
    ('a', "traddr"),
    ('c', "reconnect-delay"),
    ('f', "host-iface"),
    ('g', "hdgst"),
    ('i', "lanes"),
    ('k', "keep-alive-tmo"),
    ('l', "ctrl-loss-tmo"),
    ('m', "hmac"),
    ('n', "nqn"),
    ('o', "output"),
    ('q', "hostnqn"),
    ('s', "trsvcid"),
    ('t', "transport"),
    ('v', "verbose"),
    ('w', "host-traddr"),
];

/// Letters with another meaning in some commands: command, letter, option, reason.
const OTHER_LETTERS: [(&str, char, &str, &str); 2] = [
    ("keys", 's', "secret", "as in nvme gen-dhchap-key and gen-tls-key, which have no port"),
    ("top", 'a', "metrics", "as --traddr of other commands, for processes elsewhere; hidden"),
];

/// Names of values, each with its unit or form.
const VALUES: [(&str, &str); 45] = [
    ("ACTION", "a word, or its number in the specification"),
    ("ADDRESS", "an IP address, a name, or interfaces"),
    ("ADDRESS:PORT", "an IP address with a port"),
    ("ADDRESS=WHEN", "a listener with its use of TLS"),
    ("CHANGE", "a word, or its number in the specification"),
    ("CLASS", "latency, normal or bulk"),
    ("DIRECTORY", "a path"),
    ("FILE", "a path"),
    ("FILE|KEY", "a path or a key"),
    ("FRONT-END", "nbd:.., fuse:.., ublk.., vhost-user:.."),
    ("GROUP", "a Diffie-Hellman group"),
    ("HASH", "a hash"),
    ("HEX", "bytes in hexadecimal"),
    ("ID", "the name of a target or an attachment"),
    ("IDENTITY", "the identity of a PSK"),
    ("INTERFACE", "a network interface"),
    ("KEY", "a key, its name, or its file"),
    ("KEYRING", "a keyring of the kernel or a file"),
    ("KIND", "a kind of port"),
    ("LEVEL", "a log level"),
    ("LIST", "cores"),
    ("MIN-MAX", "two numbers"),
    ("MODE", "inline or queue"),
    ("MS", "milliseconds"),
    ("N", "a number"),
    ("NAME", "a name"),
    ("NAME=DIRECTORY[,..]", "a store of volumes"),
    ("NAME[=FILE]", "a name, with a file"),
    ("NQN", "an NQN"),
    ("PERCENT", "a percentage"),
    ("POLICY", "a policy of paths"),
    ("POOL", "a pool of a Ceph cluster"),
    ("PORT", "a TCP port"),
    ("SECONDS", "a time, in seconds without a unit"),
    ("SIZE", "bytes, with a binary unit"),
    ("SPEC", "a word with options"),
    ("STATE", "an ANA state"),
    ("TEXT", "a text"),
    ("TIME", "a time with a unit, or a word"),
    ("TRANSPORT", "tcp or ether"),
    ("TYPE", "a type of reservation"),
    ("US", "microseconds"),
    ("UUID", "a UUID"),
    ("WHAT", "a word of several"),
    ("WHEN", "a word: never, always, or in between"),
];

/// An option of a command.
struct CommandOption {
    /// Words of the command, without the program's name.
    command: String,
    long: String,
    letter: Option<char>,
    hidden_letters: Vec<char>,
    value: Option<String>,
    help: String,
    /// Default that clap knows, and shows itself.
    has_default: bool,
    aliases: Vec<String>,
}

impl CommandOption {
    fn new(command: &str, arg: &Arg) -> Option<CommandOption> {
        let names = arg.get_value_names().unwrap_or_default();
        Some(CommandOption {
            command: command.to_owned(),
            long: arg.get_long()?.to_owned(),
            letter: arg.get_short(),
            hidden_letters: arg.get_all_short_aliases().unwrap_or_default(),
            value: arg
                .get_action()
                .takes_values()
                .then(|| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            has_default: arg.get_action().takes_values() && !arg.get_default_values().is_empty(),
            aliases: arg
                .get_all_aliases()
                .unwrap_or_default()
                .into_iter()
                .map(String::from)
                .collect(),
        })
    }

    /// Returns the first sentence of the help, without the default.
    fn first_sentence(&self) -> &str {
        let help = self.help.split(" [default").next().unwrap_or_default();
        help.split(". ").next().unwrap_or_default().trim_end_matches('.')
    }

    /// Returns the option's name for messages.
    fn name(&self) -> String {
        format!("{} --{}", self.command, self.long)
    }
}

fn all_letters(option: &CommandOption) -> impl Iterator<Item = char> {
    option.letter.into_iter().chain(option.hidden_letters.iter().copied())
}

/// Returns every option of every command, at all depths. An option of a command and all its subcommands appears once.
fn options() -> Vec<CommandOption> {
    fn collect(
        command: &Command,
        words: &str,
        above: &BTreeSet<String>,
        options: &mut Vec<CommandOption>,
    ) {
        let own = || command.get_arguments().filter(|arg| !above.contains(arg.get_id().as_str()));
        options.extend(own().filter_map(|arg| CommandOption::new(words, arg)));
        let mut above = above.clone();
        above.extend(own().filter(|arg| arg.is_global_set()).map(|arg| arg.get_id().to_string()));
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            collect(sub, format!("{words} {}", sub.get_name()).trim(), &above, options);
        }
    }
    let mut command = CommandLine::command();
    command.build();
    let mut options = Vec::new();
    // clap's own texts differ with the length of a command's help.
    let of_clap = ["help", "version"].map(str::to_owned);
    collect(&command, "", &of_clap.into(), &mut options);
    assert!(options.len() > 300, "only {} options were found", options.len());
    options
}

/// Groups options by name, where several commands have one.
fn shared() -> BTreeMap<String, Vec<CommandOption>> {
    let mut shared = BTreeMap::<String, Vec<CommandOption>>::new();
    for option in options() {
        shared.entry(option.long.clone()).or_default().push(option);
    }
    shared.retain(|_, all| all.len() > 1);
    assert!(shared.len() > 60, "only {} options are shared", shared.len());
    shared
}

/// Fails with all that is wrong: a change of the grammar shows all its consequences at once.
fn assert_none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_option_of_several_commands_is_one_option() {
    let mut wrong = Vec::new();
    for (long, all) in shared() {
        let letter = |option: &CommandOption| option.letter;
        if all.iter().map(letter).collect::<BTreeSet<_>>().len() > 1 {
            let letters = all.iter().map(|one| format!("\n    {}: {:?}", one.command, one.letter));
            wrong.push(format!("--{long} has several letters:{}", letters.collect::<String>()));
        }
        if all.iter().map(|option| &option.value).collect::<BTreeSet<_>>().len() > 1 {
            let values = all.iter().map(|one| format!("\n    {}: {:?}", one.command, one.value));
            wrong.push(format!("--{long} has several values:{}", values.collect::<String>()));
        }
        let texts: BTreeSet<&str> = all.iter().map(CommandOption::first_sentence).collect();
        if texts.len() > 1 {
            let texts =
                all.iter().map(|one| format!("\n    {}: {}", one.command, one.first_sentence()));
            wrong.push(format!("--{long} has several help texts:{}", texts.collect::<String>()));
        }
    }
    assert_none(wrong);
}

#[test]
fn a_letter_is_one_option_everywhere() {
    let letters = BTreeMap::from(LETTERS);
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    let all = options();
    let of_option = |option| all_letters(option).map(move |letter| (option, letter));
    for (option, letter) in all.iter().flat_map(of_option) {
        used.insert(letter);
        let is_other = |(command, other, long, _): &&(&str, char, &str, &str)| {
            option.command.starts_with(command) && (*other, *long) == (letter, &option.long)
        };
        if letters.get(&letter) != Some(&option.long.as_str())
            && !OTHER_LETTERS.iter().any(|other| is_other(&other))
        {
            wrong.push(format!(
                "-{letter} is {}, and elsewhere {:?}",
                option.name(),
                letters.get(&letter)
            ));
        }
    }
    assert_none(wrong);
    assert_eq!(used, letters.into_keys().collect(), "letters of the table that nothing has");
    for (command, letter, long, _) in OTHER_LETTERS {
        let has = |option: &CommandOption| {
            option.command.starts_with(command)
                && option.long == long
                && all_letters(option).any(|one| one == letter)
        };
        assert!(all.iter().any(has), "{command} -{letter} is not there");
    }
}

#[test]
fn values_have_one_name_for_each_unit() {
    let values = BTreeMap::from(VALUES);
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for option in options() {
        let Some(value) = &option.value else { continue };
        match values.get_key_value(value.as_str()) {
            Some((known, _)) => drop(used.insert(*known)),
            None => wrong.push(format!("{} takes {value}", option.name())),
        }
    }
    assert_none(wrong);
    assert_eq!(used, values.into_keys().collect(), "values of the table that nothing has");
}

#[test]
fn defaults_stand_in_brackets_at_the_end() {
    let mut wrong = Vec::new();
    for option in options() {
        let help = &option.help;
        let is_said = help.contains("default");
        if is_said && option.has_default {
            wrong.push(format!("{} has its default twice: {help}", option.name()));
        }
        if is_said
            && !(help.matches("default").count() == 1
                && help.contains(" [default: ")
                && help.ends_with(']'))
        {
            wrong.push(format!("{} has its default elsewhere: {help}", option.name()));
        }
    }
    assert_none(wrong);
}

#[test]
fn an_alias_is_no_other_option() {
    let all = options();
    let names: BTreeSet<&str> = all.iter().map(|option| option.long.as_str()).collect();
    let mut meanings = BTreeMap::<&str, BTreeSet<&str>>::new();
    let mut wrong = Vec::new();
    for option in &all {
        for alias in &option.aliases {
            meanings.entry(alias).or_default().insert(&option.long);
            if names.contains(alias.as_str()) {
                wrong.push(format!(
                    "{} is also called --{alias}, which is an option",
                    option.name()
                ));
            }
        }
    }
    let several = meanings.into_iter().filter(|(_, options)| options.len() > 1);
    wrong.extend(several.map(|(alias, options)| format!("--{alias} means {options:?}")));
    assert_none(wrong);
}
