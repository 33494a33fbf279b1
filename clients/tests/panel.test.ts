import { beforeEach, describe, expect, inject, it, vi } from "vitest";

import { Client, type SearchRequest, type SearchResult } from "../shared/client";
import { type PanelActions, SearchPanel } from "../shared/panel";
import { buttonOf, click, createRoot, press, query, texts, type, until, windowOf } from "./page";

const client = new Client({
  address: inject("address"),
  index: "",
  k: 5,
  token: "",
  tokenPlace: "in the settings",
});
const search = vi.fn<PanelActions["search"]>();
const open = vi.fn<PanelActions["open"]>();
let root: HTMLElement;
let panel: SearchPanel;

beforeEach(() => {
  search.mockReset().mockImplementation((request, signal) => client.search(request, signal));
  open.mockReset().mockResolvedValue(true);
  root = createRoot();
  panel = new SearchPanel(root, { search, open }, 10);
});

/** Type a query and wait for its first title. */
async function find(text: string, title: string): Promise<void> {
  type(root, ".retriever-query", text);
  await until(() => expect(texts(root, ".retriever-title")[0]).toBe(title));
}

function resultOf(id: string): SearchResult {
  const hit = { rank: 1, score: 1, title: null, passage: id, start: 0, stop: 1, metadata: {} };
  return { hits: [{ ...hit, id }], warnings: [] };
}

describe("typing", () => {
  it("shows hits with title, place and passage with the words of the query", async () => {
    await find("E-4711", "Router");
    expect(texts(root, ".retriever-place")[0]).toMatch(/^notes\/router\.md.* · lines 3-10$/);
    expect(texts(root, ".retriever-passage")[0]).toContain("the cable to the wall is loose");
    expect(texts(root, ".retriever-mark")).toContain("E-4711");
  });

  it("searches once after a pause", async () => {
    for (const text of ["E", "E-4", "E-4711"]) type(root, ".retriever-query", text);
    await until(() => expect(texts(root, ".retriever-title")[0]).toBe("Router"));
    expect(search.mock.calls.map(([request]) => request)).toEqual([{ query: "E-4711" }]);
  });

  it("cancels the earlier search, whose answer is not shown", async () => {
    const answers: ((result: SearchResult) => void)[] = [];
    const signals: AbortSignal[] = [];
    search.mockImplementation((_: SearchRequest, signal) => {
      signals.push(signal);
      return new Promise((resolve) => answers.push(resolve));
    });
    type(root, ".retriever-query", "first");
    await until(() => expect(signals).toHaveLength(1));
    type(root, ".retriever-query", "second");
    expect(signals[0]!.aborted).toBe(true);
    await until(() => expect(signals).toHaveLength(2));
    answers[1]!(resultOf("second.md"));
    await until(() => expect(texts(root, ".retriever-title")).toEqual(["second.md"]));
    answers[0]!(resultOf("first.md"));
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(texts(root, ".retriever-title")).toEqual(["second.md"]);
    expect(signals[1]!.aborted).toBe(false);
  });

  it("an empty query empties the panel", async () => {
    await find("E-4711", "Router");
    type(root, ".retriever-query", " ");
    await until(() => expect(texts(root, ".retriever-hit")).toEqual([]));
    expect(search).toHaveBeenCalledTimes(1);
  });

  it("a filter narrows the hits", async () => {
    await find("the key to the cellar", "House meeting");
    type(root, ".retriever-filter", 'tags contains "garden"');
    await until(() => expect(texts(root, ".retriever-title")).toEqual(["Garden"]));
  });
});

describe("foreign text", () => {
  it("with markup is shown as text", async () => {
    await find("zebra", '<b>Zebra</b> <img src=x onerror="throw 1">');
    expect(texts(root, ".retriever-passage")[0]).toContain("<script>throw 2</script>");
    expect(root.querySelectorAll("b, img, script")).toHaveLength(0);
    expect(texts(root, "mark").map((text) => text.toLowerCase())).toContain("zebra");
    expect(texts(root, "mark")).not.toContain("stripes");
  });

  it("in messages is shown as text", () => {
    panel.fail("<img src=x onerror=alert(1)>");
    expect(texts(root, ".retriever-line")).toEqual(["<img src=x onerror=alert(1)>"]);
    expect(root.querySelector("img")).toBeNull();
  });
});

