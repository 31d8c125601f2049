//! `roadtrain hostnqn`

use clap::Args;

const EXAMPLES: &str = "\
The NQN and the identifier by which targets know this host, unless --hostnqn and --hostid say
others: those of /etc/nvme/hostnqn, else made of this machine's ID, so that they stay the same. A
target that lets only named hosts in has to name this one.

Examples:
  roadtrain hostnqn
  roadtrain hostnqn --json
  roadtrain serve -a 192.0.2.1 -n nqn.2025-01.io.example:disk --namespace mem:1GiB \\
      --allow-host nqn.2014-08.org.nvmexpress:uuid:01234567-89ab-cdef-0123-456789abcdef";

/// Options of `roadtrain hostnqn`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HostnqnArgs {}
