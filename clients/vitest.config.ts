import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const double = (name: string) =>
  fileURLToPath(new URL(`tests/doubles/${name}.ts`, import.meta.url));

export default defineConfig({
  resolve: { alias: { obsidian: double("obsidian"), vscode: double("vscode") } },
  test: {
    include: ["tests/*.test.ts"],
    globalSetup: "tests/services.ts",
    testTimeout: 60_000,
    maxWorkers: 2,
  },
});