describe("messages", () => {
  it("say why a search fails, and earlier hits go", async () => {
    await find("E-4711", "Router");
    type(root, ".retriever-filter", "year >");
    await until(() => expect(texts(root, ".retriever-line")[0]).toMatch(/^filter, character 7/));
    expect(texts(root, ".retriever-hit")).toEqual([]);
  });

  it("say that a service is down", async () => {
    const address = "http://127.0.0.1:1";
    const down = new Client({ address, index: "", k: 5, token: "", tokenPlace: "" });
    search.mockImplementation((request, signal) => down.search(request, signal));
    type(root, ".retriever-query", "owl");
    await until(() => expect(texts(root, ".retriever-line")[0]).toMatch(/^No service answers/));
  });

  it("say what emptied the result", async () => {
    type(root, ".retriever-filter", 'tags contains "none"');
    type(root, ".retriever-query", "key");
    await until(() => expect(texts(root, ".retriever-line")[0]).toMatch(/filter/));
  });

  it("name words that the query leaves out", async () => {
    type(root, ".retriever-query", "key to the cellar -lind");
    await until(() => expect(texts(root, ".retriever-notice")[0]).toMatch(/lind/));
  });

  it("offer another spelling, which is searched for", async () => {
    search.mockResolvedValueOnce({ hits: [], warnings: [], did_you_mean: "E-4711" });
    type(root, ".retriever-query", "E-4712");
    const button = await until(() => buttonOf(root, "Did you mean: E-4711"));
    click(button);
    await until(() => expect(texts(root, ".retriever-title")[0]).toBe("Router"));
    expect(query<HTMLInputElement>(root, ".retriever-query").value).toBe("E-4711");
  });

  it("say that a slow search runs", async () => {
    search.mockReturnValue(new Promise(() => {}));
    type(root, ".retriever-query", "owl");
    await until(() => expect(texts(root, ".retriever-line")).toEqual(["Searching …"]));
  });
});

describe("a hit", () => {
  it("is opened by its title at the line of the words, and beside with Ctrl", async () => {
    await find("E-4711", "Router");
    const title = query(root, ".retriever-title");
    click(title);
    click(title, { ctrlKey: true });
    const calls = open.mock.calls.map(([hit, line, isBeside]) => [hit.id, line, isBeside]);
    expect(calls).toEqual([
      ["notes/router.md", 7, false],
      ["notes/router.md", 7, true],
    ]);
  });

  it("is opened by its passage, unless text is selected", async () => {
    await find("E-4711", "Router");
    const passage = query(root, ".retriever-passage");
    windowOf(root).getSelection()!.selectAllChildren(passage);
    click(passage);
    expect(open).not.toHaveBeenCalled();
    windowOf(root).getSelection()!.removeAllRanges();
    click(passage);
    expect(open).toHaveBeenCalledTimes(1);
  });

  it("without a file is shown whole", async () => {
    open.mockResolvedValue(false);
    await find("E-4711", "Router");
    click(query(root, ".retriever-title"));
    await until(() => query(root, ".retriever-whole"));
  });

  it("that cannot be opened says why and is shown whole", async () => {
    open.mockRejectedValue(new Error("The file is locked."));
    await find("E-4711", "Router");
    click(query(root, ".retriever-title"));
    await until(() => expect(texts(root, ".retriever-line")).toEqual(["The file is locked."]));
    query(root, ".retriever-whole");
  });

  it("unfolds and folds its passage", async () => {
    await find("E-4711", "Router");
    click(buttonOf(root, "Whole passage"));
    query(root, ".retriever-whole");
    click(buttonOf(root, "Less"));
    expect(root.querySelector(".retriever-whole")).toBeNull();
  });

  it("leads to documents like it, in place of the query", async () => {
    await find("The roof leaks above the stairs", "House meeting");
    const id = texts(root, ".retriever-place")[0]!.split(" · ")[0];
    expect(id).toBe("notes/meetings/2025-06-house.md");
    click(buttonOf(root, "More like this"));
    await until(() => expect(texts(root, ".retriever-line")).toEqual([`Like ${id}:`]));
    expect(texts(root, ".retriever-place")[0]).toContain("notes/meetings/2026-02-house.md");
    expect(query<HTMLInputElement>(root, ".retriever-query").value).toBe("");
  });
});

describe("keys", () => {
  it("lead from the box to the hits and back", async () => {
    await find("the key to the cellar", "House meeting");
    const focused = () => root.ownerDocument.activeElement;
    const titles = root.querySelectorAll(".retriever-title");
    query(root, ".retriever-query").focus();
    press(root, "ArrowDown");
    expect(focused()).toBe(titles[0]);
    press(root, "ArrowDown");
    expect(focused()).toBe(titles[1]);
    press(root, "ArrowUp");
    press(root, "ArrowUp");
    expect(focused()).toBe(query(root, ".retriever-query"));
    press(root, "ArrowDown");
    press(root, "Escape");
    expect(focused()).toBe(query(root, ".retriever-query"));
  });

  it("Enter searches again", async () => {
    await find("E-4711", "Router");
    query(root, ".retriever-query").focus();
    press(root, "Enter");
    await until(() => expect(search).toHaveBeenCalledTimes(2));
  });
});

describe("closing", () => {
  it("cancels the search that runs", async () => {
    search.mockReturnValue(new Promise(() => {}));
    type(root, ".retriever-query", "owl");
    await until(() => expect(search).toHaveBeenCalled());
    panel.stop();
    expect(search.mock.calls[0]![1].aborted).toBe(true);
  });
});
