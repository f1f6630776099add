// The official client of tasks before a Weir: calls a tool that answers with a task, answers what it asks, and waits for its end. It
// prints one JSON document.
// Usage: node tasks.mjs URL TOKEN TOOL ARGUMENTS [legacy|auto]
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient, resultFromTaskOutcome } from '@modelcontextprotocol/ext-tasks/client';

const [url, token, tool, args, mode] = process.argv.slice(2);
const extension = 'io.modelcontextprotocol/tasks';
const clientInfo = { name: 'weir-e2e', version: '1.0.0' };
const client = new Client(clientInfo, { versionNegotiation: { mode }, capabilities: { elicitation: {} } });
const headers = token ? { Authorization: `Bearer ${token}` } : {};
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));

// What the SDK's own requests can't say, as the documentation of ext-tasks asks for it.
let nextId = 1;
const rawDispatch = async (request) => {
  const id = `raw-${nextId++}`;
  const name = request.params?.taskId ?? request.params?.name;
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      ...headers,
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': '2026-07-28',
      'Mcp-Method': request.method,
      ...(name && { 'Mcp-Name': name }),
    },
    body: JSON.stringify({ ...request, jsonrpc: '2.0', id: request.id ?? id }),
  });
  return await response.json();
};
const v2 =
  client.getProtocolEra() === 'legacy'
    ? {}
    : {
        rawDispatch,
        v2RequestFraming: { protocolVersion: '2026-07-28', clientInfo, clientCapabilities: { elicitation: {}, extensions: { [extension]: {} } } },
      };
const onInputRequest = async () => ({ action: 'accept', content: { name: 'Zoë' } });
const session = createTaskSessionFromClient(client, { endpointId: 'weir', onInputRequest, ...v2 });
const execution = await session.callTool(tool, JSON.parse(args));
const { outcome } = await execution.settle();
const text = resultFromTaskOutcome(outcome).content.map((c) => c.text).join(' ');
console.log(JSON.stringify({ era: client.getProtocolEra(), text }));
await session.close();
await client.close();
