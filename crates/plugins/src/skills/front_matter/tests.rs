use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Parsed {
    parse(Path::new("s/SKILL.md"), text, None)
}

/// The findings as `line severity message`.
fn issue_lines(parsed: &Parsed) -> Vec<String> {
    let mark = |issue: &SkillIssue| issue.severity.word();
    parsed.issues.iter().map(|issue| format!("{} {} {}", issue.line, mark(issue), issue.message)).collect()
}

#[test]
fn a_plain_skill_is_read() {
    let parsed = read(
        "---\nname: my-skill\ndescription: Does it.\nlicense: MIT\nmetadata:\n  x: 1\nother: [1, {a: b}]\nallowed-tools: Bash(git:*) Read\n---\n\n# Hello\n!`touch pwn`\n",
    );
    assert_eq!(issue_lines(&parsed), [""; 0]);
    let doc = parsed.doc.expect("a skill");
    assert_eq!(doc.meta.name, "my-skill");
    assert_eq!(doc.meta.description, "Does it.");
    assert_eq!(doc.meta.allowed_tools, ["Bash(git:*)", "Read"]);
    assert_eq!(doc.meta.license.as_deref(), Some("MIT"));
    // Row CO041: the text is literal.
    assert_eq!(doc.instructions, "# Hello\n!`touch pwn`\n");
}

#[test]
fn invalid_front_matter_is_refused_with_its_line() {
    for (text, expected) in [
        ("", "1 error does not start with front matter"),
        ("# no front matter", "1 error does not start with front matter"),
        ("\n---\nname: a\n---\n", "1 error does not start with front matter"),
        // Row CO037.
        ("---\nname: a\n", "1 error the front matter is not closed"),
        ("---", "1 error the front matter is not closed"),
        // Row CO038.
        ("---\nname: ../../x\ndescription: d\n---\n", "2 error the name `../../x` has an invalid character"),
        // Row CO039.
        ("---\nname: a\u{1b}[31m\ndescription: d\n---\n", "2 error control character U+001B"),
        (
            "---\nname: a\ndescription: \"x\\e[31m\"\n---\n",
            "3 error control character U+001B in the description",
        ),
        ("---\nname: a\ndescription: x\u{0}\n---\n", "3 error control character U+0000"),
        ("---\ndescription: d\n---\n", "1 error has no name"),
        ("---\nname: a\n---\n", "1 error has no description"),
        ("---\nname: a\ndescription: '  '\n---\n", "3 error has no description"),
        ("---\n---\n", "1 error has no name"),
        (
            "---\nname: a\nname: b\ndescription: d\n---\n",
            "3 error invalid YAML in the front matter: duplicate key: name",
        ),
        ("---\nname: a\ndescription: [d\n---\n", "error invalid YAML in the front matter"),
        ("---\n- a\n---\n", "2 error invalid YAML in the front matter"),
        ("---\nname: a<b\ndescription: d\n---\n", "2 error the name `a<b` has an invalid character"),
        ("---\nname: '..'\ndescription: d\n---\n", "2 error the name `..` has an invalid character"),
        ("---\nname: -a\ndescription: d\n---\n", "2 error the name `-a` starts or ends with `-`"),
        ("---\nname: a--b\ndescription: d\n---\n", "2 error the name `a--b` has two `-` in a row"),
        (
            "---\nname: \"a\\u200bb\"\ndescription: d\n---\n",
            "2 error the name `a<U+200B>b` has an invalid character",
        ),
        (
            "---\nname: a\ndescription: d\nallowed-tools: \"Read \\e[2J\"\n---\n",
            "4 error allowed-tools contains control or invisible characters",
        ),
    ] {
        let parsed = read(text);
        assert!(parsed.doc.is_none(), "{text:?} was loaded");
        let issue_lines = issue_lines(&parsed);
        assert!(issue_lines.iter().any(|line| line.contains(expected)), "{text:?}: {issue_lines:?}");
    }
}

