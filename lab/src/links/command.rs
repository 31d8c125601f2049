//! The laboratory for anybody: a command at the host, another one at the target.

use super::{LinkSpeed, NamespaceLinks, SegmentWiring, unavailable};
use crate::impair::Impairment;
use crate::service::Service;
use crate::undo::Folder;
use crate::{command, interrupt};
use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Makes links between two network namespaces and runs a command at each end.
#[derive(Debug, clap::Args)]
pub(crate) struct LinksArgs {
    /// Links: interfaces lan0, lan1.. at both ends, addresses 10.77.LINK.1 (host) and .2 (target)
    #[arg(long, default_value_t = 1)]
    links: usize,
    #[arg(long, default_value_t = 9000)]
    mtu: usize,
    /// Speed of each link [default: the machine's]
    #[arg(long)]
    mbit: Option<usize>,
    /// Buffer before each shaped link
    #[arg(long, default_value_t = LinkSpeed::GIGABIT.queue_kib)]
    queue_kib: usize,
    #[command(flatten)]
    impairment: Impairment,
    /// Only this link is impaired [default: all]
    #[arg(long, value_name = "LINK")]
    impaired: Option<usize>,
    /// Runs at the target, from before the command until after it; says `ready` first
    #[arg(long, value_name = "COMMAND LINE")]
    target: Option<String>,
    /// Where the target's output goes [default: nowhere]
    #[arg(long)]
    target_log: Option<PathBuf>,
    /// End the command after so long
    #[arg(long, default_value_t = 3600.0)]
    seconds: f64,
    /// Runs at the host
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Makes a pair of ends and runs the commands.
pub(crate) fn main(args: &LinksArgs) -> anyhow::Result<()> {
    if let Some(why) = unavailable() {
        bail!("no links: {why}");
    }
    interrupt::watch();
    let speed = |mbit_per_second| LinkSpeed { mbit_per_second, queue_kib: args.queue_kib };
    let wiring = SegmentWiring {
        shape: args.mbit.map(speed),
        impairment: args.impairment,
        impaired: args.impaired,
        ..SegmentWiring::plain(args.mtu)
    };
    let links = NamespaceLinks::new(args.links, &wiring)?;
    let scratch = std::env::temp_dir().join(format!("roadtrain-links-{}", std::process::id()));
    let scratch = Folder::new(scratch)?;
    let log = args.target_log.clone().unwrap_or_else(|| scratch.path().join("target"));
    let target = args.target.as_ref().map(|line| {
        let mut command = command::words(line);
        let mut service = Service::start(links.target.enter(&mut command), &log)?;
        service.until_line("ready").map(|_| service)
    });
    let target = target.transpose().context("at the target")?;
    let mut host = Command::new(&args.command[0]);
    links.host.enter(host.args(&args.command[1..]));
    let said = command::run(&mut host, Duration::from_secs_f64(args.seconds))?;
    print!("{said}");
    drop(target);
    Ok(())
}
