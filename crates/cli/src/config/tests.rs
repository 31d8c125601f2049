//! Command lines and files, and the configurations that they produce.

use super::*;
use crate::args::{CommandLine, PolicyName, RoadtrainCommand};
use crate::namespace::NamespaceKind;
use clap::Parser;
use roadtrain_host_engine::Class;
use roadtrain_reactor::waits::WaitPolicy;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_target_engine::Export;

const EXAMPLE: &str = include_str!("../../../../examples/serve.toml");

fn flags(line: &str) -> Result<ServeConfig, CommandFailure> {
    let words = ["roadtrain", "serve", "-a", "127.0.0.1", "-n", "nqn.x:y"];
    let cli =
        CommandLine::try_parse_from(words.into_iter().chain(line.split_whitespace())).unwrap();
    let RoadtrainCommand::Serve(args) = cli.command else { unreachable!() };
    ServeConfig::from_args(&args)
}

#[test]
fn the_example_is_good() {
    let config = ServeConfig::parse(EXAMPLE).unwrap();
    assert!(config.subsystems.len() >= 2);
    let kinds: Vec<NamespaceKind> =
        config.subsystems.iter().flat_map(|s| &s.namespaces).map(|n| n.kind).collect();
    for kind in [NamespaceKind::Mem, NamespaceKind::Ssd, NamespaceKind::Null, NamespaceKind::File] {
        assert!(kinds.contains(&kind), "the example shows no {kind:?}");
    }
}

#[test]
fn flags_and_their_file_are_the_same() {
    let config = flags(
        "--namespace mem:1GiB,class=latency --namespace file:x,size=8k,lba=4k,ro --policy i10 --cores 0-1 \
         --allow-host nqn.x:h --buffers 16MiB --spin-us 20 --placement none --caravan-bytes 96KiB --no-ddgst --mptcp",
    )
    .unwrap();
    assert_eq!(config.batching.policy, PolicyName::I10);
    assert!(config.mptcp);
    assert!(config.to_toml().contains("address = \"127.0.0.1\"\n"));
    assert_eq!(ServeConfig::parse(&config.to_toml()), Ok(config));
    let several = flags("--namespace mem:4k -a ::1 -a localhost").unwrap();
    assert_eq!(several.address.0, ["127.0.0.1", "::1", "localhost"]);
    assert_eq!(ServeConfig::parse(&several.to_toml()), Ok(several));
    let example = ServeConfig::parse(EXAMPLE).unwrap();
    assert_eq!(ServeConfig::parse(&example.to_toml()), Ok(example));
}

#[test]
#[cfg_attr(not(feature = "ether"), ignore = "there is no Ethernet")]
fn addresses_and_interfaces_go_together() {
    let line = "-a ether:eth1,ether:eth2 --vlan 7 --no-data-batching --namespace mem:4k";
    let config = flags(line).unwrap();
    let ether = config.ether.clone().unwrap();
    assert_eq!(config.address.0, ["127.0.0.1"]);
    assert_eq!(ether.interfaces.0, ["eth1", "eth2"]);
    assert_eq!((ether.frames.vlan, ether.frames.packing().pieces), (Some(7), false));
    assert_eq!(ServeConfig::parse(&config.to_toml()), Ok(config));
    let mixed =
        split_transports(["a", "tcp:b", "ether:c"].map(String::from).into(), TransportName::Ether);
    assert_eq!(mixed, (vec!["a".into(), "c".into()], vec!["b".into()]));
    let head = "[[subsystem]]\nnqn = \"nqn.x:y\"\n[ether]\ninterfaces = ";
    let alone = ServeConfig::parse(&format!("{head}\"eth1\"\n")).unwrap();
    assert!(alone.address.is_empty());
    for (rest, why) in [
        ("[]", "interfaces is empty"),
        ("[\"a\", \"a\"]", "a is given twice"),
        ("\"a\"\nvlan = 4095", "4094"),
        ("\"a\"\nethertype = 12", "EtherType"),
        ("\"a\"\nport_kind = \"fast\"", "fast"),
        ("\"a\"\nvlna = 7", "vlna"),
        ("\"a\"\nport_kind = \"xdp\"\nvlan = 7", "[ether]: port_kind xdp does not go with vlan"),
        (
            "\"a\"\nseal = \"required\"",
            "ether.seal = \"required\" without a key admits no host: add a host",
        ),
    ] {
        let error = ServeConfig::parse(&format!("{head}{rest}\n")).expect_err(rest);
        assert!(error.contains(why), "{rest}\n-> {error}");
    }
    for (line, why) in [
        ("--port-kind xdp --vlan 7", "--port-kind xdp does not go with --vlan:"),
        ("--seal required", "--seal required without a key admits no host: add --dhchap-key"),
        ("-a ether:eth1", "--traddr: eth1 is given twice"),
    ] {
        let error = flags(&format!("-a ether:eth1 {line} --namespace mem:4k")).expect_err(line);
        assert!(error.message.starts_with(why), "{line}\n-> {}", error.message);
    }
}