#[test]
fn repairable_front_matter_is_loaded_with_a_warning() {
    for (text, expected) in [
        ("\u{feff}---\nname: a\ndescription: d\n---\nx", "1 warning starts with a byte order mark"),
        (
            "---\nname: a\ndescription: Use it: always\n---\nx",
            "3 warning a value with `: ` in it was read as text",
        ),
        (
            "---\nname: a\ndescription: d\nallowed-tools: [Read, 'Bash(git *)']\n---\nx",
            "4 warning allowed-tools is a list",
        ),
        (
            "---\nname: a\ndescription: d\nallowed-tools: Read, Bash(git *)\n---\nx",
            "4 warning allowed-tools has commas",
        ),
        ("---\nname: a\ndescription: d\n---\n", "0 warning has no instructions"),
        ("---\nname: Abc\ndescription: d\n---\nx", "2 warning the name `Abc` has an upper-case letter"),
        ("---\nname: a_b\ndescription: d\n---\nx", "2 warning the name `a_b` has an invalid character"),
        ("---\nname: a b\ndescription: d\n---\nx", "2 warning the name `a b` has an invalid character"),
        (
            "---\nname: a\ndescription: d\nlicense: [1, {a: b}]\n---\nx",
            "4 warning `license` must be a string",
        ),
        ("---\nname: a\ndescription: d\nmodel: {}\n---\nx", "4 warning `model` must be a string"),
        (
            "---\nname: a\ndescription: d\nallowed-tools: {a: b}\n---\nx",
            "4 warning allowed-tools must be a string",
        ),
        ("---\nname: a\ndescription: d\nuser-invocable: maybe\n---\nx", "4 warning `user-invocable` must be"),
        ("---\nname: a\ndescription: d\ncontext: new\n---\nx", "4 warning `context` is `new`"),
        ("---\nname: a\ndescription: d\nagent: x\n---\nx", "4 warning `agent` is ignored without"),
        ("---\nname: a\ndescription: d\neffort: high\n---\nx", "4 note `effort` is ignored"),
        ("---\nname: a\ndescription: d\narguments: [a b]\n---\nx", "4 warning `arguments` must be names"),
        (
            "---\nname: a\ndescription: d\nargument-hint: [file] [line]\n---\nx",
            "4 warning a value with more after its brackets was read as text",
        ),
        (
            "---\nname: a\ndescription: \"x\u{200b}\u{e0069}\u{e0067}nore\"\n---\nx",
            "3 warning 3 invisible characters in the description",
        ),
    ] {
        let parsed = read(text);
        assert!(parsed.doc.is_some(), "{text:?}: {:?}", issue_lines(&parsed));
        let issue_lines = issue_lines(&parsed);
        assert!(issue_lines.len() == 1 && issue_lines[0].starts_with(expected), "{text:?}: {issue_lines:?}");
    }
    let long = format!("---\nname: {}\ndescription: {}\n---\nx", "a".repeat(65), "d".repeat(1025));
    assert_eq!(issue_lines(&read(&long)).len(), 2);
    assert!(read(&long).doc.is_some());
}

#[test]
fn claude_code_fields_are_read() {
    let parsed = read(
        "---\nname: 7\ndescription: |\n  First line.\n  Second line.\nwhen_to_use: Always\nargument-hint: [issue]\n\
         arguments: issue branch\ndisable-model-invocation: true\nuser-invocable: true\ncontext: fork\nagent: Explore\n\
         model: inherit\n---\nx",
    );
    assert_eq!(issue_lines(&parsed), [""; 0]);
    let meta = parsed.doc.expect("a skill").meta;
    assert_eq!(meta.name, "7");
    assert_eq!(meta.description, "First line.\nSecond line.", "its line breaks are kept");
    assert_eq!(meta.when_to_use.as_deref(), Some("Always"));
    assert_eq!(meta.argument_hint.as_deref(), Some("[issue]"));
    assert_eq!(meta.arguments, ["issue", "branch"]);
    assert!(meta.disable_model_invocation && !meta.is_hidden && meta.is_forked);
    assert_eq!((meta.agent.as_deref(), meta.model), (Some("Explore"), None));
    let plain =
        read("---\nname: a\ndescription: d\nuser-invocable: no\nmodel: m\n---\nx").doc.expect("a skill").meta;
    assert!(!plain.disable_model_invocation && plain.is_hidden && !plain.is_forked);
    assert_eq!(plain.model.as_deref(), Some("m"));
}

