//! Words of commands that people paste into a shell.
//!
//! A command that is printed for people to run holds names that others have made: of tags, users, stores. In single
//! quotes a shell takes every character as it is; in double quotes, or in Rust's, it runs what is between backticks.

use std::fmt;

/// A text as one word of a POSIX shell: `$`, backticks, quotes, spaces and line ends in it are nothing but text.
///
/// It is one argument to any program. Whether that program takes it for a flag is up to the command: `--tag=WORD` and
/// `-- WORD` are no flags, whatever the word begins with.
///
/// ```
/// use unalike_storage::ShellWord;
/// assert_eq!(ShellWord("order").to_string(), "'order'");
/// assert_eq!(ShellWord("it's $(me)").to_string(), r"'it'\''s $(me)'");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ShellWord<'a>(pub &'a str);

impl fmt::Display for ShellWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("'")?;
        for (place, part) in self.0.split('\'').enumerate() {
            if place > 0 {
                f.write_str(r"'\''")?;
            }
            f.write_str(part)?;
        }
        f.write_str("'")
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_takes_each_word_as_it_was() {
        let words = [
            "order",
            "",
            " ",
            "a b",
            "it's",
            "'",
            "''",
            "\"",
            "\\",
            "\\'",
            "$HOME",
            "$(echo bad)",
            "`echo bad`",
            "!!",
            "a;b|c&d>e<f(g)",
            "*",
            "?",
            "~",
            "#no",
            "{a,b}",
            "-x",
            "--",
            "%s",
            "tab\there",
            "line\nend\n",
            "größe 订单",
            "\u{202e}",
            "$'\\n'",
            "\u{1b}[31m",
        ];
        let line = words.map(|word| ShellWord(word).to_string()).join(" ");
        let output = Command::new("sh").arg("-c").arg(format!("printf '%s\\0' {line}")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.split_terminator('\0').collect::<Vec<_>>(), words);
    }
}
