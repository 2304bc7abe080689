use super::*;

mod effect;

fn found(command: &str) -> Vec<String> {
    analyse(command).commands.iter().map(|c| c.texts().join(" ")).collect()
}

#[test]
fn finds_commands_everywhere() {
    let mut missed = Vec::new();
    for command in [
        "rm -f x",
        "rm\t-f x",
        "rm  -f   x",
        "r''m -f x",
        "\\rm -f x",
        "'rm' -f x",
        "\"rm\" -f x",
        "$'rm' -f x",
        "$'\\x72m' -f x",
        "r\\\nm -f x",
        "FOO=1 rm -f x",
        "env rm -f x",
        "env A=1 -u B rm -f x",
        "env -S 'rm -f x'",
        "timeout 5 nice rm -f x",
        "timeout -k 3 5 rm -f x",
        "nohup rm -f x",
        "sudo -u root rm -f x",
        "command rm -f x",
        "builtin command rm -f x",
        "exec rm -f x",
        "time rm -f x",
        "! rm -f x",
        "nice -n 5 rm -f x",
        "stdbuf -oL rm -f x",
        "echo `rm -f x`",
        "echo $(rm -f x)",
        "echo \"$(rm -f x)\"",
        "(rm -f x)",
        "{ rm -f x; }",
        "cat <(rm -f x)",
        "if true; then rm -f x; fi",
        "while rm -f x; do :; done",
        "for i in 1; do rm -f x; done",
        "case a in a) rm -f x;; esac",
        "f() { rm -f x; }; f",
        "function f { rm -f x; }",
        "ls && rm -f x",
        "ls || rm -f x",
        "ls | rm -f x",
        "ls |& rm -f x",
        "ls & rm -f x",
        "ls\nrm -f x",
        "ls; rm -f x",
        "ls # c\nrm -f x",
        "find . -name x -exec rm -f x {} +",
        "find . -exec rm -f x \\;",
        "sh -c 'rm -f x'",
        "bash -xc 'rm -f x'",
        "bash -o pipefail -c 'ls; rm -f x'",
        "eval 'rm -f x'",
        "eval rm -f x",
        "trap 'rm -f x' EXIT",
        "coproc rm -f x",
        "alias ls='rm -f x'",
        "xargs rm -f x",
        "ls | xargs -n 1 rm -f x",
        "fd . -x rm -f x",
        "ssh h rm -f x",
        "busybox rm -f x",
        "npx rm -f x",
        "docker exec c rm -f x",
        "su root -c 'rm -f x'",
        "flock f rm -f x",
        "flock f -c 'rm -f x'",
        "watch rm -f x",
        "x=$(rm -f x)",
        "echo ${a:-$(rm -f x)}",
        "echo $((a[$(rm -f x)]))",
        "cat <<EOF\n$(rm -f x)\nEOF",
        "[[ $(rm -f x) ]]",
        "[ \"$(rm -f x)\" ]",
        "a[$(rm -f x)]=1",
        "export A=$(rm -f x)",
        "cat <<< $(rm -f x)",
        "git submodule foreach 'rm -f x'",
        "git rebase -x 'rm -f x' main",
        "git bisect run rm -f x",
        "git -c alias.y='!rm -f x' y",
        "tar cf a b --checkpoint-action=exec='rm -f x'",
        "echo x >$(rm -f x)",
        "sh -c \"sh -c 'rm -f x'\"",
        "script -c 'rm -f x' /dev/null",
        "echo {a,$(rm -f x)}",
        "setsid -w rm -f x",
        "doas rm -f x",
        "if ! rm -f x; then :; fi",
        "until rm -f x; do :; done",
        "for ((i=$(rm -f x); i<1; i++)); do :; done",
        "select i in a; do rm -f x; done",
        "(cd a && rm -f x)",
    ] {
        let all = found(command);
        if !all.iter().any(|c| c.starts_with("rm -f x")) {
            missed.push(format!("{command}: {all:?}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn a_folder_and_global_flags_are_normalised_away() {
    let spelled = |command: &str| -> Vec<String> {
        let analysis = analyse(command);
        let all = analysis.commands[0].spellings();
        all.iter().map(|words| words.iter().map(|w| w.text.as_str()).collect::<Vec<_>>().join(" ")).collect()
    };
    assert!(spelled("/bin/rm -f x").contains(&"rm -f x".to_owned()));
    assert!(spelled("git -C . -c a=b --no-pager push origin").contains(&"git push origin".to_owned()));
}

#[test]
fn plain_lines() {
    let mut refused = Vec::new();
    for command in [
        "ls",
        "ls -la; git status",
        "git status && ls | wc -l",
        "ls # comment",
        "ls 'a b' \"c d\" e\\ f",
        "(ls; pwd)",
        "{ ls; }",
        "! ls",
        "ls > /dev/null 2>&1",
        "npm test 2>&1",
        "ls &> /dev/null",
        "LANG=C ls",
        "ls &",
        "ls \\\n -la",
        "git commit -F - <<'EOF'\nhi $x\nEOF",
        "git commit --file=- -q <<'EOF'\nhi\nEOF",
        "git add a && git commit -F- <<'EOF'\nhi\nEOF",
        "echo 'it'\\''s'",
        "ls *.rs",
        "ls ~/x",
        "ls\n\nls\n",
        "cat < /dev/null",
        "git log --format='%h %s'",
        "echo {}",
        "git show HEAD^ @{u}",
        "git log -1 --format=%H",
        "ls a#b",
        "echo a=b",
        "cat a,b",
        "git diff HEAD~1..HEAD",
        "test 1 = 1",
        "grep -rn 'foo(bar)' src",
        "rg 'a|b' -g '*.rs'",
        "echo \"a;b\"",
        "cat <<'EOF'\nhi $(x)\nEOF",
        "cat <<'EOF' | wc\nhi\nEOF",
        "gh pr create -F - <<'EOF'\nhi\nEOF",
        "git commit -m \"$(cat <<'EOF'\nfix: don't `x` $(y) \\ \"z\" (a\nEOF\n)\"",
        "git commit -m \"a $(cat <<'EOF'\nb\n\nEOF\n) c\" -q && git status",
        "if ls; then ls; elif pwd; then ls; else pwd; fi",
        "if [ -f x ]; then cat x; fi",
        "while ls; do pwd; done",
        "until ls\ndo\n pwd\ndone",
        "for i in a; do ls; done",
        "for f in a b.rs 'c'; do if [ -d \"$f\" ]; then ls ${f} -l; fi; done; pwd",
        "for f in *.rs; do wc -l \"$f\"; done",
        "for a in x y; do for b in 1 2; do echo \"$a-$b\"; done; done",
        "[ -f x ]",
        "[ a = b ] && [ 1 -lt 2 ] || [ ! -e x ]",
    ] {
        let analysis = analyse(command);
        if let Err(why) = analysis.plain() {
            refused.push(format!("{command}: {why}"));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn a_loop_is_read_once_for_each_value() {
    let plain = |line: &str| -> Vec<String> {
        analyse(line).plain().unwrap().into_iter().map(|command| command.texts().join(" ")).collect()
    };
    assert_eq!(
        plain("for f in a b; do ls $f; echo \"x $f\"; done"),
        ["ls a", "echo x a", "ls b", "echo x b"]
    );
    // For a deny, the value may have changed meanwhile.
    assert!(
        analyse("for f in a; do ls $f; done")
            .commands
            .iter()
            .any(|command| command.words.iter().any(|w| w.has_holes))
    );
    let values = (0..70).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    assert!(analyse(&format!("for f in {values}; do ls $f; done")).plain().is_err());
    let quoted = analyse("git commit -m \"$(cat <<'EOF'\nfix\n\nEOF\n)\"");
    assert!(quoted.plain().unwrap()[0].texts().contains(&"fix"));
    assert!(quoted.commands.iter().any(|command| command.is_inner && command.texts() == ["cat"]));
}

#[test]
fn lines_that_are_not_plain() {
    for command in [
        "ls $x",
        "ls ${x}",
        "ls $(pwd)",
        "ls `pwd`",
        "ls <(pwd)",
        "ls > x",
        "ls >> x",
        "ls >| x",
        "ls < x",
        "ls 3>x >&3",
        "ls <> x",
        "ls &> x",
        "cat <<EOF\n$x\nEOF",
        "cat <<'E'F\nx\nEF\ntouch pwn",
        "git apply <<'EOF'\nhi\nEOF",
        "git apply - <<'EOF'\nhi\nEOF",
        "git commit -F x <<'EOF'\nhi\nEOF",
        "git commit -F - <<EOF\nhi\nEOF",
        "git apply && git commit -F - < x <<'EOF'\nhi\nEOF",
        "{ git apply; git commit -F -; } <<'EOF'\nhi\nEOF",
        "(git commit -F -) <<'EOF'\nhi\nEOF",
        "cat <<< x",
        "(cat) <<'EOF'\nhi\nEOF",
        "{ git apply; cat; } <<'EOF'\nhi\nEOF",
        "git apply | cat x <<'EOF'\nhi\nEOF",
        "for f in $x; do ls; done",
        "for f; do ls; done",
        "for f in a; do ls $g; done",
        "for f in a; do ls ${f%x}; done",
        "for f in a; do f=b; done",
        "for f in a; do for f in b; do ls; done; cat $f; done",
        "for F in a; do ls; done",
        "for f in a; do ls; done > x",
        "for ((i=0;i<1;i++)); do ls; done",
        "select f in a; do ls; done",
        "for f in 'a b'; do ls $f; done",
        "while [[ -v a ]]; do ls; done",
        "[ -f $x ]",
        "f() { ls; }",
        "export A=1",
        "[[ -f x ]]",
        "((1))",
        "ls $'a'",
        "ls $\"a\"",
        "ls )",
        "ls '",
        "ls \"",
        "ls \u{200b}",
        "ls \r",
        "ls \u{202e}",
        "ls\u{ff1b} x",
        "ls\u{a0}x",
        "ls\u{1b}[31m",
        "time ls",
        "coproc ls",
        "case x in x) ls;; esac",
        "a=(1 2); ls",
        "ls ~root",
        "ls <<A <<B\nA\nB",
        "ls <<-EOF\n\tx\n\tEOF",
        "ls >&$x",
        "ls $((1))",
        "ls $",
        "ls +(a)",
        "ls !(a)",
        "cat <<\\EOF\nx\nEOF",
        "ls 2>&-",
    ] {
        let analysis = analyse(command);
        let barred = analysis.plain().is_err()
            || analysis.plain().unwrap().iter().any(|c| c.words.iter().any(|w| !w.is_literal()));
        assert!(barred, "{command}: {analysis:?}");
    }
    assert!(analyse(&"a ".repeat(5001)).unreadable.is_some());
}

#[test]
fn undecidable_lines() {
    let mut sure = Vec::new();
    for command in [
        "$X -f x",
        "X=rm; $X x",
        "r$Y x",
        "$(echo rm) x",
        "/bin/r? x",
        "{rm,-f,x}",
        "rm${IFS}-f",
        "eval \"$X\"",
        "bash -c \"$X\"",
        "echo x | sh",
        "bash",
        "source ./x",
        ". ./x",
        "python -c 'x'",
        "perl -e x",
        "awk 'BEGIN{system(\"x\")}'",
        "git x",
        "git -c core.pager=x log",
        "find . -exec {} \\;",
        "xargs -I{} {} x",
        "vim -c '!x'",
        "sed '1e x' f",
        "rg --pre x y",
        "env $X",
        "python3 <<EOF\nx\nEOF",
        "sh <<< x",
        "node -e x",
        "sort --compress-program=x f",
        "ssh -o ProxyCommand=x h",
    ] {
        let analysis = analyse(command);
        if analysis.undecided.is_none() && analysis.unreadable.is_none() {
            sure.push(command);
        }
    }
    assert!(sure.is_empty(), "{sure:#?}");
    for command in [
        "ls $X",
        "npm test",
        "cargo build",
        "echo $HOME",
        "git status",
        "python x.py",
        "for f in *; do cat $f; done",
    ] {
        assert_eq!(analyse(command).undecided, None, "{command}");
    }
}

#[test]
fn risky_words() {
    for command in [
        "find . -delete",
        "find . -exec ls \\;",
        "sed -i s/a/b/ f",
        "sed -n '1e touch pwn' f",
        "sed 's/a/b/e' f",
        "sed 's/a/b/w x' f",
        "sed -n 'w x' f",
        "sed --in-pl s/a/b/ f",
        "sed -ie s/a/b/ f",
        "sed -ni p f",
        "sed -Ei.bak p f",
        "sed -es/a/b/e f",
        "sed --expr 'w x' f",
        "sed -f x f",
        "sort -o x f",
        "sort -uo x f",
        "sort --outp=x f",
        "rg --pre x y",
        "rg --hostname-bin=x y",
        "tar cf /dev/null f --checkpoint=1 --checkpoint-action=exec=x",
        "tar cIf x a b",
        "tar -I x -cf a b",
        "tar --use-comp=x",
        "git log --output=x",
        "git log --outpu x",
        "git -c a=b status",
        "git -C x status",
        "git grep -O x",
        "git grep --open-files-in-pager=x y",
        "git ls-remote --upload-pack=x y",
        "git foo",
        "git config core.pager x",
        "git clone ext::sh",
        "git diff --ext-diff",
        "git -p log",
        "git --exec-path=x log",
        "git difftool",
        "git help log",
        "git rebase --exec x",
        "git archive -o x HEAD",
        "git archive --remote=x --exec=y HEAD",
        "git show --textconv",
        "test -v x",
        "test -v 'a[$(x)]'",
        "printf -v x y",
        "awk '{print > \"x\"}' f",
        "awk -f x f",
        "gawk '@load \"x\"' f",
        "xargs ls",
        "env ls",
        "npx x",
        "docker exec c ls",
        "docker run x",
        "ssh h ls",
        "timeout 5 ls",
        "nice ls",
        "bash -c ls",
        "bash",
        "python -c x",
        "python -m x",
        "python",
        "node -e x",
        "perl -ne x f",
        "ruby -e x",
        "php -r x",
        "vim x",
        "less +x f",
        "man -P x y",
        "eval ls",
        "source x",
        "exec ls",
        "alias a=b",
        "set -x",
        "hash -p x ls",
        "make SHELL=x",
        "make -f x",
        "make --eval=x",
        "cargo --config x build",
        "cargo +nightly test",
        "npm exec x",
        "npm --prefix x test",
        "npm config set a b",
        "curl -o x y",
        "curl -sSLo x y",
        "curl --output x",
        "wget -O x y",
        "rsync -e x a b",
        "dd if=a of=b",
        "uniq a b",
        "tree -o x",
        "date -s x",
        "bat --pager x f",
        "go test -exec x",
        "go build -o x",
        "zip -T x",
        "fd -x ls",
        "command ls",
        "sudo ls",
        "strace ls",
        "kubectl exec p -- ls",
        "yq -i x",
        "split --filter=x f",
        "gcc -wrapper x y",
        "crontab -e",
        "systemctl restart x",
        "sqlite3 x .shell",
        "gh alias set a b",
    ] {
        let analysis = analyse(command);
        assert!(!risks(&analysis.commands[0].words).is_empty(), "{command}");
    }
    for command in [
        "ls -la",
        "git status -sb",
        "git log --oneline -5",
        "git diff --stat HEAD",
        "git show HEAD",
        "git log --text",
        "git branch -a",
        "git log --format=%h",
        "git config --get user.name",
        "git --no-pager log",
        "find . -name x -type f",
        "sed -n '1,5p' f",
        "sed 's/a/b/g' f",
        "sed -e 's/a/b/' -e 's|c|d|' f",
        "sed -n '/a/,/b/p' f",
        "sort -u f",
        "sort -k 2 -t o f",
        "sort -rn f",
        "rg -n x src",
        "rg --files -g '*.rs'",
        "tar tf x.tar",
        "tar -tzf x.tgz",
        "cargo test --lib",
        "npm test",
        "npm run build",
        "make test",
        "awk '{print $1}' f",
        "test -f x",
        "printf '%s\\n' x",
        "python x.py",
        "node x.js",
        "curl -s x",
        "jq .a f",
        "grep -rn x .",
        "command -v ls",
        "bash --version",
        "python3 --version",
        "go test ./...",
        "uniq -c f",
        "tree -L 2",
        "date +%F",
        "wc -l f",
        "gh pr list",
        "docker ps",
        "kubectl get pods",
        "bash x.sh",
        "env",
    ] {
        let analysis = analyse(command);
        assert_eq!(risks(&analysis.commands[0].words), [], "{command}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reading_never_panics(command in "[ -~\n\t\u{200b}é]{0,80}") {
            let _ = analyse(&command);
        }

        /// Every character in every place: the scanner of the grammar must not crash.
        #[test]
        fn reading_foreign_characters_never_panics(parts in proptest::collection::vec(
            prop_oneof!["[^\u{0}-~]{1,2}", "[\u{0}-\u{1f}]", "[ -~]{1,3}", "[$`'\"<>{}()#=0-9 \n\\\\]{1,4}"], 0..16)) {
            let _ = analyse(&parts.concat());
        }

        #[test]
        fn reading_shell_soup_never_panics(parts in proptest::collection::vec(
            prop_oneof!["ls", "rm -f x", "\\$\\(", "\\)", "`", "'", "\"", "<<EOF\n", "EOF\n", "\\{", "\\}", "; ", "&& ", "\\|", "if ", "then ", "fi", "case x in ", "esac", "\\(\\(", "\\[\\[ ", "#", "\\\\", " ", "env ", "sh -c ", "git -c "], 0..20)) {
            let _ = analyse(&parts.concat());
        }

        /// A line accepted as plain has exactly these words, whatever they contain.
        #[test]
        fn quoted_words_round_trip(words in proptest::collection::vec("[ -~é]{0,12}", 1..5)) {
            let texts: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut all = vec!["prog"];
            all.extend(&texts);
            let analysis = analyse(&canonical(&all));
            let plain = analysis.plain().map_err(|e| TestCaseError::fail(e.to_owned()))?;
            prop_assert_eq!(plain.len(), 1);
            prop_assert_eq!(plain[0].texts(), all);
        }
    }
}

/// The grammar reads `{ {` as one word here.
#[test]
fn words_joined_by_the_grammar_are_separated() {
    let analysis = analyse("( ! { { rm -f x; }; })");
    assert!(analysis.plain().is_err());
    assert!(analysis.commands.iter().any(|command| command.texts() == ["rm", "-f", "x"]));
}

/// The grammar drops the `-` here; dropped text must not count as read.
#[test]
fn text_dropped_by_the_grammar_is_noticed() {
    let analysis = analyse("git commit -F\t-\t<<'EOF'\nfeat: x\nEOF");
    assert!(analysis.plain().is_err());
    assert!(analysis.unreadable.is_some());
}
