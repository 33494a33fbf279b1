import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runInNewContext } from "node:vm";
import { unzipSync } from "fflate";
import { JSDOM } from "jsdom";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

// @ts-expect-error: a script without types.
import { packageClients } from "../package.mjs";
import * as obsidian from "./doubles/obsidian";
import * as vscode from "./doubles/vscode";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const dist = mkdtempSync(join(tmpdir(), "retriever-dist-"));
let folder: string;
let files: Record<string, string>;

beforeAll(async () => {
  const paths = await packageClients(dist);
  folder = paths.obsidian;
  const entries = Object.entries(unzipSync(readFileSync(paths.vsix)));
  files = Object.fromEntries(entries.map(([name, bytes]) => [name, Buffer.from(bytes).toString()]));
});

afterAll(() => rmSync(dist, { recursive: true }));

/** Run a script as an editor does, with the editor's module, and return what it exports. */
function load(script: string, editor: string, double: unknown): any {
  const module = { exports: {} };
  const nodeRequire = createRequire(import.meta.url);
  const require = (name: string) => (name === editor ? double : nodeRequire(name));
  runInNewContext(script, { module, exports: module.exports, require, URL });
  return module.exports;
}

const json = (...path: string[]) => JSON.parse(readFileSync(join(ROOT, ...path), "utf8"));

describe("the Obsidian plugin", () => {
  it("has the three files that Obsidian reads", () => {
    expect(readdirSync(folder).sort()).toEqual(["main.js", "manifest.json", "styles.css"]);
  });

  it("loads with Obsidian's module alone", () => {
    const script = readFileSync(join(folder, "main.js"), "utf8");
    const requires = [...script.matchAll(/require\("([^"]+)"\)/g)].map(([, name]) => name);
    expect(new Set(requires)).toEqual(new Set(["obsidian"]));
    expect(load(script, "obsidian", obsidian).default.prototype).toBeInstanceOf(obsidian.Plugin);
  });
});

describe("the VSIX", () => {
  it("has manifests that name its files and the version of the package", () => {
    const manifest = files["extension.vsixmanifest"]!;
    const { window } = new JSDOM(manifest, { contentType: "text/xml" });
    const { name, version, publisher } = json("vscode", "package.json");
    const identity = window.document.querySelector("Identity")!;
    const values = ["Id", "Version", "Publisher"].map((name) => identity.getAttribute(name));
    expect(values).toEqual([name, version, publisher]);
    for (const asset of window.document.querySelectorAll("Asset")) {
      expect(files).toHaveProperty([asset.getAttribute("Path")!]);
    }
    expect(json("obsidian", "manifest.json").version).toBe(version);
    expect(json("package.json").version).toBe(version);
  });

  it("has a content type for every kind of file", () => {
    const types = [...files["[Content_Types].xml"]!.matchAll(/Extension="(\.\w+)"/g)];
    const known = new Set(types.map(([, extension]) => extension));
    for (const name of Object.keys(files).slice(1)) {
      expect(known).toContain(/\.\w+$/.exec(name)![0]);
    }
  });

  it("registers the commands and the view that it declares", () => {
    const { contributes, main } = JSON.parse(files["extension/package.json"]!);
    const context = { subscriptions: [], extensionUri: null, secrets: null };
    vscode.registered.clear();
    vscode.providers.clear();
    const script = files[`extension/${main}`]!;
    expect(script).not.toMatch(/require\("(?!vscode"|node:)/);
    load(script, "vscode", vscode).activate(context);
    const names = contributes.commands.map(({ command }: { command: string }) => command);
    expect([...vscode.registered.keys()]).toEqual(names);
    const [{ id }] = contributes.views.retriever;
    expect([...vscode.providers.keys()]).toEqual([id]);
  });

  it("runs its panel in a page", () => {
    const messages: unknown[] = [];
    const { window } = new JSDOM("<body></body>", { runScripts: "outside-only" });
    const postMessage = (message: unknown) => messages.push(message);
    Object.assign(window, { acquireVsCodeApi: () => ({ postMessage }) });
    window.eval(files["extension/webview.js"]!);
    expect(messages).toEqual([{ type: "ready" }]);
    expect(window.document.querySelector(".retriever-query")).not.toBeNull();
  });

  it("has the same bytes whenever it is built", async () => {
    const first = readFileSync(join(dist, "retriever.vsix"));
    const { vsix } = await packageClients(dist);
    expect(readFileSync(vsix).equals(first)).toBe(true);
  });
});
