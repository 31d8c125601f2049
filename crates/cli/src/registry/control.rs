//! A line to the process that keeps an attachment, and a line of JSON back.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};
use tracing::debug;

/// Asks for the status.
pub(crate) const STATUS: &str = "status";
/// Asks the process to end.
pub(crate) const STOP: &str = "stop";

/// Longest question.
const QUESTION_BYTES_MAX: u64 = 256;
/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How long an asker may take to ask and to listen: the next one waits.
const ASKER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// Answers questions on a thread of its own, as long as the process lives. The socket is for this user only.
/// `answer` may keep the asker's stream, to say more later.
///
/// # Errors
/// The socket cannot be made.
pub(crate) fn serve(
    socket: &Path,
    answer: impl Fn(&str, &UnixStream) -> String + Send + 'static,
) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    let serve = move || {
        for stream in listener.incoming() {
            match stream.and_then(|stream| serve_one(stream, &answer)) {
                Ok(()) => {}
                Err(error) => {
                    debug!("control socket: {error}");
                    thread::sleep(Duration::from_millis(10)); // out of descriptors, perhaps
                }
            }
        }
    };
    thread::Builder::new().name("roadtrain-ask".into()).spawn(serve)?;
    Ok(())
}

fn serve_one(
    mut stream: UnixStream,
    answer: &impl Fn(&str, &UnixStream) -> String,
) -> io::Result<()> {
    stream.set_read_timeout(Some(ASKER_TIMEOUT))?;
    stream.set_write_timeout(Some(ASKER_TIMEOUT))?;
    let mut question = String::new();
    BufReader::new(&stream).take(QUESTION_BYTES_MAX).read_line(&mut question)?;
    let answer = answer(question.trim(), &stream);
    stream.write_all(answer.as_bytes())
}

/// Asks the process behind `socket`.
///
/// # Errors
/// Nobody is there, or does not answer in time.
pub(crate) fn ask(socket: &Path, question: &str) -> io::Result<String> {
    let mut answer = String::new();
    begin(socket, question)?.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Asks the process behind `socket` to end; [`last_words`] has what it says when it does.
///
/// # Errors
/// Nobody is there.
pub(crate) fn ask_to_stop(socket: &Path) -> io::Result<UnixStream> {
    begin(socket, STOP)
}

/// What a process that has ended has said since it was asked to: line by line, after its first answer.
pub(crate) fn last_words(stream: UnixStream) -> Vec<String> {
    let mut said = Vec::new();
    // What came before a reset counts, too.
    let _ = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut said);
    String::from_utf8_lossy(&said).lines().skip(1).map(str::to_owned).collect()
}

fn begin(socket: &Path, question: &str) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    writeln!(stream, "{question}")?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_to_this_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        serve(&socket, |question, _| format!("you said {question}")).unwrap();
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ask(&socket, STATUS).unwrap(), "you said status");
        let _silent = UnixStream::connect(&socket).unwrap();
        assert_eq!(ask(&socket, "x").unwrap(), "you said x", "whoever says nothing is left");
        let long = ask(&socket, &"x".repeat(100_000));
        assert!(long.is_err() || long.unwrap().len() < 1000, "no more is read than a question");
    }

    #[test]
    fn last_words_come_after_the_answer() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let kept = std::sync::Mutex::new(Vec::new());
        let answer = move |_: &str, asker: &UnixStream| {
            kept.lock().unwrap().push(asker.try_clone().unwrap());
            if kept.lock().unwrap().len() == 2 {
                let mut first = kept.lock().unwrap().remove(0);
                first.write_all(b"\nall is lost\nand more\n").unwrap();
            }
            "stopping".into()
        };
        serve(&socket, answer).unwrap();
        let first = ask_to_stop(&socket).unwrap();
        let _second = ask_to_stop(&socket).unwrap();
        assert_eq!(last_words(first), ["all is lost", "and more"]);
    }
}
