// Calls three public MCP servers through `aye gate` with the official SDK: `gate.mjs AYE FOLDER`. A question is approved from
// another process, also after the gate was killed.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'

const [aye, folder] = process.argv.slice(2)
const bin = `${process.cwd()}/node_modules/.bin/`
const problems = []
const check = (holds, what) => holds || problems.push(what)
const run = (...args) => execFileSync(aye, args, { cwd: folder, env: process.env }).toString()
const open = () => JSON.parse(run('inbox', '--json'))
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const question = async () => {
  for (;;) {
    const rows = open()
    if (rows.length > 0) return rows[0].id
    await sleep(50)
  }
}

const connect = async (...server) => {
  const client = new Client({ name: 'it', version: '1' })
  const transport = new StdioClientTransport({ command: aye, args: ['gate', '--', ...server], cwd: folder, env: process.env })
  await client.connect(transport)
  return { client, transport }
}

writeFileSync(`${folder}/note.txt`, 'a note\n')
for (const [server, args, tool, input, wanted] of [
  ['mcp-server-filesystem', [folder], 'read_text_file', { path: `${folder}/note.txt` }, 'a note'],
  ['mcp-server-memory', [], 'read_graph', {}, 'entities'],
  ['mcp-server-everything', [], 'echo', { message: 'hello' }, 'hello'],
]) {
  let { client, transport } = await connect(`${bin}${server}`, ...args)
  const { tools } = await client.listTools()
  check(tools.some((known) => known.name === tool), `${server}: ${tools.map((known) => known.name)}`)
  let asked = client.callTool({ name: tool, arguments: input })
  run('approve', await question())
  let text = JSON.stringify((await asked).content)
  check(text.includes(wanted), `${server}: ${text}`)
  // Killed between the question and its answer.
  asked = client.callTool({ name: tool, arguments: input }).catch(() => {})
  const id = await question()
  process.kill(transport.pid, 'SIGKILL')
  await asked
  run('approve', id)
  ;({ client, transport } = await connect(`${bin}${server}`, ...args))
  text = JSON.stringify((await client.callTool({ name: tool, arguments: input })).content)
  check(text.includes(wanted), `${server} after a kill: ${text}`)
  check(open().length === 0, `${server}: a second question`)
  await client.close()
}
console.log(JSON.stringify({ problems }))
process.exit(problems.length > 0 ? 1 : 0)
