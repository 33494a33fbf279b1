/** The script of the webview: the shared panel, whose actions the extension runs. */

import type { SearchResult } from "../shared/client";
import { SearchPanel } from "../shared/panel";
import type { ExtensionMessage, PanelMessage } from "./messages";

interface Waiting {
  resolve(value: never): void;
  reject(error: Error): void;
}

/** Fill an element with the panel; `post` sends to the extension. */
export function startPanel(
  root: HTMLElement,
  window: Window,
  post: (message: PanelMessage) => void,
): SearchPanel {
  const waiting = new Map<number, Waiting>();
  let count = 0;

  function request<T>(message: (number: number) => PanelMessage): [number, Promise<T>] {
    const number = ++count;
    const promise = new Promise<T>((resolve, reject) => waiting.set(number, { resolve, reject }));
    post(message(number));
    return [number, promise];
  }

  const panel = new SearchPanel(root, {
    search(searchRequest, signal) {
      const [number, promise] = request<SearchResult>((number) => ({
        type: "search",
        number,
        request: searchRequest,
      }));
      signal.addEventListener("abort", () => post({ type: "cancel", number }), { once: true });
      return promise;
    },
    open(hit, line, isBeside) {
      return request<boolean>((number) => ({ type: "open", number, hit, line, isBeside }))[1];
    },
  });

  function settle(number: number, act: (promise: Waiting) => void): void {
    const promise = waiting.get(number);
    waiting.delete(number);
    if (promise) act(promise);
  }

  window.addEventListener("message", ({ data }: MessageEvent<ExtensionMessage>) => {
    switch (data.type) {
      case "result":
        return settle(data.number, ({ resolve }) => resolve(data.result as never));
      case "opened":
        return settle(data.number, ({ resolve }) => resolve(data.isOpened as never));
      case "failure":
        return settle(data.number, ({ reject }) => reject(new Error(data.message)));
      case "find":
        return panel.find(data.text);
      case "similar":
        return panel.showSimilar(data.like);
      case "fail":
        return panel.fail(data.message);
    }
  });
  post({ type: "ready" });
  return panel;
}
