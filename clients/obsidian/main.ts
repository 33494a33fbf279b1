/** The Obsidian plugin: a search panel beside the notes, and the notes like the current note. */

import {
  type App,
  ItemView,
  Plugin,
  PluginSettingTab,
  requestUrl,
  Setting,
  type TFile,
  type WorkspaceLeaf,
} from "obsidian";

import {
  Client,
  DEFAULT_ADDRESS,
  DEFAULT_K,
  type Hit,
  type HttpAnswer,
  type HttpRequest,
} from "../shared/client";
import { idsOf, pageOf, pathsOf } from "../shared/hits";
import { SearchPanel } from "../shared/panel";

export const VIEW_TYPE = "retriever-search";
/** The key of the token in this device's storage: files of the vault may be synchronized. */
const TOKEN_KEY = "retriever-token";

interface Settings {
  address: string;
  index: string;
  k: number;
}

const DEFAULTS: Settings = { address: DEFAULT_ADDRESS, index: "", k: DEFAULT_K };

/**
 * Send a request outside of the page, so that it has no `Origin` that the service refuses.
 *
 * Obsidian cannot cancel such a request; the promise rejects, and the answer is dropped.
 */
export function sendByObsidian({ signal, ...request }: HttpRequest): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const cancel = () => reject(new DOMException("The request is canceled.", "AbortError"));
    if (signal.aborted) cancel();
    signal.addEventListener("abort", cancel, { once: true });
    requestUrl({ ...request, throw: false }).then(resolve, reject);
  });
}

export default class RetrieverPlugin extends Plugin {
  settings: Settings = { ...DEFAULTS };

  override async onload(): Promise<void> {
    this.settings = { ...DEFAULTS, ...(await this.loadData()) };
    this.registerView(VIEW_TYPE, (leaf) => new SearchView(leaf, this));
    this.addSettingTab(new SettingTab(this.app, this));
    this.addRibbonIcon("search", "Search by meaning", () => void this.searchSelection());
    this.addCommand({
      id: "search-by-meaning",
      name: "Search by meaning",
      callback: () => void this.searchSelection(),
    });
    this.addCommand({
      id: "related-notes",
      name: "Related notes",
      checkCallback: (isCheck) => {
        const file = this.app.workspace.getActiveFile();
        if (file && !isCheck) void this.showRelated(file);
        return file !== null;
      },
    });
  }

  client(): Client {
    const options = { ...this.settings, token: this.token, tokenPlace: "in the plugin's settings" };
    return new Client(options, sendByObsidian);
  }

  get token(): string {
    return this.app.loadLocalStorage(TOKEN_KEY) ?? "";
  }

  set token(token: string) {
    this.app.saveLocalStorage(TOKEN_KEY, token || null);
  }

  async saveSettings(): Promise<void> {
    await this.saveData(this.settings);
  }

  /** Open the file of a hit at its line or page; false if the vault has no such file. */
  async open(hit: Hit, line: number | null, isBeside: boolean): Promise<boolean> {
    const { vault, workspace } = this.app;
    for (const path of pathsOf(hit.id, vault.getName())) {
      const file = vault.getFileByPath(path);
      if (!file) continue;
      const page = pageOf(hit);
      if (page !== null && file.extension === "pdf") {
        await workspace.openLinkText(`${file.path}#page=${page}`, "", isBeside);
      } else {
        // Obsidian counts lines from 0.
        const place = line === null ? {} : { eState: { line: line - 1 } };
        await workspace.getLeaf(isBeside ? "tab" : false).openFile(file, place);
      }
      return true;
    }
    return false;
  }

  private async searchSelection(): Promise<void> {
    const selection = this.app.workspace.activeEditor?.editor?.getSelection() ?? "";
    const panel = await this.panel();
    panel?.find(selection.trim());
  }

  /** Show the notes that are like the passage of a note at the cursor. */
  private async showRelated(file: TFile): Promise<void> {
    const editor = this.app.workspace.activeEditor?.editor;
    const line = editor ? editor.getLine(editor.getCursor().line) : "";
    const panel = await this.panel();
    try {
      const ids = idsOf(file.path, this.app.vault.getName());
      panel?.showSimilar(await this.client().passageAt(ids, line));
    } catch (error) {
      panel?.fail((error as Error).message);
    }
  }

  private async panel(): Promise<SearchPanel | null> {
    const { workspace } = this.app;
    const leaf = workspace.getLeavesOfType(VIEW_TYPE)[0] ?? workspace.getRightLeaf(false);
    if (!leaf) return null;
    if (!(leaf.view instanceof SearchView)) {
      await leaf.setViewState({ type: VIEW_TYPE, active: true });
    }
    await workspace.revealLeaf(leaf);
    return leaf.view instanceof SearchView ? leaf.view.panel : null;
  }
}

class SearchView extends ItemView {
  panel: SearchPanel | null = null;
  override icon = "search";

  constructor(
    leaf: WorkspaceLeaf,
    private readonly plugin: RetrieverPlugin,
  ) {
    super(leaf);
  }

  getViewType(): string {
    return VIEW_TYPE;
  }

  getDisplayText(): string {
    return "Search by meaning";
  }

  override async onOpen(): Promise<void> {
    this.panel = new SearchPanel(this.contentEl, {
      search: (request, signal) => this.plugin.client().search(request, signal),
      open: (hit, line, isBeside) => this.plugin.open(hit, line, isBeside),
    });
  }

  override async onClose(): Promise<void> {
    this.panel?.stop();
  }
}

class SettingTab extends PluginSettingTab {
  constructor(
    app: App,
    private readonly plugin: RetrieverPlugin,
  ) {
    super(app, plugin);
  }

  override display(): void {
    const { plugin, containerEl } = this;
    const { settings } = plugin;
    containerEl.replaceChildren();
    const address = "The address that retriever serve prints.";
    this.addText("Address", address, settings.address, (text) => {
      settings.address = text.trim() || DEFAULT_ADDRESS;
    });
    this.addText("Index", "Name of an index; empty for the first.", settings.index, (text) => {
      settings.index = text.trim();
    });
    this.addText("Number of hits", "From 1 to 1,000.", String(settings.k), (text) => {
      const k = Number(text);
      settings.k = Number.isInteger(k) && k >= 1 && k <= 1000 ? k : DEFAULT_K;
    });
    const token = "Only for a service with a token. It stays on this device.";
    this.addText("Token", token, plugin.token, (text) => {
      plugin.token = text.trim();
    }).type = "password";
  }

  private addText(
    name: string,
    description: string,
    value: string,
    change: (text: string) => void,
  ): HTMLInputElement {
    let input: HTMLInputElement | undefined;
    new Setting(this.containerEl)
      .setName(name)
      .setDesc(description)
      .addText((text) => {
        input = text.inputEl;
        text.setValue(value).onChange(async (entry) => {
          change(entry);
          await this.plugin.saveSettings();
        });
      });
    return input as HTMLInputElement;
  }
}
