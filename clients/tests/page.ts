/** A page without a browser, and reading of a panel in it. */

import { JSDOM } from "jsdom";
import { vi } from "vitest";

export function createRoot(): HTMLElement {
  const { window } = new JSDOM("<!DOCTYPE html><body></body>");
  return window.document.body as unknown as HTMLElement;
}

export function query<T extends HTMLElement>(root: HTMLElement, selector: string): T {
  const element = root.querySelector<T>(selector);
  if (!element) throw new Error(`${selector}: nothing in ${root.innerHTML}`);
  return element;
}

export function texts(root: HTMLElement, selector: string): string[] {
  return [...root.querySelectorAll(selector)].map((element) => element.textContent ?? "");
}

export function buttonOf(root: HTMLElement, text: string): HTMLButtonElement {
  const buttons = [...root.querySelectorAll("button")];
  const button = buttons.find((candidate) => candidate.textContent === text);
  if (!button) throw new Error(`${text}: no such button in ${root.innerHTML}`);
  return button;
}

export function windowOf(root: HTMLElement): Window & typeof globalThis {
  return root.ownerDocument.defaultView!;
}

/** Type into a box, as far as the panel notices it. */
export function type(root: HTMLElement, selector: string, text: string): void {
  const box = query<HTMLInputElement>(root, selector);
  box.value = text;
  box.dispatchEvent(new (windowOf(root).Event)("input", { bubbles: true }));
}

export function press(root: HTMLElement, key: string): void {
  const { KeyboardEvent } = windowOf(root);
  root.ownerDocument.activeElement!.dispatchEvent(
    new KeyboardEvent("keydown", { key, bubbles: true }),
  );
}

export function click(element: HTMLElement, options: MouseEventInit = {}): void {
  const { MouseEvent } = element.ownerDocument.defaultView!;
  element.dispatchEvent(new MouseEvent("click", { bubbles: true, ...options }));
}

/** Wait until an assertion holds. */
export function until<T>(check: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(check, { timeout: 15_000, interval: 20 });
}
