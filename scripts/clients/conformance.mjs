// Runs one scenario of MCP's conformance tests against `aye serve`. The tests cannot send a token, so a proxy on loopback
// adds it; everything else, the Host and Origin headers too, passes unchanged.
//   node conformance.mjs http://127.0.0.1:7400 TOKEN PROGRAM SCENARIO
import { spawn } from 'node:child_process';
import { createServer, request } from 'node:http';

const [base, token, program, scenario] = process.argv.slice(2);
const { hostname, port } = new URL(base);
const proxy = createServer((incoming, outgoing) => {
  const { host, ...headers } = incoming.headers;
  // The name under which the proxy is reached stands for the one of the server; another name stays as it is.
  const own = `:${proxy.address().port}`;
  const mapped = (value) => value?.replace(own, `:${port}`);
  headers.authorization = `Bearer ${token}`;
  headers.host = mapped(host);
  if (headers.origin) headers.origin = mapped(headers.origin);
  const forwarded = request({ hostname, port, method: incoming.method, path: incoming.url, headers }, (reply) => {
    outgoing.writeHead(reply.statusCode, reply.headers);
    reply.pipe(outgoing);
  });
  forwarded.on('error', () => outgoing.destroy());
  outgoing.on('close', () => forwarded.destroy());
  incoming.pipe(forwarded);
});
proxy.listen(0, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${proxy.address().port}/v1/mcp`;
  const child = spawn(program, ['server', '--url', url, '--scenario', scenario], { stdio: ['ignore', 'inherit', 'inherit'] });
  child.on('exit', (code) => process.exit(code ?? 1));
});