#[test]
fn a_broken_tool_pattern_grants_nothing() {
    let parsed = read("---\nname: a\ndescription: d\nallowed-tools: Read Bash(rm *\n---\nx");
    let issue_lines = issue_lines(&parsed);
    assert!(
        issue_lines.len() == 1
            && issue_lines[0].starts_with("4 warning `Bash(rm *` in allowed-tools is not a pattern"),
        "{issue_lines:?}"
    );
    assert_eq!(parsed.doc.expect("a skill").meta.allowed_tools, ["Read"]);
}

#[test]
fn windows_line_endings_are_accepted() {
    let doc = read("---\r\nname: a\r\ndescription: d\r\n---\r\none\r\ntwo\r\n").doc.expect("a skill");
    assert_eq!(doc.instructions, "one\ntwo\n");
    assert_eq!(doc.meta.description, "d");
}

#[test]
fn names_in_any_script_are_normalised_and_compared_with_the_folder() {
    let named = |name: &str, folder: &str| {
        parse(Path::new("SKILL.md"), &format!("---\nname: {name}\ndescription: d\n---\nx"), Some(folder))
    };
    for (name, folder) in
        [("技能-1", "技能-1"), ("überblick", "u\u{308}berblick"), ("ﬁle", "file"), ("٣-x", "٣-x")]
    {
        let parsed = named(name, folder);
        assert!(parsed.doc.is_some() && parsed.issues.is_empty(), "{name}: {:?}", issue_lines(&parsed));
    }
    assert_eq!(named("ﬁle", "file").doc.expect("a skill").meta.name, "file");
    let parsed = named("a", "b");
    assert!(parsed.doc.is_some());
    assert_eq!(
        issue_lines(&parsed),
        ["2 warning the name `a` differs from its folder `b`; give both the same"]
    );
}

#[test]
fn text_that_looks_like_another_type_stays_text() {
    let doc = read("---\nname: no\ndescription: yes\n---\nx").doc.expect("a skill");
    assert_eq!((doc.meta.name.as_str(), doc.meta.description.as_str()), ("no", "yes"));
}

#[test]
fn tools_are_split_outside_parentheses() {
    let split = |text| split_list(text).0;
    assert_eq!(split("Bash(git add *)  Read\tEdit"), ["Bash(git add *)", "Read", "Edit"]);
    assert_eq!(split("Bash(echo, x), Read"), ["Bash(echo, x)", "Read"]);
    assert_eq!(split(""), [""; 0]);
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics_and_no_loaded_skill_has_control_characters(
        text in "\\PC*|(---\n)?[a-z:\\-\" '#|>\\[\\]{}&*!\n\r\t\u{1b}\u{200b}]{0,60}(\n---\n)?.{0,9}"
    ) {
        let parsed = read(&text);
        let lines = text.split('\n').count() + 1;
        for issue in &parsed.issues {
            prop_assert!(issue.line <= lines);
            prop_assert!(!issue.to_string().contains(|c: char| c.is_control()));
        }
        prop_assert_eq!(parsed.doc.is_none(), parsed.issues.iter().any(|issue| issue.severity == Severity::Error));
        if let Some(doc) = parsed.doc {
            prop_assert!(check_name(&doc.meta.name).is_ok());
            prop_assert!(!doc.meta.description.is_empty());
        }
    }

    #[test]
    fn names_and_descriptions_survive(name in "[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,3}", description in "[A-Za-z][a-z ,.]{0,60}[a-z]") {
        let doc = read(&format!("---\nname: \"{name}\"\ndescription: {description}\n---\nx")).doc.expect("a skill");
        prop_assert_eq!(doc.meta.name, name);
    }
}