#[test]
fn namespaces_are_numbered_around_those_that_are() {
    let config = flags("--namespace mem:4k --namespace mem:4k,nsid=1 --namespace mem:4k").unwrap();
    let nsids: Vec<_> = config.subsystems[0].namespaces.iter().map(|n| n.nsid).collect();
    assert_eq!(nsids, [Some(2), Some(1), Some(3)]);
    for (twice, why) in [("1", "exists already"), ("0", "from 1 to"), ("16385", "from 1 to")] {
        let error = flags(&format!("--namespace mem:4k,nsid=1 --namespace mem:4k,nsid={twice}"));
        assert!(error.unwrap_err().message.contains(why));
    }
}

#[test]
fn bad_files_say_where_and_why() {
    let head = "address = \"::1\"\n[[subsystem]]\nnqn = \"nqn.x:y\"\n";
    for (text, why) in [
        ("", "address"),
        ("address = []\n", "address is empty"),
        ("address = [\"::1\", \"\"]\n", "address is empty"),
        ("address = [\"::1\", \"::1\"]\n", "::1 is given twice"),
        ("address = 127\n", "or a list of them"),
        ("address = \"::1\"\n", "nothing to export"),
        ("address = \"::1\"\ncolour = 1\n", "colour"),
        ("address = \"::1\"\nport = 70000\n", "port"),
        ("address = \"::1\"\n[[subsystem]]\nnqn = \"x\"\n", "write nqn."),
        ("address = \"::1\"\n[[subsystem]]\n", "nqn"),
        (&format!("{head}[[subsystem]]\nnqn = \"nqn.x:y\"\n"), "exists already"),
        (&format!("{head}[[subsystem.namespace]]\nkind = \"mem\"\nsize = 4096\n"), "nsid"),
        (&format!("{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\n"), "size"),
        (&format!("{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"ram\"\n"), "ram"),
        (
            &format!("{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\nsize = -1\n"),
            "negative",
        ),
        (
            &format!("{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\nsize = \"1x\"\n"),
            "unit",
        ),
        (
            &format!(
                "{head}[[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\nsize = 4096\nclass = \"urgent\"\n"
            ),
            "latency",
        ),
        (&format!("{head}allow_hosts = [\"x\"]\n"), "write nqn."),
        (&format!("{head}[limits]\nqueue_size = 1\n"), "32 to 4096"),
        (&format!("{head}[limits]\nin_capsule_bytes = 100\n"), "multiple of 16"),
        (&format!("{head}[batching]\npolicy = \"fast\"\n"), "fast"),
        (&format!("{head}[batching]\ncaravan_requests = 0\n"), "1..=1024"),
        (&format!("{head}[batching]\nbatch_level_max = 0\n"), "'batch_level_max <N>'"),
        (&format!("{head}[batching]\ndata_degree = 2000\n"), "1..=1024"),
        (&format!("{head}[batching]\ncaravan_bytes = 511\n"), "512 to 1GiB"),
        (&format!("{head}[batching]\ncaravan_bytes = 0\n"), "must not be 0"),
        (&format!("{head}[batching]\ncmd_delay_us = 1000001\n"), "1000000"),
        (&format!("{head}[batching]\nbatch_gain_percent = -1\n"), "[batching]"),
        (
            &format!(
                "{head}[batching]\npolicy = \"tyche\"\nbatch_level = 4\nbatch_interval_ms = 9\n"
            ),
            "cannot be used with",
        ),
        (
            &format!("{head}[batching]\npolicy = \"tyche\"\ndoorbell_delay_us = 50\n"),
            "[batching]: doorbell_delay_us means nothing with policy tyche: leave it out, or choose policy i10",
        ),
        (&format!("{head}[batching]\ncaravan_requests = 4\n"), "policy auto"),
        (&format!("{head}[waiting]\nbusy_poll = true\nspin_us = 20\n"), "busy_poll"),
        (&format!("{head}[waiting]\nno_spin = true\nspin_us = 20\n"), "no_spin"),
        (&format!("{head}[waiting]\nno_spin = true\nbusy_poll = true\n"), "no_spin"),
        (&format!("{head}[batching]\nbatch_levle = 4\n"), "batch_levle"),
    ] {
        let error = ServeConfig::parse(text).expect_err(text);
        assert!(error.contains(why), "{text}\n-> {error}");
    }
}

