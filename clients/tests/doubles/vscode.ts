/** The part of VS Code's module that the extension uses: VS Code itself runs in no test. */

import { vi } from "vitest";

export class Position {
  constructor(
    readonly line: number,
    readonly character: number,
  ) {}
}

export class Range {
  constructor(
    readonly start: Position,
    readonly end: Position,
  ) {}
}

export class Uri {
  private constructor(readonly fsPath: string) {}

  static file(path: string): Uri {
    return new Uri(path);
  }

  static joinPath(uri: Uri, name: string): Uri {
    return new Uri(`${uri.fsPath}/${name}`);
  }

  toString(): string {
    return `file://${this.fsPath}`;
  }
}

export const ViewColumn = { Active: -1, Beside: -2 };

/** Settings and folders that a test sets. */
export const settings: Record<string, unknown> = {};
export const workspace: any = {
  workspaceFolders: [],
  getConfiguration: (section: string) => ({
    get: (name: string, fallback: unknown) => settings[`${section}.${name}`] ?? fallback,
  }),
};

export const registered = new Map<string, (...args: any[]) => any>();
export const executeCommand = vi.fn(async (name: string, ...args: any[]) => {
  await registered.get(name)?.(...args);
});
export const commands = {
  executeCommand,
  registerCommand(name: string, run: (...args: any[]) => any) {
    registered.set(name, run);
    return { dispose() {} };
  },
};

export const providers = new Map<string, any>();
export const window: any = {
  activeTextEditor: undefined,
  showInputBox: vi.fn(),
  registerWebviewViewProvider(name: string, provider: unknown) {
    providers.set(name, provider);
    return { dispose() {} };
  },
};
