//! Network access of sandboxed commands: listed domains, and each other's ports.

use serde_json::json;

use crate::sandbox::has_all_layers;
use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::pty::Pty;

const DOMAINS: &str = "sandbox.domains=[\"docs.example.org\", \"inside.example.org\"]";

/// Without domains there is no proxy, and a command's output names the setting that would list the name.
#[test]
fn without_domains_there_is_no_proxy() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "env | grep -i proxy; ls /run/aye; curl -sS http://docs.example.org/"),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: Bash, behavior: allow}\n");
    home.ok(&["-p", "go"]);
    let result = llm.last().result("c1");
    // The socket is for other commands, in case this one is moved to the background.
    assert!(!result.contains("127.0.0.1") && result.contains("\nnet\n"), "{result}");
    assert!(result.contains("; docs.example.org is not listed in sandbox.domains; "), "{result}");
    assert_eq!(std::fs::read_dir(home.root().join("aye/cache/net")).expect("readable").count(), 0);
}

/// Cards, doctor and the permission check report that listed domains can be reached.
#[test]
fn reachable_domains_are_announced() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::answers([Answer::new().bash("c1", "make"), Answer::say("Done.")]);
    let home = Home::with(&llm);
    let out = home.aye(&["-p", "go", "--config", DOMAINS]).run().exits(3);
    let all = format!("{}{}", out.stdout, out.stderr);
    assert!(all.contains("network only to sandbox.domains"), "{all}");
    let doctor = home.ok(&["doctor", "--config", DOMAINS]).stdout;
    assert!(
        doctor.contains("seccomp; commands can reach docs.example.org, inside.example.org\n"),
        "{doctor}"
    );
    let question = json!({"tool": "Bash", "args": {"command": "make"}}).to_string();
    let check = home.aye(&["permissions", "check", "--config", DOMAINS]).stdin(question).run().exits(0);
    assert!(
        check.stdout.contains("\"domains\":[\"docs.example.org\",\"inside.example.org\"]"),
        "{}",
        check.stdout
    );
}

/// A background server is reachable by the next command, even if it starts to listen later, and by no
/// read-only command.
#[test]
fn a_background_server_is_reached_by_the_next_command() {
    if !has_all_layers() {
        return;
    }
    let ask = "touch go; until curl -sf http://localhost:3000/page.txt; do sleep 0.05; done";
    let llm = MockLlm::answers([
        Answer::new().call("c1", "Bash", json!({"command": "sh serve.sh", "run_in_background": true})),
        Answer::new().bash("c2", ask),
        // It is reachable at once.
        Answer::new()
            .bash("c3", "curl -sS http://127.0.0.1:3000/page.txt; curl -sS http://[::1]:3000/page.txt"),
        Answer::new().bash("c4", "curl -sS http://127.0.0.1:3001/"),
        Answer::new().bash("c5", "sh serve.sh"),
        Answer::new().call("c6", "KillShell", json!({"shell_id": "b1"})),
        Answer::new().bash("c7", "curl -sS http://127.0.0.1:3000/page.txt"),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: Bash, behavior: allow}\n  - {tool: KillShell, behavior: allow}\n");
    home.write("page.txt", "the page\n");
    home.write("serve.sh", "until [ -e go ]; do sleep 0.05; done; exec python3 -m http.server 3000\n");
    home.ok(&["-p", "go"]);
    let last = llm.last();
    assert!(last.result("c1").starts_with("Runs in the background as b1."), "{}", last.result("c1"));
    assert_eq!(last.result("c2"), "the page");
    assert_eq!(last.result("c3"), "the page\nthe page");
    assert!(last.result("c4").contains("exit status 7"), "{}", last.result("c4"));
    assert!(last.result("c5").contains("Address already in use"), "{}", last.result("c5"));
    assert!(last.result("c7").contains("exit status 7"), "{}", last.result("c7"));
}

/// So is a server that was started in the foreground, once a key moved it to the background.
#[test]
fn a_server_that_a_key_moved_is_reached_by_the_next_command() {
    if !has_all_layers() {
        return;
    }
    let ask = "until curl -sf http://localhost:3000/page.txt; do sleep 0.05; done";
    let llm = MockLlm::by(move |chat: &Chat| match chat.results().len() {
        0 => Answer::new().bash("c1", "sh serve.sh"),
        1 => Answer::new().bash("c2", ask),
        _ => Answer::say("Done."),
    });
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: Bash, behavior: allow}\n");
    home.write("page.txt", "the page\n");
    home.write("serve.sh", "echo up > up; exec python3 -m http.server 3000\n");
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("start");
    tty.shows("running Bash");
    until("the server", || home.work().join("up").exists());
    tty.send("\x02");
    tty.shows("Done.");
    let last = llm.last();
    assert!(
        last.result("c1").starts_with("The user moved it to the background as b1."),
        "{}",
        last.result("c1")
    );
    assert_eq!(last.result("c2"), "the page");
    tty.quit();
}