#[test]
fn the_engine_gets_the_settings() {
    let text = "address = [\"127.0.0.1\", \"::1\"]\nport = 0\ncores = \"1\"\nmptcp = true\n[waiting]\nspin_us = 20\n\
        [limits]\nmax_queues = 4\nbuffers = \"8MiB\"\nno_ddgst = true\n\
        [[subsystem]]\nnqn = \"nqn.x:y\"\nallow_hosts = []\n\
        [[subsystem.namespace]]\nnsid = 3\nkind = \"file\"\npath = \"x\"\nread_only = true\n\
        class = \"bulk\"\nnguid = \"22222222222222222222222222222222\"\n";
    let config = ServeConfig::parse(text).unwrap().server().unwrap();
    assert!(config.mptcp);
    assert_eq!(config.listen, ["127.0.0.1:0", "[::1]:0"].map(|a| a.parse().unwrap()));
    assert_eq!((config.cores, config.pool_bytes), (vec![1], 8 << 20));
    assert_eq!(config.limits.io_queues_max, 4);
    assert_eq!(config.digests, Digests { header: true, data: false });
    assert_eq!(config.waiting, WaitPolicy::Spin(std::time::Duration::from_micros(20)));
    let subsystem = &config.subsystems[0];
    assert_eq!(subsystem.allowed_hosts, Some(Default::default()), "an empty list allows no host");
    let kind = StoreKind::File { path: "x".into(), size: None, create: false };
    let store = StoreSpec { kind, lba_bytes: 512, read_only: true };
    let class = Some(Class::Bulk);
    assert_eq!(
        subsystem.namespaces,
        [Export { nguid: Some([0x22; 16]), class, ..Export::new(3, store) }]
    );
}

