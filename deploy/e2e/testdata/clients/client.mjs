// The official TypeScript client before a Weir: lists everything and calls echo. It prints one JSON document.
// Usage: node client.mjs URL TOKEN PREFIX [legacy|auto]   auto probes for MCP 2026-07-28 first
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, token, prefix, mode = 'auto'] = process.argv.slice(2);
const client = new Client({ name: 'weir-e2e', version: '1.0.0' }, { versionNegotiation: { mode } });
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
});
await client.connect(transport);

const all = async (method, key) => {
  const items = [];
  let cursor;
  do {
    const page = await client[method](cursor ? { cursor } : {});
    items.push(...page[key]);
    cursor = page.nextCursor;
  } while (cursor);
  return items;
};

const tools = await all('listTools', 'tools');
const prompts = await all('listPrompts', 'prompts');
const resources = await all('listResources', 'resources');
const templates = await all('listResourceTemplates', 'resourceTemplates');
const echo = await client.callTool({ name: `${prefix}echo`, arguments: { message: 'from TypeScript' } });
const prompt = await client.getPrompt({ name: prompts.find((p) => !p.arguments?.length).name });
const resource = await client.readResource({ uri: resources[0].uri });

console.log(
  JSON.stringify({
    version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion,
    tools: tools.map((t) => t.name),
    prompts: prompts.map((p) => p.name),
    resources: resources.map((r) => r.uri),
    templates: templates.map((t) => t.uriTemplate),
    echo: echo.content[0].text,
    promptMessages: prompt.messages.length,
    resourceContents: resource.contents.length,
  }),
);
await client.close();
