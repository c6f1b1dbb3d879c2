// The conversation, led by the official TypeScript client. argv: the folder of the packages, then the task as
// JSON: {transport, mode, answer, steps}. Writes an outcome per line, and goes on at each line that it reads.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [packages, given] = process.argv.slice(2);
const task = JSON.parse(given);
const load = (file) => import(pathToFileURL(`${packages}/@modelcontextprotocol/client/dist/${file}.mjs`));
const { Client, StreamableHTTPClientTransport } = await load("index");
const { StdioClientTransport } = await load("stdio");

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const tell = async (outcome) => {
  process.stdout.write(`${JSON.stringify(outcome)}\n`);
  await lines.next();
};

const client = new Client(
  { name: "official-typescript", version: "2" },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: task.mode },
  },
);
let asked = [];
let link;
client.setRequestHandler("elicitation/create", async (request) => {
  asked.push(request.params.message);
  return { action: "accept", content: task.answer };
});

const summary = (text) => ({ text: text.slice(-4000), length: text.length });
const textOf = (blocks) => blocks.map((block) => block.text ?? "").join("\n");

async function call(step, options) {
  const result = await client.callTool({ name: step.tool, arguments: step.arguments }, options);
  const links = result.content.filter((block) => block.type === "resource_link");
  link = links.at(-1)?.uri ?? link;
  return { ...summary(textOf(result.content)), is_error: result.isError ?? false, links: links.length };
}

const ops = {
  tools: async () => ({ names: (await client.listTools()).tools.map((tool) => tool.name) }),
  read: async () => {
    const { contents } = await client.readResource({ uri: link });
    return summary(textOf(contents));
  },
  call: async (step) => {
    let progress = 0;
    const outcome = await call(step, { onprogress: () => (progress += 1) });
    return { ...outcome, progress };
  },
  cancel: async (step) => {
    const abort = new AbortController();
    const running = call(step, { signal: abort.signal });
    const ended = running.then(() => "answered", () => "given up");
    await tell({});
    abort.abort();
    return summary(await ended);
  },
};

const { url, token, command, environment } = task.transport;
await client.connect(
  url
    ? new StreamableHTTPClientTransport(new URL(url), {
        requestInit: { headers: { authorization: `Bearer ${token}` } },
      })
    : new StdioClientTransport({ command: command[0], args: command.slice(1), env: environment }),
);
await tell({ names: [client.getServerVersion().name, client.getNegotiatedProtocolVersion()] });
for (const step of task.steps) {
  asked = [];
  const outcome = await ops[step.op](step).catch((error) => ({
    code: error.code ?? 0, text: String(error),
  }));
  await tell({ ...outcome, asked });
}
await client.close();
process.exit(0);
