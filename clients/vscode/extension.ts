/** The VS Code extension: a search panel, and the files like the current file. */

import { randomBytes } from "node:crypto";
import { stat } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, isAbsolute, relative, resolve, sep } from "node:path";

import * as vscode from "vscode";

import { Client, type Hit } from "../shared/client";
import { idsOf, pathsOf } from "../shared/hits";
import type { ExtensionMessage, PanelMessage } from "./messages";

const VIEW = "retriever.panel";
/** The key of the token in VS Code's storage of secrets. */
const TOKEN_KEY = "retriever.token";

export function activate(context: vscode.ExtensionContext): void {
  const provider = new PanelProvider(context);
  const options = { webviewOptions: { retainContextWhenHidden: true } };
  context.subscriptions.push(
    vscode.window.registerWebviewViewProvider(VIEW, provider, options),
    vscode.commands.registerCommand("retriever.search", () => searchSelection(provider)),
    vscode.commands.registerCommand("retriever.related", () => showRelated(provider)),
    vscode.commands.registerCommand("retriever.setToken", () => enterToken(context)),
  );
}

async function searchSelection(provider: PanelProvider): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  const text = editor?.document.getText(editor.selection).trim() ?? "";
  await provider.show({ type: "find", text });
}

/** Show the files that are like the passage of the current file at the cursor. */
async function showRelated(provider: PanelProvider): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor) {
    await provider.show({ type: "fail", message: "Open a file first." });
    return;
  }
  const path = editor.document.uri.fsPath;
  const ids = folders()
    .filter((folder) => isInside(path, folder))
    .flatMap((folder) => idsOf(relative(folder, path).split(sep).join("/"), basename(folder)));
  const line = editor.document.lineAt(editor.selection.active.line).text;
  try {
    const client = await provider.client();
    await provider.show({ type: "similar", like: await client.passageAt(ids, line) });
  } catch (error) {
    await provider.show({ type: "fail", message: (error as Error).message });
  }
}

async function enterToken(context: vscode.ExtensionContext): Promise<void> {
  const prompt = "Token of the service; empty for a service without a token";
  const token = await vscode.window.showInputBox({ prompt, password: true, ignoreFocusOut: true });
  // Escape leaves the token as it is.
  if (token === undefined) return;
  if (token.trim()) await context.secrets.store(TOKEN_KEY, token.trim());
  else await context.secrets.delete(TOKEN_KEY);
}

/** Return the folders that ids of files refer to. */
function folders(): string[] {
  const folder = vscode.workspace.getConfiguration("retriever").get("folder", "").trim();
  if (folder) return [resolve(folder.replace(/^~(?=$|[\\/])/, homedir()))];
  return (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => uri.fsPath);
}

function isInside(path: string, folder: string): boolean {
  const inner = relative(folder, path);
  return inner !== "" && inner.split(sep)[0] !== ".." && !isAbsolute(inner);
}

/** Return the path of a hit's file inside a folder; null if there is no such file. */
async function filePath(hit: Hit): Promise<string | null> {
  for (const folder of folders()) {
    for (const name of pathsOf(hit.id, basename(folder))) {
      const path = resolve(folder, name);
      if (!isInside(path, folder)) continue;
      const isFile = await stat(path).then(
        (status) => status.isFile(),
        () => false,
      );
      if (isFile) return path;
    }
  }
  return null;
}

/** Open the file of a hit at its line; false if there is no such file. */
async function openHit(hit: Hit, line: number | null, isBeside: boolean): Promise<boolean> {
  const path = await filePath(hit);
  if (path === null) return false;
  // VS Code counts lines from 0.
  const position = new vscode.Position((line ?? 1) - 1, 0);
  await vscode.commands.executeCommand("vscode.open", vscode.Uri.file(path), {
    viewColumn: isBeside ? vscode.ViewColumn.Beside : vscode.ViewColumn.Active,
    ...(line === null ? {} : { selection: new vscode.Range(position, position) }),
  });
  return true;
}

class PanelProvider implements vscode.WebviewViewProvider {
  private view: vscode.WebviewView | null = null;
  private isReady = false;
  /** What to show once the panel is ready. */
  private pending: ExtensionMessage | null = null;
  private readonly running = new Map<number, AbortController>();

  constructor(private readonly context: vscode.ExtensionContext) {}

  async client(): Promise<Client> {
    const settings = vscode.workspace.getConfiguration("retriever");
    return new Client({
      address: settings.get("address", ""),
      index: settings.get("index", ""),
      k: settings.get("hits", 10),
      token: (await this.context.secrets.get(TOKEN_KEY)) ?? "",
      tokenPlace: 'with the command "Retriever: Set Token"',
    });
  }

  /** Open the panel and send it a message. */
  async show(message: ExtensionMessage): Promise<void> {
    this.pending = message;
    await vscode.commands.executeCommand(`${VIEW}.focus`);
    this.sendPending();
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    const { webview } = view;
    const root = this.context.extensionUri;
    this.view = view;
    this.isReady = false;
    webview.options = { enableScripts: true, localResourceRoots: [root] };
    const addressOf = (name: string) => webview.asWebviewUri(vscode.Uri.joinPath(root, name));
    webview.onDidReceiveMessage((message: PanelMessage) => this.receive(message));
    view.onDidDispose(() => {
      this.view = null;
      this.running.forEach((controller) => controller.abort());
    });
    webview.html = page(
      String(addressOf("webview.js")),
      String(addressOf("panel.css")),
      webview.cspSource,
    );
  }

  private async receive(message: PanelMessage): Promise<void> {
    if (message.type === "ready") {
      this.isReady = true;
      this.sendPending();
      return;
    }
    const { number } = message;
    if (message.type === "cancel") {
      this.running.get(number)?.abort();
      return;
    }
    const controller = new AbortController();
    this.running.set(number, controller);
    try {
      if (message.type === "search") {
        const client = await this.client();
        const result = await client.search(message.request, controller.signal);
        this.send({ type: "result", number, result });
      } else {
        const isOpened = await openHit(message.hit, message.line, message.isBeside);
        this.send({ type: "opened", number, isOpened });
      }
    } catch (error) {
      this.send({ type: "failure", number, message: (error as Error).message });
    } finally {
      this.running.delete(number);
    }
  }

  private sendPending(): void {
    if (!this.isReady || this.pending === null) return;
    this.send(this.pending);
    this.pending = null;
  }

  private send(message: ExtensionMessage): void {
    void this.view?.webview.postMessage(message);
  }
}

/** Return the page of the panel, which may load its script and its style alone. */
function page(script: string, style: string, source: string): string {
  const nonce = randomBytes(16).toString("hex");
  const policy = `default-src 'none'; style-src ${source}; script-src 'nonce-${nonce}'`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<link rel="stylesheet" href="${style}">
<title>Search by meaning</title>
</head>
<body><script nonce="${nonce}" src="${script}"></script></body>
</html>
`;
}
