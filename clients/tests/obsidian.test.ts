import { beforeEach, describe, expect, inject, it, vi } from "vitest";

import RetrieverPlugin, { sendByObsidian, VIEW_TYPE } from "../obsidian/main";
import { buttonOf, click, createRoot, query, texts, type, until, windowOf } from "./page";
import { TOKEN } from "./services";

const VAULT = [
  "notes/router.md",
  "recipes/bread.md",
  "lease.pdf",
  "notes/meetings/2025-06-house.md",
];

const openFile = vi.fn();
const openLinkText = vi.fn();
const getLeaf = vi.fn(() => ({ openFile }));
let storage: Map<string, unknown>;
let panelRoot: HTMLElement;
let settingsRoot: HTMLElement;
let app: any;
let plugin: any;

/** A vault with the indexed files, in which one note may be open. */
beforeEach(async () => {
  vi.clearAllMocks();
  storage = new Map();
  panelRoot = createRoot();
  settingsRoot = createRoot();
  const leaves: any[] = [];
  const fileAt = (path: string) =>
    VAULT.includes(path) ? { path, extension: path.split(".").pop() } : null;
  app = {
    element: settingsRoot,
    vault: { getName: () => "home", getFileByPath: fileAt },
    workspace: {
      activeEditor: null,
      getActiveFile: () => null,
      getLeavesOfType: () => leaves,
      getRightLeaf: () => ({
        element: panelRoot,
        async setViewState({ type }: { type: string }) {
          this.view = plugin.views.get(type)(this);
          await this.view.onOpen();
          leaves.push(this);
        },
        view: null as any,
      }),
      revealLeaf: vi.fn(),
      getLeaf,
      openLinkText,
    },
    loadLocalStorage: (key: string) => storage.get(key) ?? null,
    saveLocalStorage: (key: string, value: unknown) => storage.set(key, value),
  };
  plugin = new RetrieverPlugin(app, {} as never);
  plugin.data = { address: inject("address") };
  await plugin.onload();
});

const commandOf = (id: string) => plugin.commands.find((command: any) => command.id === id);

async function openPanel(): Promise<void> {
  commandOf("search-by-meaning").callback();
  await until(() => query(panelRoot, ".retriever-query"));
}

async function find(text: string, title: string): Promise<void> {
  await openPanel();
  type(panelRoot, ".retriever-query", text);
  await until(() => expect(texts(panelRoot, ".retriever-title")[0]).toBe(title));
}

function openNote(path: string, line: string): void {
  app.workspace.getActiveFile = () => ({ path });
  const editor = { getCursor: () => ({ line: 0 }), getLine: () => line, getSelection: () => "" };
  app.workspace.activeEditor = { editor };
}

describe("the panel", () => {
  it("opens a note at the line of the words", async () => {
    await find("E-4711", "Router");
    click(query(panelRoot, ".retriever-title"));
    await until(() => expect(openFile).toHaveBeenCalled());
    expect(openFile.mock.calls[0]).toMatchObject([
      { path: "notes/router.md" },
      { eState: { line: 6 } },
    ]);
    expect(getLeaf).toHaveBeenCalledWith(false);
  });

  it("opens a note in a new tab with Ctrl", async () => {
    await find("E-4711", "Router");
    click(query(panelRoot, ".retriever-title"), { ctrlKey: true });
    await until(() => expect(getLeaf).toHaveBeenCalledWith("tab"));
  });

  it("opens a PDF at the page of the hit", async () => {
    await openPanel();
    type(panelRoot, ".retriever-query", "pets other than cats need consent");
    await until(() => expect(texts(panelRoot, ".retriever-place")[0]).toContain("lease.pdf"));
    click(query(panelRoot, ".retriever-title"));
    await until(() => expect(openLinkText).toHaveBeenCalled());
    expect(openLinkText.mock.calls[0]).toEqual(["lease.pdf#page=1", "", false]);
  });

  it("opens a note of an index of several folders", async () => {
    plugin.settings.index = "folders";
    await find("E-4711", "Router");
    expect(texts(panelRoot, ".retriever-place")[0]).toContain("home/notes/router.md");
    click(query(panelRoot, ".retriever-title"));
    await until(() => expect(openFile).toHaveBeenCalled());
    expect(openFile.mock.calls[0]![0].path).toBe("notes/router.md");
  });

  it("shows the whole passage of a hit that is no file of the vault", async () => {
    await find("zebra", '<b>Zebra</b> <img src=x onerror="throw 1">');
    click(query(panelRoot, ".retriever-title"));
    await until(() => query(panelRoot, ".retriever-whole"));
    expect(openFile).not.toHaveBeenCalled();
    expect(panelRoot.querySelector("b, img, script")).toBeNull();
  });

  it("searches for the selection of a note", async () => {
    openNote("notes/router.md", "");
    app.workspace.activeEditor.editor.getSelection = () => " E-4711 ";
    commandOf("search-by-meaning").callback();
    await until(() => expect(texts(panelRoot, ".retriever-title")[0]).toBe("Router"));
  });

  it("that is open is used again", async () => {
    await openPanel();
    const input = query(panelRoot, ".retriever-query");
    await openPanel();
    expect(query(panelRoot, ".retriever-query")).toBe(input);
    expect(app.workspace.revealLeaf).toHaveBeenCalledTimes(2);
  });
});