/// A secured subsystem needs hosts with keys, and each listener may have its own use of TLS.
#[test]
fn any_host_and_secure_exclude_each_other() {
    const KEY: &str = "[[host]]\nnqn = \"nqn.x:h\"\ndhchap_key = \"h\"\n";
    const KEYS: &str =
        "[tls.keys]\n\"nqn.x:h\" = \"h.tls\"\n[[host]]\nnqn = \"nqn.x:h\"\ndhchap_key = \"h\"\n";
    let file = |listeners: &str, subsystem: &str, keys: &str| {
        let text = format!("{listeners}\n{keys}\n[[subsystem]]\nnqn = \"nqn.x:y\"\n{subsystem}\n");
        ServeConfig::parse(&text)
    };
    let plain = "[[listener]]\naddress = \"127.0.0.1\"\n";
    let secure = "[[listener]]\naddress = \"127.0.0.2\"\nport = 4421\ntls = \"required\"\n";
    let both = &format!("{plain}{secure}");
    let allowed = &secure.replace("required", "allowed");
    for (listeners, subsystem, keys, wrong) in [
        (secure, "", "", Some("name the hosts and their keys")),
        (both, "require_auth = true", "", Some("name the hosts and their keys")),
        (plain, "require_auth = true", "", Some("without a key admits no host")),
        (plain, "require_tls = true", KEYS, Some("no listener has TLS")),
        (
            secure,
            "allow_hosts = [\"nqn.x:g\"]",
            KEYS,
            Some("nqn.x:g, which may use it, has no key for TLS"),
        ),
        (
            plain,
            "require_auth = true\nallow_hosts = [\"nqn.x:g\"]",
            KEYS,
            Some("for authentication"),
        ),
        (both, "allow_hosts = [\"nqn.x:g\"]", KEYS, None),
        (both, "require_tls = true\nrequire_auth = true\nallow_hosts = [\"nqn.x:h\"]", KEYS, None),
        (secure, "", KEYS, None),
        // A host's key for authentication generates one for TLS where plain connections are accepted, too.
        (allowed, "require_tls = true\nallow_hosts = [\"nqn.x:h\"]", KEY, None),
        (secure, "", "[tls]\nkeyring = \".nvme\"\n", None),
        (allowed, "", "", Some("name the hosts and their keys")),
        (secure, "", KEY, Some("name the hosts and their keys")),
        (allowed, "require_tls = true\nallow_hosts = [\"nqn.x:g\"]", KEY, Some("no key for TLS")),
    ] {
        let parsed = file(listeners, subsystem, keys);
        match wrong {
            None => assert!(parsed.is_ok(), "{parsed:?}"),
            Some(wrong) => assert!(parsed.as_ref().unwrap_err().contains(wrong), "{parsed:?}"),
        }
    }
    let config = file(both, "", KEYS).unwrap();
    let at = config.tls_at().unwrap();
    assert_eq!(at, [("127.0.0.2:4421".parse().unwrap(), TlsUse::Required)].into());
    assert_eq!(config.addresses().unwrap().len(), 2);
    assert_eq!(
        ServeConfig::parse(&config.to_toml()).unwrap(),
        config,
        "it is written as it is read"
    );
    let flags =
        flags("--namespace mem:4k -a ::1,::2 --tls required --tls-key nqn.x:h=f --tls-at ::1=off");
    let at = flags.unwrap().tls_at().unwrap();
    assert_eq!(at, [("[::1]:4420".parse().unwrap(), TlsUse::Off)].into());
    let other = |tls| file(&secure.replace("required", tls), "", KEYS).unwrap();
    assert_eq!(other("required").needs_restart(&other("allowed")), [""; 0]);
}

#[test]
fn reload_knows_what_it_cannot_change() {
    let old = flags("--namespace mem:4k").unwrap();
    let grown = flags("--namespace mem:8k --allow-host nqn.x:h").unwrap();
    assert_eq!(old.needs_restart(&grown), [""; 0]);
    assert_eq!(old.needs_restart(&flags("--namespace mem:4k -a ::1 -s 4421").unwrap()), [""; 0]);
    for (line, keys) in [
        ("--policy i10", &["batching"][..]),
        ("--log-level debug", &["log_level"]),
        ("--mptcp", &["mptcp"]),
        ("--rpc r --state s --lvstore v=v", &["lvstore", "rpc", "state"]),
    ] {
        let new = flags(&format!("--namespace mem:4k {line}")).unwrap();
        assert_eq!(old.needs_restart(&new), keys, "{line}");
    }
}

/// Combines the management settings of a file with options.
fn managed(file: &str, line: &str) -> Result<ServeConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("serve.toml");
    std::fs::write(&path, file).unwrap();
    let words = ["roadtrain", "serve", "--config", path.to_str().unwrap()];
    let cli =
        CommandLine::try_parse_from(words.into_iter().chain(line.split_whitespace())).unwrap();
    let RoadtrainCommand::Serve(args) = cli.command else { unreachable!() };
    ServeConfig::from_args(&args).map_err(|failure| failure.message)
}

#[test]
fn management_is_of_the_file_and_options_win() {
    let file = "rpc = \"r\"\nstate = \"s\"\nrpc_http = \"127.0.0.1:8000\"\nrpc_credentials = \"c\"\n\
                [[lvstore]]\nname = \"a\"\npath = \"/a\"\nsize = \"1GiB\"\n\
                [[lvstore]]\nname = \"b\"\npath = \"/b\"\nlba = 4096\n";
    let plain = managed(file, "").unwrap();
    assert_eq!((plain.rpc.clone(), plain.state.clone()), (Some("r".into()), Some("s".into())));
    assert_eq!(plain.lvstores[0].size, Some(1 << 30));
    assert_eq!(ServeConfig::parse(&plain.to_toml()), Ok(plain), "it is written as it is read");
    let line = "--rpc own --state kept --rpc-http [::1]:1 --rpc-credentials d --lvstore b=/other --lvstore c=/c";
    let own = managed(file, line).unwrap();
    assert_eq!((own.rpc.clone(), own.state.clone()), (Some("own".into()), Some("kept".into())));
    assert_eq!(
        (own.rpc_http, own.rpc_credentials.clone()),
        ("[::1]:1".parse().ok(), Some("d".into()))
    );
    let stores: Vec<_> = own.lvstores.iter().map(|one| one.path.to_str().unwrap()).collect();
    assert_eq!(stores, ["/a", "/other", "/c"]);
    assert_eq!(ServeConfig::parse(&own.to_toml()), Ok(own));
    // A file without management settings and exports can be managed by options.
    assert!(managed("port = 1", "").is_err());
    for line in ["--rpc r", "--state s", "--lvstore a=/a"] {
        assert_eq!(managed("port = 1", line).unwrap().port, 1, "{line}");
    }
}

