//! A process that does not outlive this one, whatever ends it.

use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// Informed of each process as it begins and ends, by `+ id` and `- id`; at the end of its input,
/// which comes with the end of this process, it ends those that are left. It heeds no signal that
/// may have ended this one.
const WARDEN: &str = r#"
trap '' INT TERM HUP
ids=' '
while read -r sign id; do
  case $sign in
  +) ids="$ids$id " ;;
  -) ids="${ids%% $id *} ${ids#* $id }" ;;
  esac
done
[ "$ids" = ' ' ] || kill -9 $ids
"#;

/// A running process. It ends when this is dropped, and when this process ends.
pub struct Process(Child);

impl Process {
    /// Starts a command.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let process = Self(command.spawn()?);
        inform_warden('+', process.id());
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
        inform_warden('-', self.id());
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

fn inform_warden(sign: char, id: u32) {
    static WARDEN_INPUT: OnceLock<Mutex<ChildStdin>> = OnceLock::new();
    let input = WARDEN_INPUT.get_or_init(|| {
        let warden = Command::new("sh")
            .args(["-c", WARDEN])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let input = warden.expect("a shell").stdin.take();
        Mutex::new(input.expect("its input"))
    });
    let mut input = input.lock().unwrap_or_else(|broken| broken.into_inner());
    // One write, so that the line is whole wherever this process ends.
    let written = input.write_all(format!("{sign} {id}\n").as_bytes());
    written.expect("the warden listens");
}
