import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeEach, describe, expect, inject, it, vi } from "vitest";

import { activate } from "../vscode/extension";
import type { ExtensionMessage, PanelMessage } from "../vscode/messages";
import { startPanel } from "../vscode/webview";
import * as double from "./doubles/vscode";
import { click, createRoot, query, texts, type, until, windowOf } from "./page";
import { TOKEN } from "./services";

const home = inject("home");
const EXTENSION = "/extension";
let root: HTMLElement;
let secrets: Map<string, string>;
let view: any;
/** Sends a message of the panel to the extension. */
let toExtension: (message: PanelMessage) => void;
let dispose: () => void;

/** Activate the extension, with a webview that opens when its view gets the focus. */
beforeEach(() => {
  vi.clearAllMocks();
  root = createRoot();
  secrets = new Map();
  view = null;
  Object.keys(double.settings).forEach((name) => delete double.settings[name]);
  double.settings["retriever.address"] = inject("address");
  double.workspace.workspaceFolders = [{ uri: double.Uri.file(home) }];
  double.window.activeTextEditor = undefined;
  double.registered.set("retriever.panel.focus", () => view ?? openView());
  activate({
    subscriptions: [],
    extensionUri: double.Uri.file(EXTENSION),
    secrets: {
      get: async (key: string) => secrets.get(key),
      store: async (key: string, value: string) => void secrets.set(key, value),
      delete: async (key: string) => void secrets.delete(key),
    },
  } as never);
});

function openView(): void {
  const { MessageEvent } = windowOf(root);
  view = {
    webview: {
      html: "",
      cspSource: "https://webview.example",
      asWebviewUri: (uri: double.Uri) => `https://webview.example${uri.fsPath}`,
      onDidReceiveMessage: (listener: typeof toExtension) => (toExtension = listener),
      // As in VS Code, messages are copies.
      postMessage: async (message: ExtensionMessage) =>
        windowOf(root).dispatchEvent(new MessageEvent("message", { data: copy(message) })),
    },
    onDidDispose: (listener: () => void) => (dispose = listener),
  };
  double.providers.get("retriever.panel").resolveWebviewView(view);
  startPanel(root, windowOf(root), (message) => {
    setTimeout(() => toExtension(copy(message)));
  });
}

function copy<T>(message: T): T {
  return JSON.parse(JSON.stringify(message));
}

async function find(text: string, title: string): Promise<void> {
  await double.executeCommand("retriever.search");
  type(root, ".retriever-query", text);
  await until(() => expect(texts(root, ".retriever-title")[0]).toBe(title));
}

/** Open a file in the editor, with the cursor on a line. */
function edit(path: string, line: string, selection = ""): void {
  double.window.activeTextEditor = {
    document: {
      uri: double.Uri.file(path),
      getText: () => selection,
      lineAt: () => ({ text: line }),
    },
    selection: { active: { line: 0 } },
  };
}

const opened = () => double.executeCommand.mock.calls.find(([name]) => name === "vscode.open");

describe("the panel", () => {
  it("opens a file at the line of the words", async () => {
    await find("E-4711", "Router");
    click(query(root, ".retriever-title"));
    await until(() => expect(opened()).toBeDefined());
    const [, uri, options] = opened()!;
    expect(uri.fsPath).toBe(join(home, "notes/router.md"));
    expect(options.selection.start).toEqual({ line: 6, character: 0 });
    expect(options.viewColumn).toBe(double.ViewColumn.Active);
  });

  it("opens a file without lines, beside with Ctrl", async () => {
    await double.executeCommand("retriever.search");
    type(root, ".retriever-query", "pets other than cats need consent");
    await until(() => expect(texts(root, ".retriever-place")[0]).toContain("lease.pdf"));
    click(query(root, ".retriever-title"), { ctrlKey: true });
    await until(() => expect(opened()).toBeDefined());
    expect(opened()![1].fsPath).toBe(join(home, "lease.pdf"));
    expect(opened()![2]).toEqual({ viewColumn: double.ViewColumn.Beside });
  });

  it("opens a file of an index of several folders", async () => {
    double.settings["retriever.index"] = "folders";
    await find("E-4711", "Router");
    click(query(root, ".retriever-title"));
    await until(() => expect(opened()?.[1].fsPath).toBe(join(home, "notes/router.md")));
  });

  it("opens files of the folder of the settings", async () => {
    double.workspace.workspaceFolders = [];
    double.settings["retriever.folder"] = home;
    await find("E-4711", "Router");
    click(query(root, ".retriever-title"));
    await until(() => expect(opened()?.[1].fsPath).toBe(join(home, "notes/router.md")));
  });

  it("shows the whole passage of a hit that is no file of the workspace", async () => {
    double.workspace.workspaceFolders = [];
    await find("zebra", '<b>Zebra</b> <img src=x onerror="throw 1">');
    click(query(root, ".retriever-title"));
    await until(() => query(root, ".retriever-whole"));
    expect(opened()).toBeUndefined();
    expect(root.querySelector("b, img, script")).toBeNull();
  });

  it("cancels the request of a search that a later search replaces", async () => {
    const closed = vi.fn();
    const silent = createServer((_, response) => response.on("close", closed));
    silent.listen(0, "127.0.0.1");
    await once(silent, "listening");
    const { port } = silent.address() as AddressInfo;
    const arrival = once(silent, "request");
    double.settings["retriever.address"] = `http://127.0.0.1:${port}`;
    await double.executeCommand("retriever.search");
    type(root, ".retriever-query", "router");
    await arrival;
    expect(closed).not.toHaveBeenCalled();
    double.settings["retriever.address"] = inject("address");
    await find("E-4711", "Router");
    await until(() => expect(closed).toHaveBeenCalledTimes(1));
    expect(texts(root, ".retriever-line")).toEqual([]);
    silent.close();
  });

  it("says why a search fails", async () => {
    double.settings["retriever.address"] = "http://127.0.0.1:1";
    await double.executeCommand("retriever.search");
    type(root, ".retriever-query", "owl");
    await until(() => expect(texts(root, ".retriever-line")[0]).toMatch(/^No service answers/));
  });

  it("searches for the selection of the editor", async () => {
    edit(join(home, "lease.pdf"), "", "E-4711\n");
    await double.executeCommand("retriever.search");
    await until(() => expect(texts(root, ".retriever-title")[0]).toBe("Router"));
  });

  it("opens again after it was closed", async () => {
    await find("E-4711", "Router");
    dispose();
    view = null;
    root = createRoot();
    await find("E-4711", "Router");
  });
});