/// With made-up addresses for the names.
#[cfg(feature = "failpoints")]
mod names {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::mpsc;

    use super::*;

    /// A server that answers each request with a page; also returns the request lines.
    fn server() -> (SocketAddr, mpsc::Receiver<String>) {
        serving(|_| Some(b"the page\n".to_vec()))
    }

    /// A server with a page for some paths; also returns the request lines.
    fn serving(
        page: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static,
    ) -> (SocketAddr, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("has a local address");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.expect("a connection"));
                let mut lines = String::new();
                while !lines.ends_with("\r\n\r\n") && stream.read_line(&mut lines).expect("read") > 0 {}
                let line = lines.lines().next().unwrap_or_default().to_owned();
                let found = line.split(' ').nth(1).and_then(&page);
                if sender.send(line).is_err() {
                    return;
                }
                let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
                let body = found.unwrap_or_default();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                stream.get_mut().write_all(&[head.as_bytes(), &body].concat()).expect("written");
            }
        });
        (address, receiver)
    }

    /// Runs these lines one after another with two domains: one on a test server, one with a private address.
    fn run<const N: usize>(lines: [&str; N]) -> ([String; N], Vec<String>) {
        let (address, requests) = server();
        let calls = lines.iter().enumerate().map(|(i, line)| Answer::new().bash(&format!("c{i}"), line));
        let llm = MockLlm::answers(calls.chain([Answer::say("Done.")]));
        let home = Home::with(&llm);
        home.rules("rules:\n  - {tool: Bash, behavior: allow}\n");
        let names = format!("docs.example.org=93.184.216.34@{address},inside.example.org=10.0.0.5@{address}");
        home.aye(&["-p", "go", "--config", DOMAINS]).env("AYE_TEST_NAMES", &names).run().exits(0);
        let sockets: Vec<_> =
            std::fs::read_dir(home.root().join("aye/cache/net")).expect("a folder").collect();
        assert!(sockets.is_empty(), "{sockets:?}");
        let last = llm.last();
        (std::array::from_fn(|i| last.result(&format!("c{i}"))), requests.try_iter().collect())
    }

    /// Project programs reach the domains listed for them, and no others.
    #[test]
    fn a_project_hook_reaches_its_domains() {
        if !has_all_layers() {
            return;
        }
        let (address, _requests) = server();
        for (domains, page) in [("", ""), ("domains = [\"docs.example.org\"]", "the page\n")] {
            let llm = MockLlm::answers([Answer::say("Done.")]);
            let home = Home::with(&llm);
            home.write(
                ".aye/hooks.toml",
                &format!("[[hooks]]\nphase = \"run_start\"\ncommand = [\"sh\", \"fetch.sh\"]\n{domains}\n"),
            );
            home.write("fetch.sh", "curl -sS http://docs.example.org/ > page.txt; true\n");
            let names = format!("docs.example.org=93.184.216.34@{address}");
            home.aye(&["--trust", "-p", "go"]).env("AYE_TEST_NAMES", &names).run().exits(0);
            assert_eq!(home.read("page.txt"), page);
        }
    }

    /// Listed domains are reached through the proxy, by a plain request and by a tunnel.
    #[test]
    fn a_listed_domain_is_reached_through_the_proxy() {
        if !has_all_layers() {
            return;
        }
        let line = "curl -sS http://docs.example.org/plain; curl -sS -p http://docs.example.org/tunnel; \
                    echo $NO_PROXY $CARGO_NET_RETRY ${YARN_GLOBAL_FOLDER##*/}; [ \"$YARN_HTTPS_PROXY\" = \"$HTTPS_PROXY\" ]";
        let ([result], requests) = run([line]);
        assert_eq!(result, "the page\nthe page\nlocalhost,127.0.0.1,::1 1 yarn");
        assert_eq!(requests, ["GET /plain HTTP/1.1", "GET /tunnel HTTP/1.1"]);
    }

    /// The card of the retry proposes the refused domain; its grant is enough for the command, in the
    /// sandbox.
    #[test]
    fn a_refused_domain_can_be_granted() {
        if !has_all_layers() {
            return;
        }
        let (address, requests) = server();
        let line = "curl -sS http://docs.example.org/granted";
        let out = json!({"command": line, "outside": true, "reason": "it needs the page"});
        let llm = MockLlm::answers([
            Answer::new().bash("c1", line),
            Answer::new().call("c2", "Bash", out),
            Answer::new().bash("c3", &format!("{line}; curl -sS http://evil.example.net/")),
            Answer::say("Done."),
        ]);
        let home = Home::with(&llm);
        home.rules("rules:\n  - {tool: Bash, behavior: allow}\n");
        let names = format!("docs.example.org=93.184.216.34@{address}");
        home.aye(&["-p", "go"]).env("AYE_TEST_NAMES", &names).run().exits(3);
        let shown = home.ok(&["approvals", "show", "perm_c2"]).stdout;
        assert!(shown.contains("Sandbox(domain = \"docs.example.org\")"), "{shown}");
        let approve = ["approve", "perm_c2", "--grant", "1", "--scope", "thread", "--resume"];
        home.aye(&approve).env("AYE_TEST_NAMES", &names).run().exits(0);
        let last = llm.last();
        assert_eq!(last.result("c2"), "the page");
        let result = last.result("c3");
        assert!(
            result.starts_with("the page\n") && result.contains("evil.example.net is not listed"),
            "{result}"
        );
        assert_eq!(requests.try_iter().count(), 2);
    }

    /// Unlisted names are refused, and so are names without a public address and literal addresses.
    #[test]
    fn nothing_else_is_reached() {
        if !has_all_layers() {
            return;
        }
        let ([unlisted, quiet, address, private, direct, around], requests) = run([
            "curl -sS https://evil.example.net/",
            "curl -s https://evil.example.net/; curl -s http://other.example.net/ >/dev/null; true",
            "curl -sS http://93.184.216.34/",
            "curl -fsS http://inside.example.org/",
            "curl -sS --noproxy '*' http://93.184.216.34/",
            "curl -sS --noproxy '*' http://docs.example.org/",
        ]);
        let sentence = "the sandbox (workspace) refused a connection: evil.example.net is not listed in sandbox.domains; \
                        the user can list it there; or, if the command needs it, call Bash again with `outside: true`";
        assert!(unlisted.contains(sentence), "{unlisted}");
        // A command that hides its failure.
        assert!(quiet.contains(sentence) && quiet.contains("other.example.net is not listed"), "{quiet}");
        assert!(address.contains("refused a connection: 93.184.216.34 is not a name"), "{address}");
        assert!(
            private.contains("refused a connection: inside.example.org has no public address"),
            "{private}"
        );
        assert!(direct.contains("exit status 7"), "{direct}");
        assert!(
            around.contains("docs.example.org is listed in sandbox.domains, but only programs that"),
            "{around}"
        );
        assert!(requests.is_empty(), "{requests:?}");
    }

    /// The archive of a package for cargo, and its line in an index.
    fn package(name: &str) -> (Vec<u8>, String) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join(format!("{name}-1.0.0"));
        std::fs::create_dir_all(folder.join("src")).expect("made");
        let about = format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2021\"\n");
        std::fs::write(folder.join("Cargo.toml"), about).expect("written");
        std::fs::write(folder.join("src/lib.rs"), "").expect("written");
        let out = std::process::Command::new("tar")
            .args(["-cz", &format!("{name}-1.0.0")])
            .current_dir(dir.path())
            .output()
            .expect("tar runs");
        let hash = aye::contract::digest::sha256_hex(&out.stdout);
        let line = json!({"name": name, "vers": "1.0.0", "deps": [], "cksum": hash, "features": {}, "yanked": false});
        (out.stdout, line.to_string())
    }

    /// Builds run in the sandbox with a registry on a listed domain; the user's downloads are used and not changed.
    #[test]
    fn cargo_adds_to_the_users_downloads_without_changing_them() {
        if !has_all_layers() {
            return;
        }
        let packages = ["abc", "bcd"].map(|name| (name, package(name)));
        let (address, requests) = serving(move |path| {
            if path == "/index/config.json" {
                return Some(br#"{"dl": "http://docs.example.org/dl/{crate}"}"#.to_vec());
            }
            let (_, (archive, line)) = packages.iter().find(|(name, _)| path.ends_with(name))?;
            Some(if path.starts_with("/dl/") { archive.clone() } else { line.clone().into_bytes() })
        });
        let build = "cargo build --color never 2>&1";
        let add = "sh add.sh && cargo build 2>&1";
        let again = "rm -r target && cargo build --offline 2>&1";
        let lines = [build, "sh change.sh", add, again];
        let calls = lines.iter().enumerate().map(|(i, line)| Answer::new().bash(&format!("c{i}"), line));
        let mut said: Vec<Answer> = calls.collect();
        let later = said.split_off(1);
        let llm = MockLlm::answers(
            said.into_iter().chain([Answer::say("Done.")]).chain(later).chain([Answer::say("Done.")]),
        );
        let home = Home::with(&llm);
        home.rules("rules:\n  - {tool: Bash, behavior: allow}\n");
        home.write(
            ".cargo/config.toml",
            concat!(
                "[source.crates-io]\nreplace-with = \"near\"\n[source.near]\nregistry = \"sparse",
                "+http://docs.example.org/index/\"\n"
            ),
        );
        home.write(
            "Cargo.toml",
            "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nabc = \"1\"\n",
        );
        home.write("src/lib.rs", "");
        home.write(
            "change.sh",
            "rm ~/.cargo/registry/cache/*/abc-1.0.0.crate\nset -- ~/.cargo/registry/src/*/abc-1.0.0/src/lib.rs\n\
             echo x >> \"$1\"\necho x > /run/aye/cargo/x\n",
        );
        home.write("add.sh", "echo 'bcd = \"1\"' >> Cargo.toml\n");
        let toolchain = std::path::Path::new(env!("CARGO")).parent().expect("a folder").display();
        let path = format!("{toolchain}:{}", std::env::var("PATH").unwrap_or_default());
        let names = format!("docs.example.org=93.184.216.34@{address}");
        let run = |args: &[&str]| {
            home.aye(args).env("AYE_TEST_NAMES", &names).env("PATH", &path).run().exits(0);
        };
        run(&["-p", "go", "--config", DOMAINS]);
        let result = llm.last().result("c0");
        assert!(result.contains("Downloaded abc v1.0.0") && result.contains("Finished"), "{result}");
        let users = home.root().join("home/.cargo/registry");
        assert!(!users.exists());

        // What was downloaded becomes what the user has downloaded.
        std::fs::create_dir_all(users.parent().expect("it has one")).expect("made");
        let projects = std::fs::read_dir(home.root().join("aye/cache/linked")).expect("made");
        let project = projects.flatten().map(|entry| entry.path()).next().expect("one");
        let linked = project.join("cargo");
        std::fs::rename(&linked, &users).expect("moved");
        std::fs::remove_file(users.join(".aye-links")).expect("removed");
        let tree = || {
            let listed =
                std::process::Command::new("find").arg(&users).args(["-printf", "%p %s %T@\\n"]).output();
            String::from_utf8(listed.expect("find runs").stdout).expect("text")
        };
        let before = tree();
        let seen = requests.try_iter().count();
        assert!(seen >= 3, "{seen}");
        run(&["-p", "go on", "--config", DOMAINS]);
        let last = llm.last();
        let changed = last.result("c1");
        for refused in ["src/lib.rs: Read-only file system", "cargo/x: Read-only file system"] {
            assert!(changed.contains(refused), "{changed}");
        }
        let (added, again) = (last.result("c2"), last.result("c3"));
        assert!(added.contains("Downloaded bcd v1.0.0") && added.contains("Finished"), "{added}");
        assert!(!added.contains("warning"), "{added}");
        assert!(again.contains("Compiling bcd") && again.contains("Finished"), "{again}");
        assert_eq!(tree(), before);
        assert!(linked.join("src").is_dir());
    }
}
