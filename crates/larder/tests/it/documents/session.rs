//! A shell that runs a page's commands in sequence, as a reader would.
//!
//! Variables and the current folder last from one command to the next. `larder run` and the commands of a block marked
//! `background` continue while the next ones run, as in a terminal of their own.

use super::compare::is_as_shown;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
};

/// The last of the lines that `larder run` prints when it has started.
const STARTED: &str = "  try ";

/// A running shell. Its children end with the namespace of the stage.
pub(crate) struct Session {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Where the commands and their output are written.
    folder: PathBuf,
    command_count: usize,
    /// The commands that run in the background: job and text.
    background: Vec<(String, String)>,
}

impl Session {
    /// Starts a shell in `home`, with the program under test first in its path.
    pub(crate) fn start(home: &str, folder: PathBuf) -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_larder"));
        let path = format!("{}:{home}/bin:/usr/sbin:/usr/bin:/sbin:/bin", program.parent().unwrap().display());
        let mut shell = Command::new("bash")
            .args(["--norc", "--noprofile"])
            .env_clear()
            .envs([("HOME", home), ("PATH", path.as_str()), ("PYTHONUNBUFFERED", "1"), ("LANG", "C.UTF-8")])
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = shell.stdin.take().unwrap();
        let output = BufReader::new(shell.stdout.take().unwrap());
        let mut session = Self { shell, input, output, folder, command_count: 0, background: Vec::new() };
        // Each job gets its own process group, so that it can be ended as a whole.
        session.tell("set -m; umask 022; echo ready");
        session
    }

    /// Runs a command to its end and compares its output. Returns the differences.
    pub(crate) fn run(&mut self, command: &str, expected: Option<&[String]>, should_fail: bool) -> Option<String> {
        let script = self.write_script(command);
        let code = self.tell(&format!(". {script} >{script}.out 2>&1 </dev/null; echo $?"));
        let printed = String::from_utf8_lossy(&fs::read(format!("{script}.out")).unwrap()).into_owned();
        let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
        if (code != "0") != should_fail {
            return Some(format!("$ {command}\nended with {code}:\n{printed}"));
        }
        let differs = expected.is_some_and(|expected| !is_as_shown(expected, &lines));
        differs
            .then(|| format!("$ {command}\nprinted:\n{printed}and not:\n{}", expected.unwrap_or_default().join("\n")))
    }

    /// Starts a command that continues in the background, and waits until it has printed what the page shows. Returns
    /// the differences.
    pub(crate) fn start_in_background(&mut self, command: &str, expected: Option<&[String]>) -> Option<String> {
        if is_proxy(command) {
            self.interrupt_proxy();
        }
        let script = self.write_script(command);
        let job = self.tell(&format!("mkfifo {script}.out; . {script} >{script}.out 2>&1 </dev/null & echo $!"));
        self.background.push((job, command.to_owned()));
        let mut reader = BufReader::new(File::open(format!("{script}.out")).unwrap());
        let expected = expected.filter(|lines| !lines.is_empty());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() == 0 {
                return Some(format!("$ {command}\nended before it was ready:\n{}", lines.join("\n")));
            }
            lines.push(line.trim_end().to_owned());
            let is_started = if is_proxy(command) {
                lines.last().is_some_and(|line| line.starts_with(STARTED))
            } else {
                expected.is_none_or(|expected| is_as_shown(expected, &lines))
            };
            if is_started {
                break;
            }
        }
        let differs = expected.is_some_and(|expected| !is_as_shown(expected, &lines));
        // The rest of its output is not needed, but a full pipe would block it.
        thread::spawn(move || reader.lines().map_while(Result::ok).for_each(drop));
        differs.then(|| {
            format!(
                "$ {command}\nprinted:\n{}\nand not:\n{}",
                lines.join("\n"),
                expected.unwrap_or_default().join("\n")
            )
        })
    }

    /// Presses Ctrl-C in the terminal of the last command that was started in the background.
    pub(crate) fn interrupt(&mut self) {
        let (job, _) = self.background.pop().expect("a command runs in the background");
        self.tell(&format!("kill -INT -- -{job}; wait {job}; echo ended"));
    }

    /// Ends the running proxy. A page that starts another one expects the reader to do so.
    fn interrupt_proxy(&mut self) {
        if let Some(at) = self.background.iter().position(|(_, command)| is_proxy(command)) {
            let last = self.background.remove(at);
            self.background.push(last);
            self.interrupt();
        }
    }

    fn write_script(&mut self, command: &str) -> String {
        self.command_count += 1;
        let path = self.folder.join(format!("command-{}", self.command_count));
        fs::write(&path, format!("{command}\n")).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Sends a line to the shell and returns the line that it prints.
    fn tell(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        let mut reply = String::new();
        self.output.read_line(&mut reply).unwrap();
        reply.trim_end().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Returns whether a command starts a proxy and does not end by itself.
pub(crate) fn is_proxy(command: &str) -> bool {
    let command = command.strip_prefix("sudo ").unwrap_or(command);
    (command == "larder run" || command.starts_with("larder run ")) && !command.contains("--help")
}