#[test]
fn management_that_makes_no_sense_says_why() {
    let store = "[[lvstore]]\nname = \"a\"\npath = \"/a\"\n";
    for (file, line, why) in [
        ("rpc_http = \"127.0.0.1:1\"", "", "needs rpc_credentials"),
        ("rpc = \"r\"\nrpc_credentials = \"c\"", "", "is for rpc_http"),
        ("rpc = \"r\"\nrpc_http_anywhere = true", "", "is for rpc_http"),
        (&format!("rpc = \"r\"\n{store}lba = 1024"), "", "lba is 512 or 4096"),
        (&format!("rpc = \"r\"\n{store}{store}"), "", "a name of its own"),
        (&format!("rpc = \"r\"\n{store}sise = 1"), "", "sise"),
        ("rpc = \"r\"", "--rpc-http 127.0.0.1:1", "--rpc-http needs --rpc-credentials"),
    ] {
        let error = managed(file, line).expect_err(file);
        assert!(error.contains(why), "{file}: {error}");
    }
}

/// The package's configuration is valid, and its socket is the default of `roadtrain ctl`.
#[test]
fn the_configuration_of_the_service_is_managed_here() {
    let text = include_str!("../../../../packaging/serve.toml");
    let config = ServeConfig::parse(text).unwrap();
    assert_eq!(config.rpc.as_deref(), Some(Path::new("/run/roadtrain-serve/rpc.sock")));
    assert!(config.state.is_some() && config.rpc_http.is_none(), "nothing listens over HTTP");
    let unit = include_str!("../../../../systemd/roadtrain-serve.service");
    assert!(unit.contains("ROADTRAIN_RUNTIME_DIR=/run/roadtrain-serve\n"));
    // The prepared settings in its comments are valid, too.
    let prepared =
        text.replace("# file_roots", "file_roots").replace("# [[lvstore]]", "[[lvstore]]");
    let prepared = prepared.replace("# name =", "name =").replace("# path =", "path =");
    let prepared = ServeConfig::parse(&prepared.replace("# size =", "size =")).unwrap();
    assert_eq!((prepared.file_roots.len(), prepared.lvstores.len()), (1, 1));
}

#[cfg(not(feature = "ether"))]
mod without_ethernet {
    use super::ServeConfig;
    use crate::args::{CommandLine, RoadtrainCommand};
    use clap::{CommandFactory, Parser};

    const REASON: &str = "built without Ethernet";

    #[test]
    fn ethernet_is_refused_with_the_reason() {
        let file = "[ether]\ninterfaces = \"eth1\"\n[[subsystem]]\nnqn = \"nqn.x:y\"\n";
        let error = ServeConfig::parse(file).expect_err("there is no Ethernet");
        assert!(error.contains(REASON), "{error}");
        for line in ["-t ether -a eth1", "-a ether:eth1"] {
            let words = format!("roadtrain serve {line} -n nqn.x:y --namespace mem:4k");
            let cli = CommandLine::try_parse_from(words.split_whitespace()).unwrap();
            let RoadtrainCommand::Serve(args) = cli.command else { unreachable!() };
            let error = ServeConfig::from_args(&args).expect_err("there is no Ethernet");
            assert!(error.message.contains(REASON), "{}", error.message);
        }
    }

    #[test]
    fn help_does_not_mention_it() {
        let mut command = CommandLine::command();
        command.build();
        for sub in command.get_subcommands_mut() {
            let help = sub.render_long_help().to_string().to_lowercase();
            assert!(!help.contains("-t ether") && !help.contains("ethernet"), "{help}");
        }
    }
}

