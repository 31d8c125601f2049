//! Upgrade: a target starts the program anew, and the new process takes over. The program's file may have been
//! replaced.

use super::served::{RunningTarget, lock};
use crate::control::socket::PendingReply;
use crate::control::{ChangesReply, ControlRefusal, HostVisibleChange, RefusalReason};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::{env, io, thread};
use tracing::info;

/// Suffix that the kernel adds to the path of a replaced program.
const REPLACED: &[u8] = b" (deleted)";

/// Starts the new process. The reply is sent when that process serves, or has failed.
pub(super) fn begin(served: &Arc<RunningTarget>, reply: PendingReply) {
    let mut reply = Some(reply);
    let begun = start_process(served, &mut reply);
    if let (Err(refusal), Some(reply)) = (begun, reply) {
        let _ = reply.send(Err(refusal));
    }
}

fn start_process(
    served: &Arc<RunningTarget>,
    reply: &mut Option<PendingReply>,
) -> Result<(), ControlRefusal> {
    let failed = |error: io::Error| ControlRefusal::new(RefusalReason::Failed, error);
    let mut waiting = lock(&served.upgrade_caller);
    if waiting.is_some() {
        return Err(ControlRefusal::new(
            RefusalReason::Exists,
            "a new process is starting already",
        ));
    }
    let mut child = start(served.id()).map_err(failed)?;
    info!(pid = child.id(), "a new process is started to take over");
    *waiting = reply.take();
    drop(waiting);
    let served = served.clone();
    let watch = move || watch(&served, &mut child);
    thread::Builder::new().name("roadtrain-wait".into()).spawn(watch).map_err(failed)?;
    Ok(())
}

/// Reports to the caller that the new process serves.
pub(super) fn done(served: &RunningTarget, pid: u32) {
    let Some(caller) = lock(&served.upgrade_caller).take() else { return };
    let what = format!("process {pid} serves");
    let change = HostVisibleChange { what, nqn: None, nsid: None, address: None };
    let _ = caller.send(Ok(json!(ChangesReply { changes: vec![change], hint: None })));
}

/// Waits for the new process; if it ends while this one exists, it has failed.
fn watch(served: &RunningTarget, child: &mut Child) {
    let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    let Some(caller) = lock(&served.upgrade_caller).take() else { return };
    let message = format!(
        "the new process has ended ({ended}), and the old one serves: the log has the reason"
    );
    let _ = caller.send(Err(ControlRefusal::new(RefusalReason::Failed, message)));
}

fn start(id: Option<String>) -> io::Result<Child> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    Command::new(without_mark(env::current_exe()?))
        .args(with_takeover(arguments, id))
        .env_remove("WATCHDOG_PID") // the variable has this process's ID
        .stdin(Stdio::null())
        .spawn()
}

fn without_mark(program: PathBuf) -> PathBuf {
    let name = program.into_os_string().into_vec();
    let end = name.strip_suffix(REPLACED).map_or(name.len(), <[u8]>::len);
    PathBuf::from(OsString::from_vec(name[..end].to_vec()))
}

/// Returns the same command line with a takeover from the target with that name.
fn with_takeover(mut arguments: Vec<OsString>, id: Option<String>) -> Vec<OsString> {
    arguments.retain(|argument| argument != "--takeover");
    let is_id = |argument: &OsString| {
        argument == OsStr::new("--id") || argument.as_bytes().starts_with(b"--id=")
    };
    if let Some(id) = id.filter(|_| !arguments.iter().any(is_id)) {
        arguments.extend(["--id".into(), id.into()]);
    }
    arguments.push("--takeover".into());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_takes_over_from_this_target() {
        let line = |text: &str, id: Option<&str>| {
            let arguments = text.split(' ').map(OsString::from).collect();
            let made = with_takeover(arguments, id.map(str::to_owned));
            made.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(line("serve -a ::1", Some("target0")), "serve -a ::1 --id target0 --takeover");
        assert_eq!(line("serve --takeover --id=x", Some("x")), "serve --id=x --takeover");
        assert_eq!(line("serve --id x", Some("x")), "serve --id x --takeover");
        assert_eq!(line("serve", None), "serve --takeover");
    }

    #[test]
    fn a_program_that_was_replaced_is_the_new_one() {
        for name in ["/usr/local/bin/roadtrain", "/usr/local/bin/roadtrain (deleted)"] {
            assert_eq!(without_mark(name.into()), PathBuf::from("/usr/local/bin/roadtrain"));
        }
    }
}