describe("a hit outside of the folder", () => {
  const folder = mkdtempSync(join(tmpdir(), "retriever-outside-"));
  afterAll(() => rmSync(folder, { recursive: true }));

  it.each(["../secret.md", "inner/../../secret.md", join(folder, "secret.md")])(
    "such as %s is not opened",
    async (id) => {
      writeFileSync(join(folder, "secret.md"), "secret");
      double.workspace.workspaceFolders = [{ uri: double.Uri.file(join(folder, "inner")) }];
      const open = { type: "open", number: 1, hit: { id }, line: 1, isBeside: false };
      openView();
      const answers: ExtensionMessage[] = [];
      view.webview.postMessage = async (message: ExtensionMessage) => answers.push(message);
      toExtension(open as PanelMessage);
      await until(() => expect(answers).toEqual([{ type: "opened", number: 1, isOpened: false }]));
      expect(opened()).toBeUndefined();
    },
  );
});

describe("related files", () => {
  it("are those like the passage at the cursor", async () => {
    edit(join(home, "notes/meetings/2025-06-house.md"), "The roof leaks above the stairs.");
    await double.executeCommand("retriever.related");
    await until(() => expect(texts(root, ".retriever-title")[0]).toBe("House meeting"));
    expect(texts(root, ".retriever-place")[0]).toContain("2026-02-house.md");
  });

  it("of no file say to open a file", async () => {
    await double.executeCommand("retriever.related");
    await until(() => expect(texts(root, ".retriever-line")).toEqual(["Open a file first."]));
  });

  it("of a file outside of the folder say so", async () => {
    edit(join(dirname(home), "owl.md"), "");
    await double.executeCommand("retriever.related");
    const sentence = "This file is in none of the indexed folders.";
    await until(() => expect(texts(root, ".retriever-line")).toEqual([sentence]));
  });
});

describe("the token", () => {
  async function enter(token: string | undefined): Promise<void> {
    double.window.showInputBox.mockResolvedValue(token);
    await double.executeCommand("retriever.setToken");
  }

  it("is asked for, kept as a secret, and used", async () => {
    double.settings["retriever.address"] = inject("lockedAddress");
    await double.executeCommand("retriever.search");
    type(root, ".retriever-query", "E-4711");
    const sentence =
      'The service needs a token. Enter its token with the command "Retriever: Set Token".';
    await until(() => expect(texts(root, ".retriever-line")).toEqual([sentence]));
    await enter(` ${TOKEN}`);
    await find("E-4711", "Router");
    expect([...secrets.values()]).toEqual([TOKEN]);
  });

  it("is deleted by an empty entry, and stays after Escape", async () => {
    await enter("a");
    await enter(undefined);
    expect([...secrets.values()]).toEqual(["a"]);
    await enter("");
    expect(secrets.size).toBe(0);
  });
});

describe("the page of the webview", () => {
  it("may run its own script and nothing else", () => {
    openView();
    const { html, options } = view.webview;
    const nonce = /nonce="(\w{32})"/.exec(html)![1];
    expect(html).toContain(`script-src 'nonce-${nonce}'`);
    expect(html).toContain("default-src 'none'; style-src https://webview.example;");
    expect(html).toContain(`src="https://webview.example${EXTENSION}/webview.js"`);
    expect(options.localResourceRoots.map(String)).toEqual([`file://${EXTENSION}`]);
  });
});
