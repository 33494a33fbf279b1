/** Starts the panel in VS Code's webview. */

import { startPanel } from "./webview";

declare function acquireVsCodeApi(): { postMessage(message: unknown): void };

const api = acquireVsCodeApi();
startPanel(document.body, window, (message) => api.postMessage(message));
