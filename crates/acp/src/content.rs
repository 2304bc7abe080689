//! Content sent by clients: parts of prompts, and MCP servers.

use std::collections::BTreeMap;
use std::path::Path;

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema as acp;

use aye_core::contract::display::visible_line;
use aye_core::contract::server::{LoginConfig, ServerTransport, streamable_url};

use super::ends::invalid;
use super::host::{ClientServer, WrittenPart};

/// The parts of a prompt; an error names what cannot be sent to a model.
pub(crate) fn parts(blocks: Vec<acp::ContentBlock>) -> Result<Vec<WrittenPart>, Error> {
    let parts: Result<Vec<_>, _> = blocks.into_iter().map(part).collect();
    let parts = parts?;
    if parts.is_empty() {
        return Err(invalid("the prompt is empty"));
    }
    Ok(parts)
}

fn part(block: acp::ContentBlock) -> Result<WrittenPart, Error> {
    use acp::EmbeddedResourceResource::{BlobResourceContents, TextResourceContents};
    match block {
        acp::ContentBlock::Text(text) => Ok(WrittenPart::Text(text.text)),
        acp::ContentBlock::ResourceLink(link) => Ok(WrittenPart::Link { name: link.name, uri: link.uri }),
        acp::ContentBlock::Image(image) => Ok(WrittenPart::Image(image.data)),
        acp::ContentBlock::Resource(resource) => match resource.resource {
            TextResourceContents(text) => Ok(WrittenPart::Resource { uri: text.uri, text: text.text }),
            BlobResourceContents(blob)
                if blob.mime_type.as_deref().is_some_and(|mime| mime.starts_with("image/")) =>
            {
                Ok(WrittenPart::Image(blob.blob))
            }
            BlobResourceContents(blob) => {
                Err(invalid(format!("{} is neither text nor an image", visible_line(&blob.uri))))
            }
            _ => Err(invalid("the prompt has a resource of an unknown kind")),
        },
        acp::ContentBlock::Audio(_) => Err(invalid("aye does not accept audio")),
        _ => Err(invalid("the prompt has a part of an unknown kind")),
    }
}

/// The servers of a client; an error names the one that cannot be used.
pub(crate) fn servers(servers: Vec<acp::McpServer>, cwd: &Path) -> Result<Vec<ClientServer>, Error> {
    servers.into_iter().map(|server| self::server(server, cwd)).collect()
}

fn server(server: acp::McpServer, cwd: &Path) -> Result<ClientServer, Error> {
    match server {
        acp::McpServer::Stdio(stdio) => {
            let env: BTreeMap<_, _> = stdio.env.into_iter().map(|var| (var.name, var.value.into())).collect();
            let transport = ServerTransport::Stdio {
                command: stdio.command.to_string_lossy().into_owned(),
                args: stdio.args.into_iter().map(Into::into).collect(),
                env,
                cwd: cwd.to_path_buf(),
                domains: Vec::new(),
            };
            Ok(ClientServer { name: stdio.name, transport })
        }
        acp::McpServer::Http(http) => {
            let headers = http.headers.into_iter().map(|header| (header.name, header.value.into())).collect();
            let transport =
                ServerTransport::Http { url: http.url.into(), headers, login: LoginConfig::default() };
            Ok(ClientServer { name: http.name, transport })
        }
        acp::McpServer::Sse(sse) => Err(invalid(format!(
            "the MCP server `{}` uses the HTTP+SSE transport of 2024, which aye does not support; its streamable HTTP \
             URL is probably {}",
            visible_line(&sse.name),
            visible_line(&streamable_url(&sse.url))
        ))),
        _ => Err(invalid("an MCP server has an unknown transport; aye supports stdio and streamable HTTP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).expect("the shape of the protocol")
    }

    #[test]
    fn each_content_kind_is_accepted_or_refused_by_name() {
        let blocks = |value| parts(read(value));
        let all = blocks(json!([
            {"type": "text", "text": "look"},
            {"type": "resource_link", "uri": "file:///a.rs", "name": "a.rs"},
            {"type": "resource", "resource": {"uri": "file:///b.rs", "text": "fn b() {}"}},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        ]))
        .expect("all of them");
        assert_eq!(
            all,
            [
                WrittenPart::Text("look".into()),
                WrittenPart::Link { name: "a.rs".into(), uri: "file:///a.rs".into() },
                WrittenPart::Resource { uri: "file:///b.rs".into(), text: "fn b() {}".into() },
                WrittenPart::Image("AAAA".into()),
            ]
        );
        let refused = |value| blocks(value).expect_err("refused").message;
        assert!(refused(json!([{"type": "audio", "mimeType": "audio/wav", "data": ""}])).contains("audio"));
        let blob = json!([{"type": "resource", "resource": {"uri": "file:///x.zip", "blob": "AA"}}]);
        assert!(refused(blob).contains("file:///x.zip"));
        assert!(refused(json!([])).contains("empty"));
    }

    #[test]
    fn an_unreachable_server_is_named() {
        let cwd = Path::new("/w");
        let one = |value| servers(vec![read(value)], cwd);
        let stdio = one(
            json!({"name": "s", "command": "/bin/s", "args": ["-v"], "env": [{"name": "K", "value": "v"}]}),
        );
        let stdio = stdio.expect("stdio").remove(0);
        assert!(matches!(&stdio.transport, ServerTransport::Stdio { command, env, cwd, .. }
            if command == "/bin/s" && env.len() == 1 && cwd == Path::new("/w")));
        let http = json!({"type": "http", "name": "h", "url": "https://h/mcp", "headers": []});
        assert!(matches!(one(http).expect("http")[0].transport, ServerTransport::Http { .. }));
        let sse = json!({"type": "sse", "name": "old", "url": "https://h/sse", "headers": []});
        let why = one(sse).expect_err("refused").message;
        assert!(why.contains("`old`") && why.contains("https://h/mcp"), "{why}");
    }
}
