/** Starts services over small indexes, for all tests: `retriever serve` as users run it. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const BIN = process.env.RETRIEVER_BIN ?? join(ROOT, ".venv/bin");
export const RETRIEVER = join(BIN, "retriever");
export const TOKEN = "a-token-of-the-tests";

declare module "vitest" {
  interface ProvidedContext {
    /** The folder that was indexed, as `examples/sample_folder.py` writes it, with `markup.md`. */
    home: string;
    /** A service with the indexes `home`, `folders` and `owl`. */
    address: string;
    /** The folder of the index `owl`, which tests may change: one note is `owl.md` beside it. */
    owlIndex: string;
    /** A service that asks for a token. */
    lockedAddress: string;
  }
}

/** A note whose every part would be markup if it were not text. */
export const MARKUP = `---
title: '<b>Zebra</b> <img src=x onerror="throw 1">'
---
The zebra <script>throw 2</script> has <mark>stripes</mark> 😀 & a zebra runs. **Zebra** $(alert)
`;

function runRetriever(...args: string[]): void {
  execFileSync(RETRIEVER, [...args, "--quiet"], { stdio: "pipe" });
}

/** Start a service, and return its process and its address. */
async function startService(
  args: string[],
  token = "",
): Promise<{ service: ChildProcess; address: string }> {
  const service = spawn(RETRIEVER, ["serve", ...args, "--port", "0"], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, RETRIEVER_TOKEN: token },
  });
  const address = await new Promise<string>((resolve, reject) => {
    let output = "";
    service.stdout!.on("data", (part) => {
      output += part;
      const match = /http:\/\/127\.0\.0\.1:\d+/.exec(output);
      if (match) resolve(match[0]);
    });
    service.on("exit", (code) => reject(new Error(`retriever serve ended with ${code}`)));
  });
  return { service, address };
}

export default async function setup(project: TestProject): Promise<() => void> {
  const folder = mkdtempSync(join(tmpdir(), "retriever-clients-"));
  const home = join(folder, "home");
  const work = join(folder, "work");
  execFileSync(join(BIN, "python"), [join(ROOT, "examples/sample_folder.py"), home]);
  writeFileSync(join(home, "markup.md"), MARKUP);
  mkdirSync(work);
  writeFileSync(join(work, "giraffe.md"), "# Giraffe\n\nA giraffe eats leaves.\n");
  writeFileSync(join(folder, "owl.md"), "# Owl\n\nAn owl hears a mouse below the snow.\n");
  const [index, folders, owl] = ["home", "folders", "owl"].map((name) =>
    join(folder, `${name}.index`),
  ) as [string, string, string];
  runRetriever("index", home, "-i", index);
  runRetriever("index", home, work, "-i", folders);
  runRetriever("index", join(folder, "owl.md"), "-i", owl);
  const [open, locked] = await Promise.all([
    startService([index, folders, owl]),
    startService([index], TOKEN),
  ]);
  project.provide("home", home);
  project.provide("owlIndex", owl);
  project.provide("address", open.address);
  project.provide("lockedAddress", locked.address);
  return () => {
    open.service.kill();
    locked.service.kill();
    rmSync(folder, { recursive: true });
  };
}