describe("related notes", () => {
  const related = () => commandOf("related-notes").checkCallback(false);

  it("are those like the passage at the cursor", async () => {
    openNote("notes/meetings/2025-06-house.md", "The roof leaks above the stairs.");
    related();
    await until(() => expect(texts(panelRoot, ".retriever-title")[0]).toBe("House meeting"));
    expect(texts(panelRoot, ".retriever-place")[0]).toContain("2026-02-house.md");
  });

  it("are offered only where a note is open", () => {
    expect(commandOf("related-notes").checkCallback(true)).toBe(false);
    openNote("notes/router.md", "");
    expect(commandOf("related-notes").checkCallback(true)).toBe(true);
  });

  it("of a note that the index lacks say so", async () => {
    openNote("new.md", "");
    related();
    await until(() =>
      expect(texts(panelRoot, ".retriever-line")[0]).toBe(
        "the index holds no document 'home/new.md'",
      ),
    );
  });
});

describe("settings", () => {
  function set(name: string, value: string): void {
    plugin.tabs[0].display();
    const label = [...settingsRoot.querySelectorAll("label")].find(
      (candidate) => candidate.textContent === name,
    )!;
    const input = label.querySelector("input")!;
    input.value = value;
    input.dispatchEvent(new (windowOf(settingsRoot).Event)("input"));
  }

  it("begin with a service on this machine", async () => {
    plugin.data = null;
    await plugin.onload();
    expect(plugin.settings).toEqual({ address: "http://127.0.0.1:8765", index: "", k: 10 });
  });

  it("are saved, and used by the next search", async () => {
    set("Number of hits", "2");
    await until(() => expect(plugin.data.k).toBe(2));
    await find("E-4711", "Router");
    expect(texts(panelRoot, ".retriever-title")).toHaveLength(2);
  });

  it.each(["", "0", "1001", "x", "2.5"])("%j hits are the default number", async (text) => {
    set("Number of hits", text);
    expect(plugin.settings.k).toBe(10);
  });

  it("hold no token: it is used, and stays out of the vault", async () => {
    set("Address", inject("lockedAddress"));
    await openPanel();
    type(panelRoot, ".retriever-query", "E-4711");
    await until(() =>
      expect(texts(panelRoot, ".retriever-line")).toEqual([
        "The service needs a token. Enter its token in the plugin's settings.",
      ]),
    );
    set("Token", TOKEN);
    await find("E-4711", "Router");
    expect(JSON.stringify(plugin.data)).not.toContain(TOKEN);
    expect(query<HTMLInputElement>(settingsRoot, "label:last-child input").type).toBe("password");
  });
});

describe("a request", () => {
  it("that is canceled rejects as canceled", async () => {
    const controller = new AbortController();
    const url = `${inject("address")}/health`;
    const { signal } = controller;
    const answer = sendByObsidian({ url, method: "GET", headers: {}, signal });
    controller.abort();
    await expect(answer).rejects.toMatchObject({ name: "AbortError" });
  });
});

describe("closing the panel", () => {
  it("leaves nothing running", async () => {
    await find("E-4711", "Router");
    click(buttonOf(panelRoot, "More like this"));
    const [leaf] = app.workspace.getLeavesOfType(VIEW_TYPE);
    await leaf.view.onClose();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(texts(panelRoot, ".retriever-title")[0]).toBe("Router");
  });
});
