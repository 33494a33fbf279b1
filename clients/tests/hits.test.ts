import { describe, expect, it } from "vitest";

import type { Hit } from "../shared/client";
import { idsOf, lineOf, passagePieces, pathsOf, placeText, titleOf } from "../shared/hits";

function hitOf(values: Partial<Hit>): Hit {
  const passage = values.passage ?? "";
  const span = { start: 0, stop: Array.from(passage).length };
  return { rank: 1, score: 1, id: "a.md", title: null, passage, ...span, metadata: {}, ...values };
}

const shown = (hit: Hit, isWhole = false) =>
  passagePieces(hit, isWhole)
    .map(({ text, isMarked }) => (isMarked ? `[${text}]` : text))
    .join("");

describe("the title", () => {
  it("of a hit without one is its id", () => {
    expect(titleOf(hitOf({}))).toBe("a.md");
    expect(titleOf(hitOf({ title: "Router" }))).toBe("Router");
  });
});

describe("the place", () => {
  it("names pages, headings and lines, without the title", () => {
    const place = { headings: ["Router", "Reset"], lines: [3, 9] as [number, number] };
    expect(placeText(hitOf({ title: "Router", place }))).toBe("a.md · Reset · lines 3-9");
    expect(placeText(hitOf({ title: "Other", place }))).toBe("a.md · Router › Reset · lines 3-9");
    expect(placeText(hitOf({ place: { pages: ["iv", "iv"] } }))).toBe("a.md · page iv");
  });
});

describe("a passage", () => {
  it("is cut at its marks, whose offsets count characters", () => {
    const passage = "😀 an owl, an 🦉";
    const marks: [number, number][] = [[5, 8], [13, 14]];
    expect(shown(hitOf({ passage, marks }))).toBe("😀 an [owl], an [🦉]");
  });

  it("with a late mark is an excerpt from a word before it on, unless it is whole", () => {
    const hit = hitOf({ passage: `${"word ".repeat(100)}owl end`, marks: [[500, 503]] });
    expect(shown(hit)).toBe(`… ${"word ".repeat(16)}[owl] end`);
    expect(shown(hit, true)).toBe(`${"word ".repeat(100)}[owl] end`);
  });

  it("of one long word is whole", () => {
    const hit = hitOf({ passage: `${"x".repeat(300)}owl`, marks: [[300, 303]] });
    expect(shown(hit)).toBe(`${"x".repeat(300)}[owl]`);
  });
});

describe("the line", () => {
  const passage = "one owl\n\ntwo owl owl\nend";

  it("is the one with most marks", () => {
    const marks: [number, number][] = [[4, 7], [13, 16], [17, 20]];
    expect(lineOf(hitOf({ passage, marks, place: { lines: [10, 13] } }))).toBe(12);
  });

  it("ignores white space around the passage", () => {
    const marks: [number, number][] = [[15, 18], [19, 22]];
    const place = { lines: [10, 13] as [number, number] };
    expect(lineOf(hitOf({ passage: `\n\n${passage}\n`, marks, place }))).toBe(12);
  });

  it("is the first where the passage leaves out lines of its file", () => {
    const marks: [number, number][] = [[13, 16]];
    expect(lineOf(hitOf({ passage, marks, place: { lines: [10, 20] } }))).toBe(10);
  });

  it("is the first without marks, and unknown without lines", () => {
    expect(lineOf(hitOf({ passage, place: { lines: [10, 13] } }))).toBe(10);
    expect(lineOf(hitOf({ passage }))).toBeNull();
  });
});

describe("ids and paths", () => {
  it("may begin with the name of the folder", () => {
    expect(pathsOf("notes/a.md", "notes")).toEqual(["notes/a.md", "a.md"]);
    expect(pathsOf("notesx/a.md", "notes")).toEqual(["notesx/a.md"]);
    expect(idsOf("a.md", "notes")).toEqual(["a.md", "notes/a.md"]);
  });
});
