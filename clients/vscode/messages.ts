/** Messages between the extension and the panel in its webview. */

import type { Hit, Like, SearchRequest, SearchResult } from "../shared/client";

/** From the panel; an answer has the number of its message. */
export type PanelMessage =
  | { type: "ready" }
  | { type: "search"; number: number; request: SearchRequest }
  | { type: "cancel"; number: number }
  | { type: "open"; number: number; hit: Hit; line: number | null; isBeside: boolean };

/** To the panel. */
export type ExtensionMessage =
  | { type: "result"; number: number; result: SearchResult }
  | { type: "opened"; number: number; isOpened: boolean }
  | { type: "failure"; number: number; message: string }
  | { type: "find"; text: string }
  | { type: "similar"; like: Like }
  | { type: "fail"; message: string };