/// Errors about keys of a file name no option.
#[test]
fn errors_of_a_file_name_its_keys() {
    let plain = "address = \"::1\"\n[[subsystem]]\nnqn = \"nqn.x:y\"\n";
    let namespace = |rest: &str| format!("{plain}[[subsystem.namespace]]\nnsid = 1\n{rest}\n");
    let table = |rest: &str| format!("{plain}{rest}\n");
    for (text, why) in [
        (table("[limits]\nbuffers = 1024"), "limits.buffers = 1 KiB: write 4 MiB"),
        (table("[limits]\nqueue_size = 7"), "limits.queue_size = 7: write 32 to 4096"),
        (table("[limits]\nin_capsule_bytes = 24"), "limits.in_capsule_bytes must be a multiple"),
        (table("[waiting]\nspin_us = 200000"), "waiting.spin_us = 200000"),
        (format!("log_level = \"x\"\n{plain}"), "log_level = \"x\" is not one of"),
        (table("[batching]\npolicy = \"none\"\nbatch_level = 3"), "batch_level means nothing"),
        (plain.replace("::1", ""), "address is empty: write address = \"127.0.0.1\""),
        (table("[tls]\nmode = \"required\""), "by [tls.keys] or tls.keyring"),
        (table("[tls]\nmode = \"allowed\"\nkeys = { x = \"f\" }"), "tls.keys: "),
        (table("[authentication]\nrequired = true"), "authentication.required without a key"),
        (table("[authentication]\ngroups = [\"null\"]"), "authentication.groups without a key"),
        (table("[[host]]\nnqn = \"nqn.x:h\"\ndhchap_ctrl_key = \"k\""), "add its dhchap_key"),
        (namespace("kind = \"mem\""), "mem needs a size: write size = \"1GiB\""),
        (namespace("kind = \"file\""), "file needs a path: write path = \"disk.img\""),
        (namespace("kind = \"mem\"\nsize = 4096\npath = \"x\""), "mem has no path: leave path out"),
        (namespace("kind = \"mem\"\nsize = 4096\nlba = 7"), "lba = 7 is not a block size"),
        (namespace("kind = \"mem\"\nsize = 4096\nservice_us = 7"), "service_us and parallel are"),
        (namespace("kind = \"ssd\"\nsize = 4096\nparallel = 0"), "parallel = 0: use 1"),
        (namespace("kind = \"ssd\"\nsize = 4096\nservice_us = 2000000"), "service_us = 2000000:"),
        (
            namespace("kind = \"rbd\"\nimage = \"x\""),
            "'x' is no image: write image = \"POOL/IMAGE\"",
        ),
        (namespace("kind = \"rbd\"\nimage = \"a/b\"\ncreate = 0"), "create = 0 is no image"),
        (
            namespace("kind = \"mem\"\nsize = 4096\nrates = { read_iops = 0 }"),
            "rates: read_iops = 0 lets nothing through",
        ),
        (
            table("host_rates = { \"nqn.x:h\" = { write_bandwidth = 0 } }"),
            "host_rates of nqn.x:h: write_bandwidth = 0 lets",
        ),
    ] {
        let error = ServeConfig::parse(&text).expect_err(&text);
        assert!(error.contains(why) && !error.contains("--"), "{text}\n-> {error}");
        assert!(!error.contains("service-us") && !error.contains("lba="), "{error}");
    }
    let plain = ServeConfig::parse(&table("[ana]\nether = \"optimized\"")).unwrap();
    assert!(plain.ana_states().unwrap_err().message.starts_with("ana: ether:"));
    let keyed = "[tls]\nmode = \"required\"\nkeyring = \"/nowhere/k\"\nkeys = { \"nqn.x:h\" = \"/nowhere/h\" }";
    for (text, why) in [
        (table(keyed), "tls.keys: /nowhere/h"),
        (table(&keyed[..keyed.find("keys =").unwrap()]), "tls.keyring: /nowhere/k"),
        (
            table("[[host]]\nnqn = \"nqn.x:h\"\ndhchap_key = \"/nowhere/h\""),
            "dhchap_key of host nqn.x:h: /nowhere/h",
        ),
    ] {
        let error = ServeConfig::parse(&text).unwrap().server().unwrap_err().message;
        assert!(error.starts_with(why), "{text}\n-> {error}");
    }
}

