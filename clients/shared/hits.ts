/** What a panel shows of a hit, and the file and line that it opens. */

import type { Hit } from "./client";

export interface Piece {
  text: string;
  isMarked: boolean;
}

/** An excerpt begins at the first mark if that stands behind so many characters. */
const LONG_BEGINNING = 160;
/** Characters before the first mark of an excerpt. */
const LEAD = 80;

export function titleOf(hit: Hit): string {
  return hit.title?.trim() || hit.id;
}

/** Return the place in words: id, pages, message, headings, lines. */
export function placeText(hit: Hit): string {
  const { pages, message, headings = [], lines } = hit.place ?? {};
  // The title is shown above the place.
  const path = headings[0] === hit.title ? headings.slice(1) : headings;
  const parts = [hit.id, rangeText("page", pages), message, path.join(" › ")];
  return [...parts, rangeText("line", lines)].filter(Boolean).join(" · ");
}

function rangeText(name: string, range?: [unknown, unknown]): string {
  if (!range) return "";
  const [first, last] = range;
  return first === last ? `${name} ${first}` : `${name}s ${first}-${last}`;
}

/** Return a passage, or an excerpt from its first mark on, cut at the borders of marks. */
export function passagePieces(hit: Hit, isWhole: boolean): Piece[] {
  const characters = Array.from(hit.passage);
  const marks = hit.marks ?? [];
  const first = marks[0]?.[0] ?? 0;
  let position = 0;
  if (!isWhole && first > LONG_BEGINNING) {
    position = characters.lastIndexOf(" ", first - LEAD) + 1;
  }
  const pieces: Piece[] = position > 0 ? [{ text: "… ", isMarked: false }] : [];
  const add = (start: number, stop: number, isMarked: boolean) => {
    if (start < stop) pieces.push({ text: characters.slice(start, stop).join(""), isMarked });
  };
  for (const [start, stop] of marks) {
    add(position, start, false);
    add(start, stop, true);
    position = stop;
  }
  add(position, characters.length, false);
  return pieces;
}

/** Return the line with most marks, from 1; the first line of the passage if that is unknown. */
export function lineOf(hit: Hit): number | null {
  const lines = hit.place?.lines;
  if (!lines) return null;
  const [first, last] = lines;
  const characters = Array.from(hit.passage.trim());
  const breaks = characters.filter((character) => character === "\n").length;
  // A passage that leaves out lines of its file does not tell on which line a word stands.
  if (breaks !== last - first || !hit.marks?.length) return first;
  const lead = Array.from(hit.passage).length - Array.from(hit.passage.trimStart()).length;
  const counts = new Array<number>(breaks + 1).fill(0);
  for (const [start] of hit.marks) {
    const line = characters.slice(0, start - lead).filter((character) => character === "\n").length;
    counts[line] = (counts[line] ?? 0) + 1;
  }
  return first + counts.indexOf(Math.max(...counts));
}

/** Return the first page of a hit in a PDF. */
export function pageOf(hit: Hit): string | null {
  return hit.place?.pages?.[0] ?? null;
}

/**
 * Return the paths below a folder that an id may name.
 *
 * In an index of several folders an id begins with the name of its folder.
 */
export function pathsOf(id: string, folderName: string): string[] {
  const prefix = `${folderName}/`;
  return id.startsWith(prefix) ? [id, id.slice(prefix.length)] : [id];
}

/** Return the ids that the file at a path below a folder may have. */
export function idsOf(path: string, folderName: string): string[] {
  return [path, `${folderName}/${path}`];
}
