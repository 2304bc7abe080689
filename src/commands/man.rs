//! `aye man`: the manual page.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::{DOCS_PAGES, EXAMPLES, EXIT_STATUS};

/// The width of the commands' help in the page, indented in a terminal of 80 columns.
const WIDTH: usize = 72;

/// Returns the manual page: that of `aye` with a section for each command.
pub(crate) fn man_page() -> io::Result<Vec<u8>> {
    let aye = crate::cli::command_with_help();
    let mut page = Vec::new();
    let man = Man::new(aye.clone()).manual("aye");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut rest = Roff::new();
    rest.control("SH", ["COMMANDS"]);
    for command in commands(&aye) {
        rest.control("SS", [command.get_bin_name().unwrap_or_default()]);
        as_it_stands(&mut rest, &help_of(command));
    }
    for (title, heading) in [("ENVIRONMENT", "Environment variables"), ("FILES", "Files and folders")] {
        rest.control("SH", [title]);
        for (names, what) in table_of(heading) {
            rest.control("TP", []);
            rest.text([bold(names)]);
            rest.text([roman(what)]);
        }
    }
    rest.control("SH", ["EXAMPLES"]);
    as_it_stands(&mut rest, EXAMPLES.trim_start_matches("Examples:\n"));
    rest.control("SH", ["EXIT STATUS"]);
    rest.text([roman(EXIT_STATUS)]);
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// The commands that do something, each below the one that it belongs to.
fn commands(of: &Command) -> Vec<&Command> {
    let shown = of.get_subcommands().filter(|command| command.get_name() != "help" && !command.is_hide_set());
    shown
        .flat_map(|command| {
            let is_group = command.is_subcommand_required_set() || command.is_arg_required_else_help_set();
            let own = (!is_group).then_some(command);
            own.into_iter().chain(commands(command))
        })
        .collect()
}

/// The rows of a table of two columns in the manual's reference.
fn table_of(heading: &str) -> impl Iterator<Item = (String, String)> {
    let page = DOCS_PAGES.iter().find(|(name, _)| *name == "reference").map_or("", |(_, text)| *text);
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| {
        let (names, what) = row.trim_matches(['|', ' ']).split_once(" | ")?;
        Some((names.replace('`', ""), what.replace('`', "")))
    })
}

/// The help of a command without the options that all commands have.
fn help_of(command: &Command) -> String {
    let own = command.clone().mut_args(|arg| {
        let is_shared = arg.is_global_set() || arg.get_id() == "help";
        arg.hide(is_shared)
    });
    let mut own =
        own.help_template("{about-with-newline}\n{usage}\n\n{all-args}{after-help}").term_width(WIDTH);
    own.render_long_help().to_string()
}

/// Adds lines that are not filled.
fn as_it_stands(page: &mut Roff, text: &str) {
    page.control("nf", []);
    for line in text.trim_end().lines() {
        page.text([roman(line.trim_end())]);
    }
    page.control("fi", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_section_with_its_own_options() {
        let page = String::from_utf8(man_page().expect("written")).expect("text");
        for line in
            [".SS \"aye approvals list\"", ".SS \"aye serve\"", ".SS \"aye serve token add\"", ".SH EXAMPLES"]
        {
            assert!(page.lines().any(|one| one == line), "{line}: {page}");
        }
        assert!(
            !page.lines().any(|line| line == ".SS \"aye approvals\"" || line.contains("aye help")),
            "{page}"
        );
        assert_eq!(page.matches("\\-\\-tls\\-cert <FILE>").count(), 1, "{page}");
        assert_eq!(page.matches("Settings:").count(), 0, "{page}");
        assert!(page.contains("\\fBAYE_HOME\\fR\none folder for all of aye\\*(Aqs files"), "{page}");
        assert!(page.contains("\\fB~/.config/aye/config.toml\\fR\nyour settings"), "{page}");
        assert!(page.contains(".SH \"EXIT STATUS\"\n0 done, 1 failed"), "{page}");
    }
}