/// Errors about options name no key.
#[test]
fn errors_of_the_command_line_name_options() {
    for (line, why) in [
        ("--buffers 1k", "--buffers 1 KiB: write 4 MiB"),
        ("--in-capsule-bytes 24", "--in-capsule-bytes must be a multiple"),
        ("--max-h2c-data 4097", "--max-h2c-data must be a multiple"),
        ("-a ::1 -a ::1", "--traddr: ::1 is given twice"),
        ("--tls required", "by --tls-key HOSTNQN=FILE or --keyring"),
        ("--tls required --tls-key x=f", "--tls-key: "),
        ("--require-auth", "--require-auth without a key admits no host: add --dhchap-key"),
        ("--dhchap-hash sha256", "--dhchap-hash without a key"),
        ("--dhchap-dhgroup null", "--dhchap-dhgroup without a key"),
        ("--dhchap-ctrl-key nqn.x:h=f", "add its --dhchap-key"),
        ("--dhchap-key x=f", "--dhchap-key: "),
        (
            "--require-auth --dhchap-key nqn.x:h=f --allow-host nqn.x:g",
            "has no key for authentication (--dhchap-key)",
        ),
        (
            "--tls required --tls-key nqn.x:h=f --allow-host nqn.x:g",
            "has no key for TLS (--tls-key)",
        ),
        ("--policy none --batch-level 3", "--batch-level means nothing"),
        ("--rpc-http 127.0.0.1:1", "--rpc-http needs --rpc-credentials"),
        ("--rpc r --rpc-credentials c", "--rpc-credentials is for --rpc-http"),
        ("--tls-at ::2=off", "--tls-at: ::2"),
    ] {
        let error = flags(&format!("--namespace mem:1MiB {line}")).expect_err(line).message;
        assert!(error.contains(why) && !error.contains('_'), "{line}\n-> {error}");
    }
    for (line, why) in [
        ("--tls required --tls-key nqn.x:h=/nowhere/h", "--tls-key: /nowhere/h"),
        ("--tls required --keyring /nowhere/k", "--keyring: /nowhere/k"),
        ("--dhchap-key nqn.x:h=/nowhere/h", "--dhchap-key of host nqn.x:h: /nowhere/h"),
        ("--ana ether=optimized", "--ana: ether:"),
    ] {
        let config = flags(&format!("--namespace mem:1MiB {line}")).expect(line);
        let error = config.server().expect_err(line).message;
        assert!(error.starts_with(why), "{line}\n-> {error}");
    }
    for (word, why) in [
        ("mem:1MiB,lba=7", "lba=7 is not"),
        ("ssd:1MiB,parallel=0", "parallel=0: use 1"),
        ("mem:1MiB,service-us=1", "service-us and parallel"),
        ("mem:1MiB,read-iops=0", "read-iops=0 lets"),
        ("rbd:x", "write rbd:POOL/IMAGE"),
    ] {
        let error = word.parse::<crate::namespace::NamespaceSettings>().unwrap_err();
        assert!(error.contains(why), "{word}\n-> {error}");
    }
    let none = RateArgs { read_iops: Some(0), ..RateArgs::default() };
    assert!(none.rates().unwrap_err().starts_with("--read-iops 0 lets"));
}

/// A file's keys that options have set are named as these.
#[test]
fn an_option_that_wins_over_a_key_is_named() {
    let store = "[[lvstore]]\nname = \"a\"\npath = \"\"\n";
    for (file, line, why) in [
        ("rpc_http = \"127.0.0.1:1\"", "", "rpc_http needs rpc_credentials"),
        ("", "--rpc-http 127.0.0.1:1", "--rpc-http needs --rpc-credentials"),
        ("rpc_credentials = \"c\"", "--rpc r", "rpc_credentials is for rpc_http"),
        ("", "--rpc r --rpc-credentials c", "--rpc-credentials is for --rpc-http"),
        (store, "--rpc r", "lvstore a: each has"),
    ] {
        let error = managed(file, line).expect_err(line);
        assert!(error.contains(&format!("serve.toml: {why}")), "{file} {line}\n-> {error}");
    }
}
