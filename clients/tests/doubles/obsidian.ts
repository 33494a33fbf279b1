/** The part of Obsidian's module that the plugin uses: Obsidian itself runs in no test. */

import { request } from "node:http";

/** As Electron sends it: outside of a page, without `Origin`; it cannot be canceled. */
export function requestUrl(options: {
  url: string;
  method: string;
  headers: Record<string, string>;
  body?: string;
  throw: boolean;
}): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const headers = { ...options.headers, "Sec-Fetch-Site": "none" };
    const sending = request(options.url, { method: options.method, headers }, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (part) => (text += part));
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, text }));
    });
    sending.on("error", reject);
    sending.end(options.body);
  });
}

export class Plugin {
  commands: any[] = [];
  views = new Map<string, (leaf: any) => any>();
  tabs: PluginSettingTab[] = [];
  data: unknown = null;

  constructor(readonly app: any) {}

  addCommand(command: unknown): void {
    this.commands.push(command);
  }

  addRibbonIcon(): void {}

  addSettingTab(tab: PluginSettingTab): void {
    this.tabs.push(tab);
  }

  registerView(type: string, create: (leaf: any) => any): void {
    this.views.set(type, create);
  }

  async loadData(): Promise<unknown> {
    return this.data;
  }

  async saveData(data: unknown): Promise<void> {
    this.data = JSON.parse(JSON.stringify(data));
  }
}

export class ItemView {
  contentEl: HTMLElement;

  constructor(readonly leaf: any) {
    this.contentEl = leaf.element;
  }
}

export class PluginSettingTab {
  containerEl: HTMLElement;

  constructor(readonly app: any) {
    this.containerEl = app.element;
  }
}

export class Setting {
  private readonly label: HTMLElement;

  constructor(private readonly container: HTMLElement) {
    this.label = container.ownerDocument.createElement("label");
    container.append(this.label);
  }

  setName(name: string): this {
    this.label.append(name);
    return this;
  }

  setDesc(): this {
    return this;
  }

  addText(build: (text: any) => void): this {
    const inputEl = this.container.ownerDocument.createElement("input");
    this.label.append(inputEl);
    const text = {
      inputEl,
      setValue(value: string) {
        inputEl.value = value;
        return text;
      },
      onChange(change: (value: string) => void) {
        inputEl.addEventListener("input", () => change(inputEl.value));
        return text;
      },
    };
    build(text);
    return this;
  }
}
