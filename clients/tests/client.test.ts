import { spawn } from "node:child_process";
import { once } from "node:events";
import { renameSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, inject, it, vi } from "vitest";

import { Client, type ClientOptions, ServiceError, type Transport } from "../shared/client";
import { RETRIEVER, TOKEN } from "./services";

const address = inject("address");
const closing: (() => void)[] = [];

afterEach(() => {
  vi.useRealTimers();
  for (const close of closing.splice(0)) close();
});

function clientOf(options: Partial<ClientOptions> = {}, send?: Transport): Client {
  const defaults = { address, index: "", k: 10, token: "", tokenPlace: "in the settings" };
  return new Client({ ...defaults, ...options }, send);
}

/** Start a server that is no service of retriever, and return its address. */
async function serveOther(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  closing.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("search", () => {
  it("returns hits with title, passage, place and marks", async () => {
    const { hits, warnings } = await clientOf().search({ query: "E-4711" });
    expect(hits[0]).toMatchObject({ id: "notes/router.md", title: "Router", rank: 1 });
    expect(hits[0]!.place?.lines).toEqual([3, 10]);
    const [start, stop] = hits[0]!.marks![0]!;
    expect(hits[0]!.passage.slice(start, stop)).toBe("E-4711");
    expect(warnings).toEqual([]);
  });

  it("by meaning finds a note that lacks the words", async () => {
    const { hits } = await clientOf().search({ query: "restart the wifi box" });
    expect(hits[0]!.id).toBe("notes/router.md");
  });

  it("returns as many hits as the settings say", async () => {
    const { hits } = await clientOf({ k: 2 }).search({ query: "the house" });
    expect(hits).toHaveLength(2);
  });

  it("with a filter returns only documents that match it", async () => {
    const where = 'tags contains "house"';
    const { hits } = await clientOf().search({ query: "the key to the cellar", where });
    expect(hits.map(({ id }) => id).sort()).toEqual([
      "notes/meetings/2025-06-house.md",
      "notes/meetings/2026-02-house.md",
    ]);
  });

  it("with a faulty filter fails with the place of the fault", async () => {
    const failure = clientOf().search({ query: "key", where: "tags contains" });
    await expect(failure).rejects.toThrow(/^filter, character \d+: expected/);
    await expect(failure).rejects.toMatchObject({ status: 400 });
  });

  it("without hits says what emptied the result", async () => {
    const where = 'tags contains "none"';
    const { hits, no_hits } = await clientOf().search({ query: "key", where });
    expect(hits).toEqual([]);
    expect(no_hits).toMatch(/filter/);
  });

  it("searches the index that the settings name", async () => {
    const { hits } = await clientOf({ index: "folders" }).search({ query: "giraffe" });
    expect(hits[0]!.id).toBe("work/giraffe.md");
  });

  it("of an unknown index fails with the names of the indexes", async () => {
    const failure = clientOf({ index: "nowhere" }).search({ query: "giraffe" });
    const reason = "there is no index 'nowhere' (indexes: home, folders, owl)";
    await expect(failure).rejects.toThrow(reason);
  });

  it("for a passage returns other documents like it", async () => {
    const like = { id: "notes/meetings/2025-06-house.md", start: 0 };
    const { hits } = await clientOf().search({ like });
    expect(hits[0]!.id).toBe("notes/meetings/2026-02-house.md");
    expect(hits.map(({ id }) => id)).not.toContain(like.id);
  });
});

describe("documents", () => {
  it("are returned with their text", async () => {
    const document = await clientOf().document("recipes/bread.md");
    expect(document.title).toBe("Rye bread");
    expect(document.text).toContain("If it does not rise");
  });

  it("that the index lacks fail with their id", async () => {
    const failure = clientOf().document("a b/ü?.md");
    await expect(failure).rejects.toThrow("a b/ü?.md");
    await expect(failure).rejects.toMatchObject({ status: 404 });
  });

  it("have a passage that holds a line", async () => {
    const line = "The sourdough was too cold. Put the bowl near the oven for two more hours.";
    const like = await clientOf().passageAt(["recipes/bread.md"], `  ${line}`);
    const { text } = await clientOf().document(like.id);
    expect(text.slice(like.start)).toMatch(/^The sourdough/);
  });

  it("have a passage whose offset counts characters, not UTF-16 units", async () => {
    const like = await clientOf().passageAt(["markup.md"], "& a zebra runs.");
    const { text } = await clientOf().document("markup.md");
    expect(Array.from(text).slice(like.start).join("")).toMatch(/^& a zebra/);
    expect(text.slice(like.start)).not.toMatch(/^& a zebra/);
  });

  it("have their first passage for a line that the text lacks", async () => {
    const like = await clientOf().passageAt(["work/bread.md", "recipes/bread.md"], "tags: [x]");
    expect(like).toEqual({ id: "recipes/bread.md", start: 0 });
  });

  it("have no passage if the index lacks the file", async () => {
    await expect(clientOf().passageAt(["a.md", "b.md"], "")).rejects.toThrow("b.md");
    await expect(clientOf().passageAt([], "")).rejects.toThrow("none of the indexed folders");
  });
});

describe("a service with a token", () => {
  const lockedAddress = inject("lockedAddress");

  it("answers a client with its token", async () => {
    const client = clientOf({ address: lockedAddress, token: TOKEN });
    const { hits } = await client.search({ query: "E-4711" });
    expect(hits[0]!.id).toBe("notes/router.md");
  });

  it.each([
    ["", "The service needs a token. Enter its token in the settings."],
    ["wrong", "The service refuses this token. Enter its token in the settings."],
  ])("with the token %j fails with the place to enter it", async (token, message) => {
    const failure = clientOf({ address: lockedAddress, token }).search({ query: "E-4711" });
    await expect(failure).rejects.toThrow(message);
  });
});

describe("an address", () => {
  it("may end with a slash", async () => {
    const { hits } = await clientOf({ address: ` ${address}/ ` }).search({ query: "E-4711" });
    expect(hits[0]!.id).toBe("notes/router.md");
  });

  it.each(["", "127.0.0.1:8765", "file:///etc/passwd"])("%j is refused", async (text) => {
    const failure = clientOf({ address: text }).search({ query: "a" });
    await expect(failure).rejects.toThrow("expected an address such as http://127.0.0.1:8765");
  });

  it("without a service fails with the command that starts it", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    server.close();
    await once(server, "close");
    const failure = clientOf({ address: `http://127.0.0.1:${port}` }).search({ query: "a" });
    await expect(failure).rejects.toThrow(`No service answers at http://127.0.0.1:${port}.`);
    await expect(failure).rejects.toThrow('Start it with "retriever serve my.index"');
  });

  it.each([
    ["a page", 200, "<html></html>", "with status 200"],
    ["another status", 404, "<html></html>", "with status 404"],
    ["other JSON", 200, '{"results": []}', "without hits"],
    ["a list", 200, "[]", "without hits"],
  ])("of a server that answers with %s is called wrong", async (_name, status, body, reason) => {
    const other = await serveOther((_, response) => {
      response.writeHead(status).end(body);
    });
    const failure = clientOf({ address: other }).search({ query: "a" });
    await expect(failure).rejects.toThrow(`is no service of retriever: it answers ${reason}.`);
  });
});

