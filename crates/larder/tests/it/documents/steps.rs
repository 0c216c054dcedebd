//! The commands of a console block, each with the output that the page shows below it.

use super::fences::Fence;

/// One thing that the reader does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Types a command. `None` means that the page shows no output.
    Command { text: String, output: Option<Vec<String>> },
    /// Presses Ctrl-C where a command runs.
    Interrupt,
}

/// Returns the steps of a console block.
///
/// If the block has prompts (`$ `), lines after `> ` continue a command and all others are output. Without prompts,
/// every line is a command, and a backslash at its end continues it.
pub(crate) fn steps(block: &Fence) -> Vec<Step> {
    if block.lines.iter().any(|line| line.starts_with("$ ")) { with_prompts(block) } else { without_prompts(block) }
}

fn with_prompts(block: &Fence) -> Vec<Step> {
    let mut steps = Vec::new();
    for line in &block.lines {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step::Command { text: command.to_owned(), output: Some(Vec::new()) });
            continue;
        }
        match steps.last_mut() {
            _ if line.trim() == "^C" => steps.push(Step::Interrupt),
            Some(Step::Command { text, output: Some(output) }) => match line.strip_prefix('>') {
                Some(more) if output.is_empty() => *text += &format!("\n{}", more.strip_prefix(' ').unwrap_or(more)),
                _ => output.push(block.without_varying_numbers(line)),
            },
            _ => panic!("line {}: output before the first command: {line}", block.line),
        }
    }
    steps
}

fn without_prompts(block: &Fence) -> Vec<Step> {
    let joined = block.text().replace("\\\n", " ");
    let commands = joined.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    commands.map(|line| Step::Command { text: line.to_owned(), output: None }).collect()
}

#[test]
fn prompts_tell_commands_from_their_output() {
    let parse = |text: &str| {
        let mut found = super::fences::fences(&format!("```console\n{text}\n```"));
        steps(&found.remove(0))
    };
    let command = |text: &str, output: &[&str]| Step::Command {
        text: text.to_owned(),
        output: Some(output.iter().map(|&line| line.to_owned()).collect()),
    };
    assert_eq!(
        parse("$ a\nb\n$ cat <<X\n> y\n> X\n^C"),
        [command("a", &["b"]), command("cat <<X\ny\nX", &[]), Step::Interrupt]
    );
    let bare = |text: &str| Step::Command { text: text.to_owned(), output: None };
    assert_eq!(parse("a \\\n  b\n\nc # d"), [bare("a    b"), bare("c # d")]);
}
