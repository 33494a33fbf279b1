/** The search panel: hits as you type. Foreign text becomes text nodes, never markup. */

import type { Hit, Like, SearchRequest, SearchResult } from "./client";
import { lineOf, passagePieces, placeText, titleOf } from "./hits";

export interface PanelActions {
  /** Search; rejects with a sentence for the user, or when the signal aborts. */
  search(request: SearchRequest, signal: AbortSignal): Promise<SearchResult>;
  /** Open the file of a hit; false if there is no such file. */
  open(hit: Hit, line: number | null, isBeside: boolean): Promise<boolean>;
}

/** Milliseconds of a pause in typing. */
const PAUSE = 180;
/** Milliseconds until the panel says that it is searching. */
const SLOW = 400;

export class SearchPanel {
  private readonly document: Document;
  private readonly query: HTMLInputElement;
  private readonly filter: HTMLInputElement;
  private readonly notice: HTMLElement;
  private readonly hits: HTMLElement;
  private running: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** The passage whose similar documents are shown, in place of a query. */
  private like: Like | null = null;

  constructor(
    root: HTMLElement,
    private readonly actions: PanelActions,
    private readonly pause = PAUSE,
  ) {
    this.document = root.ownerDocument;
    this.query = this.input("search", "retriever-query", "Search by meaning");
    this.filter = this.input("text", "retriever-filter", 'Filter, such as modified >= "2026"');
    this.notice = this.element("div", "retriever-notice");
    this.notice.setAttribute("role", "status");
    this.hits = this.element("ol", "retriever-hits");
    root.classList.add("retriever-panel");
    root.replaceChildren(this.query, this.filter, this.notice, this.hits);
    root.addEventListener("keydown", (event) => this.moveFocus(event));
  }

  /** Put a text into the box, and search for it if there is any. */
  find(text: string): void {
    this.query.value = text || this.query.value;
    this.query.focus();
    this.query.select();
    if (text) this.searchSoon(0, null);
  }

  /** Show the documents that are like a passage. */
  showSimilar(like: Like): void {
    this.query.value = "";
    this.searchSoon(0, like);
  }

  /** Show why there is nothing to search for. */
  fail(message: string): void {
    this.stop();
    this.hits.replaceChildren();
    this.say(message);
  }

  /** Cancel what runs; the panel is closed. */
  stop(): void {
    clearTimeout(this.timer);
    this.running?.abort();
    this.running = null;
  }

  private searchSoon(pause: number, like: Like | null): void {
    this.stop();
    this.like = like;
    this.timer = setTimeout(() => void this.search(), pause);
  }

  private async search(): Promise<void> {
    const text = this.query.value.trim();
    const where = this.filter.value.trim();
    if (!text && !this.like) {
      this.hits.replaceChildren();
      this.say();
      return;
    }
    const controller = new AbortController();
    this.running = controller;
    const slow = setTimeout(() => this.say("Searching …"), SLOW);
    const request = this.like ? { like: this.like } : { query: text };
    try {
      const result = await this.actions.search(
        { ...request, ...(where ? { where } : {}) },
        controller.signal,
      );
      if (!controller.signal.aborted) this.show(result);
    } catch (error) {
      if (!controller.signal.aborted) {
        this.fail(error instanceof Error ? error.message : String(error));
      }
    } finally {
      clearTimeout(slow);
    }
  }

  private show(result: SearchResult): void {
    const { hits, no_hits: reason, note, did_you_mean: suggestion, warnings } = result;
    const lines: (string | Node)[] = [];
    if (this.like) lines.push(`Like ${this.like.id}:`);
    if (suggestion) {
      const choose = () => this.find(suggestion);
      lines.push(this.button("retriever-link", `Did you mean: ${suggestion}`, choose));
    }
    if (!hits.length) lines.push(reason ?? "No hits.");
    this.say(...lines, ...(note ? [note] : []), ...warnings);
    this.hits.replaceChildren(...hits.map((hit) => this.hitItem(hit)));
  }

  private hitItem(hit: Hit): HTMLElement {
    const item = this.element("li", "retriever-hit");
    const passage = this.element("p", "retriever-passage");
    let isWhole = false;
    const showPassage = () => {
      passage.classList.toggle("retriever-whole", isWhole);
      passage.replaceChildren(...this.passageNodes(hit, isWhole));
      whole.textContent = isWhole ? "Less" : "Whole passage";
      whole.setAttribute("aria-expanded", String(isWhole));
    };
    const open = async (event: MouseEvent) => {
      const isBeside = event.ctrlKey || event.metaKey;
      try {
        if (await this.actions.open(hit, lineOf(hit), isBeside)) return;
      } catch (error) {
        this.say(error instanceof Error ? error.message : String(error));
      }
      // A hit that is no file here is read here.
      isWhole = true;
      showPassage();
    };
    const whole = this.button("retriever-link", "", () => {
      isWhole = !isWhole;
      showPassage();
    });
    const more = this.button("retriever-link", "More like this", () =>
      this.showSimilar({ id: hit.id, start: hit.start }),
    );
    const place = this.element("div", "retriever-place", placeText(hit));
    const links = this.element("div", "retriever-links");
    links.append(whole, more);
    passage.addEventListener("click", (event) => {
      const isSelecting = this.document.getSelection()?.isCollapsed === false;
      if (!isSelecting) void open(event);
    });
    const title = this.button("retriever-title", titleOf(hit), (event) => void open(event));
    for (const part of [title, place, passage]) part.dir = "auto";
    showPassage();
    item.append(title, place, passage, links);
    return item;
  }

  private passageNodes(hit: Hit, isWhole: boolean): (string | Node)[] {
    return passagePieces(hit, isWhole).map(({ text, isMarked }) =>
      isMarked ? this.element("mark", "retriever-mark", text) : text,
    );
  }

  private say(...lines: (string | Node)[]): void {
    const paragraphs = lines.map((line) => {
      const paragraph = this.element("p", "retriever-line");
      paragraph.append(line);
      return paragraph;
    });
    this.notice.replaceChildren(...paragraphs);
  }

  /** The arrows lead from the box to the hits and between them, Escape back. */
  private moveFocus(event: KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const titles = [...this.hits.querySelectorAll<HTMLElement>(".retriever-title")];
    const current = titles.findIndex((title) => title === this.document.activeElement);
    const isInBox = this.document.activeElement === this.query;
    if (event.key === "Enter" && isInBox) this.searchSoon(0, null);
    if (event.key === "Escape" && current >= 0) this.query.focus();
    if (step === undefined || (current < 0 && !isInBox)) return;
    const next = current + step;
    if (next < 0) this.query.focus();
    else titles[next]?.focus();
    event.preventDefault();
  }

  private input(type: string, name: string, label: string): HTMLInputElement {
    const input = this.document.createElement("input");
    input.type = type;
    input.className = name;
    input.placeholder = label;
    input.spellcheck = false;
    input.setAttribute("aria-label", label);
    input.addEventListener("input", () => {
      // A filter narrows the similar documents too; a query replaces them.
      this.searchSoon(this.pause, input === this.query ? null : this.like);
    });
    return input;
  }

  private button(
    name: string,
    text: string,
    onClick: (event: MouseEvent) => void,
  ): HTMLButtonElement {
    const button = this.document.createElement("button");
    button.type = "button";
    button.className = name;
    button.textContent = text;
    button.addEventListener("click", onClick);
    return button;
  }

  private element(tag: string, name: string, text = ""): HTMLElement {
    const element = this.document.createElement(tag);
    element.className = name;
    element.textContent = text;
    return element;
  }
}