describe("a request", () => {
  it("that is canceled closes its connection and rejects as canceled", async () => {
    let arrived = () => {};
    const arrival = new Promise<void>((resolve) => (arrived = resolve));
    let closed = () => {};
    const closure = new Promise<void>((resolve) => (closed = resolve));
    const other = await serveOther((_, response) => {
      response.on("close", closed);
      arrived();
    });
    const controller = new AbortController();
    const search = clientOf({ address: other }).search({ query: "a" }, controller.signal);
    await arrival;
    controller.abort();
    const start = Date.now();
    await expect(search).rejects.toMatchObject({ name: "AbortError" });
    await closure;
    // The time limit would cancel it, too, after 40 seconds.
    expect(Date.now() - start).toBeLessThan(20_000);
  });

  it("that is canceled before it begins sends nothing", async () => {
    const count = vi.fn();
    const other = await serveOther(count);
    const search = clientOf({ address: other }).search({ query: "a" }, AbortSignal.abort());
    await expect(search).rejects.toMatchObject({ name: "AbortError" });
    expect(count).not.toHaveBeenCalled();
  });

  it("without an answer in time fails and is canceled", async () => {
    vi.useFakeTimers();
    const send: Transport = ({ signal }) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const search = clientOf({}, send).search({ query: "a" });
    const failure = expect(search).rejects.toThrow("did not answer in time. Try again.");
    await vi.advanceTimersByTimeAsync(40_000);
    await failure;
  });
});

describe("an index", () => {
  const index = inject("owlIndex");
  const note = join(dirname(index), "owl.md");

  it("that is rebuilt answers before, during and after it", async () => {
    const other = join(dirname(index), "fox.md");
    writeFileSync(other, "# Fox\n\nA fox hears a mouse too.\n");
    const args = ["index", note, other, "-i", index, "--recreate", "--quiet"];
    const rebuild = spawn(RETRIEVER, args, { stdio: "inherit" });
    const counts = new Set<number>();
    const count = async () => {
      const { hits } = await clientOf({ index: "owl" }).search({ query: "mouse" });
      counts.add(hits.length);
    };
    while (rebuild.exitCode === null) await count();
    await count();
    expect([...counts]).toEqual([1, 2]);
  });

  it("that is away fails with its name, and answers once it is back", async () => {
    const client = clientOf({ index: "owl" });
    renameSync(index, `${index}.away`);
    const failure = client.search({ query: "owl" });
    await expect(failure).rejects.toThrow("owl.index: no index here; make one with");
    await expect(failure).rejects.toBeInstanceOf(ServiceError);
    renameSync(`${index}.away`, index);
    expect((await client.search({ query: "owl" })).hits[0]!.title).toBe("Owl");
  });
});
